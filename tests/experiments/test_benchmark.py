"""The benchmark's arithmetic and its output, on a model of a few hundred parameters; nothing here is a timing test."""

import contextlib
import importlib.util
import io
import json

import jax
import numpy as np
import pytest

from experiments import benchmark, haar_speed
from experiments.baselines import environments, rivals
from experiments.benchmark import main, table
from experiments.workloads import WORKLOADS, Images, Records, compiled_round, parameters
from fedpriv.devices.layout import Strategy
from fedpriv.mechanisms.haar import haar, inverse_haar, padded_length
from fedpriv.privacy.sampling import FixedSize

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TINY = Images(clients=3, side=4, filters=(2, 3), hidden=(4,), examples=2, epochs=2)


TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def result():
    """What a whole run on the tiny workload prints; with PyTorch's turns where that is installed."""
    torch = ["--torch"] if TORCH else []
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setitem(benchmark.WORKLOADS, "A", TINY)
        patch.setattr(benchmark, "PRODUCT", 8)
        assert main(["--json", "--clients", "2", "--repeats", "2", "--devices", "2", *torch]) == 0
    return json.loads(printed.getvalue())


def test_workload_a_has_the_size_it_is_said_to_have():
    assert parameters(WORKLOADS["A"]) == 1_663_370
    assert round(WORKLOADS["A"].flop_per_client() / 1e9, 2) == 7.24


def test_flop_of_a_small_model_by_hand():
    forward = [
        16 * 25 * 1 * 2,
        4 * 25 * 2 * 3,
        3 * 4,
        4 * 10,
    ]  # multiply-adds per example and layer
    assert TINY.flop_per_client() == 2 * 2 * 2 * (3 * sum(forward) - forward[0])


@pytest.mark.slow
def test_json_is_one_object_with_consistent_numbers(result):
    assert result["clients"] == 2
    assert result["devices"] == 2
    assert len(result["clients_per_second"]["all"]) == 2
    assert result["peak_memory_mb"] > 0
    assert (result["strategy"], result["clients_side_by_side"]) == ("map", 1)
    assert ("ratio_to_torch" in result) == TORCH
    ratios = zip(result["gflops"]["all"], result["matmul_gflops"]["all"], strict=True)
    assert result["fractions_of_matmul"]["all"] == pytest.approx([a / b for a, b in ratios])


@pytest.mark.parametrize(("clients", "expected"), [("fit", 3), (2, 2), ("vmap", 3), ("map", 1)])
def test_a_round_says_how_many_clients_are_side_by_side(clients, expected):
    """Of 6 on two devices; with "fit" all that a device has, as there is memory for so small a model."""
    compiled = compiled_round(TINY, 6, Strategy(clients, devices=2))
    assert compiled.side_by_side == expected
    assert jax.tree.leaves(compiled.run())


