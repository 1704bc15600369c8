"""The benchmark's arithmetic and its output, on a model of a few hundred parameters; nothing here is a timing test."""

import contextlib
import importlib.util
import io
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments import benchmark
from experiments.speed import attention_speed, every, haar_speed, round_speed, rounds, timing
from experiments.speed.rivals import runner
from experiments.speed.round_speed import compiled_round
from experiments.speed.workloads import WORKLOADS, Images, Records, parameters
from fedpriv.core import large_pages
from fedpriv.devices.layout import Strategy
from fedpriv.mechanisms.haar import haar, inverse_haar, padded_length
from fedpriv.privacy.sampling import FixedSize

COMMAND = benchmark
main, PARTS = COMMAND.main, COMMAND.PARTS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = Images(clients=3, side=4, filters=(2, 3), hidden=(4,), examples=2, epochs=2)
TINY_RECORDS = Records(2, records=10, batch=4, steps=3)
TINY_TRANSFORM = haar_speed.Transform(3, 8, lot=2, side=4, filters=(2,), hidden=(3,))
TINY_TEXTS = attention_speed.Characters(2, length=4, vocabulary=5, width=4, heads=2, layers=1)
TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture
def tiny(monkeypatch):
    """All workloads, in a fraction of a second."""
    for name, small in (("A", TINY), ("B", TINY_RECORDS)):
        monkeypatch.setitem(rounds.WORKLOADS, name, small)
    monkeypatch.setattr(haar_speed, "WORKLOAD", TINY_TRANSFORM)
    monkeypatch.setattr(attention_speed, "WORKLOAD", TINY_TEXTS)
    monkeypatch.setattr(haar_speed, "ROUNDS", 2)
    monkeypatch.setattr(round_speed, "PRODUCT", 8)