@pytest.mark.slow
def test_workload_b_is_a_round_of_dp_scaffold(monkeypatch, capsys):
    """At its real size: 20 of 100 clients, 410 parameters; here tiny, on one device."""
    real = WORKLOADS["B"]
    assert (real.clients, parameters(real)) == (20, 410)
    assert real.algorithm(20).sampler.accounting == FixedSize(100, 20)
    monkeypatch.setitem(benchmark.WORKLOADS, "B", Records(2, records=10, batch=4, steps=3))
    monkeypatch.setattr(benchmark, "PRODUCT", 8)
    assert main(["--workload", "B", "--json", "--repeats", "2", "--devices", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    seconds = 2 / found["clients_per_second"]["median"]
    assert found["device_ms_per_round"]["median"] == pytest.approx(1e3 * seconds, rel=0.5)
    assert found["gflop_per_client"] == pytest.approx(3 * 4 * 4 * 400 / 1e9)


@pytest.mark.slow
def test_workload_c_compares_turn_by_turn(monkeypatch, capsys):
    """At its real size a model that is padded to m = 2^15; here tiny."""
    real = haar_speed.Transform()
    sizes = jax.tree.leaves(jax.eval_shape(real.model().init, jax.random.key(0)))
    assert sum(leaf.size for leaf in sizes) == 28_874
    assert (real.rows, real.length) == (256, padded_length(28_874))
    tiny = haar_speed.Transform(3, 8, lot=2, side=4, filters=(2,), hidden=(3,))
    monkeypatch.setattr(haar_speed, "Transform", lambda: tiny)
    monkeypatch.setattr(haar_speed, "ROUNDS", 2)
    assert main(["--workload", "C", "--json", "--repeats", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
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


def test_what_workload_c_times_is_what_it_says():
    tiny = haar_speed.Transform(3, 8, lot=2, side=4, filters=(2,), hidden=(3,))
    runs = haar_speed.transforms(tiny)
    x = runs["copy"]() - 1
    np.testing.assert_allclose(runs["haar"](), haar(x), atol=1e-6)
    np.testing.assert_allclose(runs["inverse"](), inverse_haar(x, 8), atol=1e-6)
    np.testing.assert_allclose(runs["copy"](), x + 1)


@pytest.mark.slow
def test_table_names_what_is_wanted_of_it(result):
    out = table(result)
    assert "1 client(s) at a time on each device" in out
    for name in ("2 clients", "clients/s", "GFLOP/s", "fraction_of_matmul", "compile", "jaxlib"):
        assert name in out
    assert ("ratio_to_torch" in out) == TORCH


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="PyTorch is not installed")
def test_torch_trains_the_same_model(result):
    assert result["torch"]["parameters"] == result["parameters"]
    assert result["torch"]["best"] in ("nchw", "channels_last")
    assert result["ratio_to_torch"] > 0


@pytest.mark.parametrize("option", ["--torch", "--peers"])
def test_torch_that_is_not_installed_is_said_in_one_line(option, monkeypatch, capsys):
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: None)
    assert main([option]) == 2
    error = capsys.readouterr().err
    assert f"{option}: PyTorch is not installed; pip install torch" in error
    assert error.count("\n") == 1


def test_peers_are_for_the_cpu(monkeypatch, capsys):
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert main(["--peers"]) == 2
    error = capsys.readouterr().err
    assert "--peers: they are compared on CPU only; set JAX_PLATFORMS=cpu" in error
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="PyTorch is not installed")
def test_records_and_steps_beside_pytorch_and_peers(monkeypatch, capsys):
    """Of the peers jax_privacy alone needs no environment; the others have none here."""

    def offline(name):
        raise ChildProcessError("its environment cannot be built: no network")

    tiny = haar_speed.Transform(3, 8, lot=2, side=4, filters=(2,), hidden=(3,))
    monkeypatch.setattr(environments, "python_of", offline)
    monkeypatch.setattr(haar_speed, "Transform", lambda: tiny)
    monkeypatch.setattr(haar_speed, "ROUNDS", 2)
    monkeypatch.setitem(benchmark.WORKLOADS, "B", Records(2, records=10, batch=4, steps=3))
    monkeypatch.setattr(benchmark, "PRODUCT", 8)
    assert main(["--workload", "B", "--peers", "--json", "--repeats", "2", "--devices", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["torch"]["parameters"] == found["parameters"]
    assert found["torch"]["threads"] == 1
    assert len(found["ratios_to_torch"]["all"]) == 2
    assert "no network" in found["pfl"]["unavailable"]
    assert main(["--workload", "C", "--peers", "--json", "--repeats", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
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
def test_pytorch_that_fails_is_exit_code_1_and_the_rest_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(rivals, "TORCH", {"A": "no_such_module"})
    monkeypatch.setitem(benchmark.WORKLOADS, "A", TINY)
    monkeypatch.setattr(benchmark, "PRODUCT", 8)
    assert main(["--torch", "--clients", "2", "--repeats", "1", "--devices", "1"]) == 1
    captured = capsys.readouterr()
    assert "fraction_of_matmul" in captured.out
    assert "No module named" in captured.err


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--clients", "0"], "--clients: 0 is not at least 1"),
        (["--repeats", "-1"], "--repeats: -1 is not at least 1"),
        (["--devices", "99"], "devices: 99 is not between"),
        (["--clients", "many"], "invalid int value"),
        (["--workload", "Z"], "invalid choice"),
        (["--workload", "C", "--clients", "3"], "has no clients"),
        (["--workload", "C", "--devices", "2"], "runs on one device"),
        (["--speed"], "unrecognized arguments"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(given, complaint, capsys):
    try:
        code = main(given)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for option in (
        "--workload",
        "--clients",
        "--repeats",
        "--devices",
        "--torch",
        "--peers",
        "--json",
    ):
        assert option in out
    assert "above 1, fedpriv is faster" in " ".join(out.split())


@pytest.mark.parametrize("columns", ["60", "150"])
def test_help_keeps_paragraphs_and_fits_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    details = (benchmark.__doc__ or "").partition("\n\n")[2].strip().split("\n\n")
    shown = [" ".join(paragraph.split()) for paragraph in out.split("\n\n")]
    assert [p for p in shown if p in {" ".join(d.split()) for d in details}] == [
        " ".join(d.split()) for d in details
    ]
    assert int(columns) - 20 < max(map(len, out.splitlines())) <= int(columns)