def asked(*args):
    """(exit code, the object that is printed)."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(["rounds", *args, "--json", "--repeats", "2"])
    return code, json.loads(printed.getvalue())


def test_workloads_have_the_sizes_they_are_said_to_have():
    """Of a small model by hand: multiply-adds per example and layer."""
    assert parameters(WORKLOADS["A"]) == 1_663_370
    assert round(WORKLOADS["A"].flop_per_client() / 1e9, 2) == 7.24
    forward = [16 * 25 * 1 * 2, 4 * 25 * 2 * 3, 3 * 4, 4 * 10]
    assert TINY.flop_per_client() == 2 * 2 * 2 * (3 * sum(forward) - forward[0])
    assert TINY_RECORDS.flop_per_client() == 3 * 4 * 4 * 400
    real = WORKLOADS["B"]
    assert (real.clients, parameters(real)) == (20, 410)
    assert real.algorithm(20).sampler.accounting == FixedSize(100, 20)
    transform = haar_speed.Transform()
    assert parameters(transform) == 28_874
    assert (transform.rows, transform.length) == (256, padded_length(28_874))
    kernels = 3 * 4 * 4 + 4 * 4 + 2 * 4 * 16 + 4 * 5  # query, key, value; output; dense; logits
    scores_and_values = 2 * 4 * 4  # per character
    assert TINY_TEXTS.flop() == 3 * 2 * 2 * 4 * (kernels + scores_and_values)


def test_turns(monkeypatch, capsys):
    """Every run and the others in each round; medians of calls, then of rounds."""
    clock = iter([*(1, 5, 3), 10, *(2, 2, 9), 30])
    monkeypatch.setattr(timing, "seconds", lambda run: run() or next(clock))
    order = []
    runs = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    found = timing.in_turns(runs, 1, lambda: order.append("."), rounds=2, calls={"a": 3})
    assert "".join(order) == "aaab.aaab."
    assert found == {"a": [2.5], "b": [20]}
    assert "turn 1 of 1 done" in capsys.readouterr().err


@pytest.mark.slow
def test_a_round_beside_a_matrix_product(tiny, capsys):
    code, found = asked("--clients", "2", "--devices", "2", *(["--torch"] if TORCH else []))
    assert code == 0
    assert (found["clients"], found["devices"]) == (2, 2)
    assert len(found["clients_per_second"]["all"]) == 2
    assert found["peak_memory_mb"] > 0
    assert (found["strategy"], found["clients_side_by_side"]) == ("map", 1)
    pairs = zip(found["gflops"]["all"], found["matmul_gflops"]["all"], strict=True)
    assert found["fractions_of_matmul"]["all"] == pytest.approx([a / b for a, b in pairs])
    assert [layer["channels"] for layer in found["convolutions"]] == [[1, 2], [2, 3]]
    for layer in found["convolutions"]:
        for way in (layer["forward"], layer["gradient"]):
            assert way["chosen"] == "sum"
            assert {name for name, ms in way["ms"].items() if ms["min"] > 0} == {"sum", "winograd"}
    out = round_speed.table(found)
    assert "ms by sum, chosen; " in out
    assert "1 client(s) at a time on each device" in out
    for name in ("2 clients", "clients/s", "GFLOP/s", "fraction_of_matmul", "compile", "jaxlib"):
        assert name in out
    assert ("ratio_to_torch" in out) == ("ratio_to_torch" in found) == TORCH
    if TORCH:
        assert found["torch"]["parameters"] == found["parameters"]
        assert found["torch"]["best"] in ("nchw", "channels_last")


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "expected"), [("fit", 3), (2, 2)])
def test_a_round_says_how_many_clients_are_side_by_side(clients, expected):
    """Of 6 on two devices; with "fit" all that a device has, as there is memory for so small a model."""
    compiled = compiled_round(TINY, 6, Strategy(clients, devices=2))
    assert compiled.side_by_side == expected
    assert jax.tree.leaves(compiled.run())


def spread(median):
    return {"median": median, "min": median / 2, "max": 2 * median}


def test_a_page_of_several_benchmarks(tmp_path, capsys):
    """A row for each workload, or step of it, and number of cores."""
    about = {"large_pages": False, "peak_memory_mb": 80.4}
    a_round = about | {
        "workload": "D",
        "cores": 1,
        "clients_per_second": spread(100.0),
        "rivals": ["torch", "pfl"],
    }
    a_round |= {"fractions_of_matmul": spread(0.5), "ratios_to_torch": spread(2.0)}
    a_step = {
        **about,
        "large_pages": True,
        "workload": "C",
        "cores": 2,
        "rivals": ["opacus"],
        "ratios_to_opacus": {"dp_sgd": spread(3.0)},
    }
    a_step |= {
        "ms": {"haar": spread(4.0), "dp_sgd": spread(5.0)},
        "fractions_of_copy": {"haar": spread(0.4)},
    }
    run = {"ms": spread(6.0), "ratio": spread(1.5), "peak_memory_mb": 70.0}
    failed = {"torch dp_sgd": {"unavailable": "no"}, "opacus gradient": run}
    runs = {"ours dp_sgd": run, "opacus dp_sgd": run, "opacus ghost": run} | failed
    alone = {"workload": "H", "cores": 2, "large_pages": False, "sizes": "small", "runs": runs}
    files = [tmp_path / f"{i}.json" for i in range(3)]
    for file, result in zip(files, (a_round, a_step, alone), strict=True):
        file.write_text(json.dumps(result))
    assert main(["page", *map(str, files), "--output", str(tmp_path)]) == 0
    rows = (tmp_path / "benchmark.md").read_text().splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[2:-1]] for row in rows]
    assert cells == [
        ["2", "yes", "5 (2.5 to 10) ms", "80", "", "3 (1.5 to 6)", ""],
        ["2", "yes", "4 (2 to 8) ms", "80", "0.4 (0.2 to 0.8)", "", ""],
        ["1", "no", "100 (50 to 200) clients/s", "80", "0.5 (0.25 to 1)", "", "2 (1 to 4)"],
        ["2", "no", "6 (3 to 12) ms", "70", "", "1.5 (0.75 to 3)", ""],
        ["2", "no", "6 (3 to 12) ms", "70", "", "1.5 (0.75 to 3)", ""],
    ]
    assert {file.name for file in tmp_path.glob("*.png")} == {"shares.png", "peers.png"}
    files[0].write_text("{}")
    assert main(["page", str(files[0])]) == 2
    assert "no object of rounds --json" in capsys.readouterr().err


def test_every_workload_is_measured_once_with_each_size_of_pages(tmp_path, monkeypatch, capsys):
    """What is there is kept."""
    asked = []
    tunables = []

    def run(command, env, **options):
        asked.append(command[command.index("--workload") + 1])
        tunables.append(env["GLIBC_TUNABLES"])
        if asked[-1] == "G" and len(asked) == 3:
            return subprocess.CompletedProcess(command, 1, "{}")
        pages = tunables[-1].endswith("1")
        result = {
            "workload": "E",
            "cores": 1,
            "large_pages": pages,
            "peak_memory_mb": 1.0,
            "rivals": [],
        }
        result |= {"clients_per_second": spread(1.0), "fractions_of_matmul": spread(0.5)}
        return subprocess.CompletedProcess(command, 0, json.dumps(result))

    monkeypatch.setattr(every.subprocess, "run", run)
    monkeypatch.setattr(large_pages, "available", lambda: True)
    (tmp_path / "other.json").write_text("[]")
    words = ["every", "--workloads", "E", "G", "--output", str(tmp_path)]
    assert main(words) == 2
    assert "error: workloads: G failed with exit code 1; see above" in capsys.readouterr().err
    assert main(words) == 0
    assert asked == ["E", "E", "G", "G", "G"]
    assert tunables[:2] == ["glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=1"]
    rows = (tmp_path / "benchmark.md").read_text().splitlines()[2:]
    assert [row.split("|")[3].strip() for row in rows] == ["no", "no", "yes", "yes"]
    for words, said in (
        (["--workloads", "X"], "workloads: 'X'"),
        (["--repeats", "0"], "repeats: 0"),
    ):
        assert main(["every", *words]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_workload_b_is_a_round_of_dp_scaffold(tiny):
    code, found = asked("--workload", "B", "--devices", "1")
    assert code == 0
    device, speed = found["device_ms_per_round"], found["clients_per_second"]
    assert device["min"] <= 1e3 * 2 / speed["min"]  # turns differ, the more so on a busy machine
    assert device["max"] >= 0.1 * 1e3 * 2 / speed["max"]
    assert found["gflop_per_client"] == pytest.approx(3 * 4 * 4 * 400 / 1e9)


@pytest.mark.slow
def test_workload_c_compares_turn_by_turn(tiny):
    code, found = asked("--workload", "C")
    assert code == 0
    times = {name: each["all"] for name, each in found["ms"].items()}
    fractions = [a / b for a, b in zip(times["copy"], times["haar"], strict=True)]
    assert found["fractions_of_copy"]["haar"]["all"] == pytest.approx(fractions)
    ratios = [a / b for a, b in zip(times["flat_wav"], times["dp_sgd"], strict=True)]
    assert found["ratios_to_dp_sgd"]["flat_wav"]["all"] == pytest.approx(ratios)
    bytes_moved = found["gb_per_second"]["haar"]["all"][0] * 1e9 * times["haar"][0] / 1e3
    assert bytes_moved == pytest.approx(2 * 3 * 8 * 4)
    out = haar_speed.table(found)
    for name in ("haar / copy", "inverse / copy", "dp_sgd_wav / dp_sgd", "flat_wav / dp_sgd"):
        assert name in out


@pytest.mark.slow
def test_workload_g_is_a_step_beside_a_gradient(tiny):
    code, found = asked("--workload", "G", *(["--torch"] if TORCH else []))
    assert code == 0
    pairs = zip(found["ms"]["dp_sgd"]["all"], found["ms"]["gradient"]["all"], strict=True)
    assert found["ratios_to_gradient"]["all"] == pytest.approx([a / b for a, b in pairs])
    assert found["gflop"] == pytest.approx(TINY_TEXTS.flop() / 1e9)
    assert "dp_sgd / gradient" in attention_speed.table(found)
    if TORCH:
        assert found["torch"]["parameters"] == found["parameters"]


@pytest.mark.slow
def test_what_workload_c_times_is_what_it_says():
    runs = haar_speed.transforms(TINY_TRANSFORM)
    x = runs["copy"]() - 1
    np.testing.assert_allclose(runs["haar"](), haar(x), atol=1e-6)
    np.testing.assert_allclose(runs["inverse"](), inverse_haar(x, 8), atol=1e-6)
    np.testing.assert_allclose(runs["copy"](), x + 1)


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="PyTorch is not installed")
def test_records_and_steps_beside_pytorch_and_peers(tiny, monkeypatch):
    """Of the peers jax_privacy alone needs no environment; the others have none here."""

    ours = ("torch", "jax_privacy")

    def offline(name, device):
        if name in ours:
            return sys.executable
        raise ChildProcessError("its environment cannot be built: no network")

    monkeypatch.setattr(runner, "python_of", offline)
    code, found = asked("--workload", "B", "--peers", "--devices", "1")
    assert code == 0
    assert found["torch"]["parameters"] == found["parameters"]
    assert found["torch"]["threads"] == 1
    assert len(found["ratios_to_torch"]["all"]) == 2
    assert "no network" in found["pfl"]["unavailable"]
    code, found = asked("--workload", "C", "--peers")
    assert code == 0
    for name, runs in (
        ("torch", ["copy", "haar", "inverse", "dp_sgd"]),
        ("jax_privacy", ["dp_sgd"]),
    ):
        assert found[name]["parameters"] == found["parameters"]
        assert list(found[f"ratios_to_{name}"]) == runs
        theirs, ours = found[name]["ms"]["dp_sgd"]["all"], found["ms"]["dp_sgd"]["all"]
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        assert found[f"ratios_to_{name}"]["dp_sgd"]["all"] == pytest.approx(ratios)
    assert "no step that clips" in found["fedjax"]["unavailable"]
    assert "jax_privacy dp_sgd" in haar_speed.table(found)


@pytest.mark.slow
def test_pytorch_that_fails_is_exit_code_1_and_the_rest_is_printed(tiny, monkeypatch, capsys):
    def broken(name, device):
        raise ChildProcessError("no such library")

    monkeypatch.setattr(rounds.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(runner, "python_of", broken)
    assert main(["rounds", "--torch", "--clients", "2", "--repeats", "1", "--devices", "1"]) == 1
    captured = capsys.readouterr()
    assert "fraction_of_matmul" in captured.out
    assert "torch: no such library" in captured.err


def test_the_parts_are_listed_and_another_is_refused(capsys):
    assert main([]) == main(["--help"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:2] == "  "}
    assert listed == set(PARTS)
    assert main(["pages"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: part: there is no 'pages'; choose one of rounds, ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_help_of_its_own(part, capsys):
    with pytest.raises(SystemExit) as stop:
        main([part, "--help"])
    assert stop.value.code == 0
    assert f"python -m experiments.benchmark {part} " in capsys.readouterr().out
