"""Sweeps over the quickstart: the same results as single runs, few compilations, resuming, tables, wrong input."""

import csv
import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest

import fedpriv as fp
from configs import quickstart
from fedpriv import privacy
from fedpriv.devices import memory as device_memory
from fedpriv.experiments.commands import run, sweep
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.search import training_together
from fedpriv.experiments.search.sweep_folder import point_ended
from fedpriv.experiments.tables.frame import Row
from fedpriv.experiments.tables.grid import grid
from fedpriv.models.score import Score

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]

SMALL = ["--clients", "20", "--cohort", "3", "--sampling", "fixed_size", "--local.epochs", "1"]
SMALL += ["--rounds", "3", "--every", "2", "--seeds", "2"]
PRIVATE = [*SMALL, "--algorithms", "dp_fed_avg"]
NOISES, RATES = ("0.5", "1"), ("0.1", "0.2")
GRID = [f"noise-multiplier={','.join(NOISES)}", f"local.learning_rate={','.join(RATES)}"]


def launch(*args, output):
    return sweep.main(["quickstart", *map(str, args), "--output", str(output)])


def read(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads((folder / "summary.json").read_text()), [json.loads(x) for x in lines]


def point(noise, rate):
    return f"noise_multiplier={noise},local.learning_rate={rate}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A grid of 2 x 2 numbers for a private algorithm and one that half of the grid does not touch."""
    assert jax.device_count() == 2  # starts JAX, before the quickstart asks for one device
    folder = tmp_path_factory.mktemp("sweep") / "here"
    both = [*SMALL, "--algorithms", "fed_avg", "dp_fed_avg"]
    assert launch("--grid", *GRID, *both, output=folder) == 0
    return folder


def test_every_point_keeps_its_models_also_those_of_another_point(finished):
    test = fp.datasets.load("digits").test
    predict = jax.jit(jax.vmap(jax.vmap(quickstart.MODEL.apply, (None, 0)), (0, None)))
    for folder in (finished / point(noise, rate) for noise in NOISES for rate in RATES):
        for name in ("fed_avg", "dp_fed_avg"):
            params = [fp.models.load_model(folder, name, seed).params for seed in (0, 1)]
            both = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
            right = np.argmax(predict(both, test["image"]), -1) == test["label"]
            final = read(folder)[0]["final"][name]["accuracy"]["per_seed"]
            np.testing.assert_allclose(right.mean(1), final, rtol=1e-6)


@pytest.mark.parametrize(("noise", "rate"), [("1", "0.2")])
def test_a_point_is_the_run_that_the_launcher_makes(finished, noise, rate, tmp_path):
    given = ["--noise-multiplier", noise, "--local.learning-rate", rate]
    assert run.main(["quickstart", *PRIVATE, *given, "--output", str(tmp_path / "r")]) == 0
    single, expected = read(tmp_path / "r")
    ours, lines = read(finished / point(noise, rate))
    found = [line for line in lines if line["algorithm"] == "dp_fed_avg"]
    for f, e in zip(found, expected, strict=True):
        assert (f["round"], f["privacy"]) == (e["round"], e["privacy"])
        # Rounding: constants that became inputs may be folded in another order.
        f, e = f["metrics"], e["metrics"]
        np.testing.assert_allclose(f["loss"]["per_seed"], e["loss"]["per_seed"], rtol=1e-5)
        np.testing.assert_allclose(f["accuracy"]["per_seed"], e["accuracy"]["per_seed"], atol=0.003)
    assert ours["privacy"]["dp_fed_avg"] == single["privacy"]["dp_fed_avg"]
    assert ours.keys() == single.keys()
    assert single["reused_from"] == single["diverged"] == {}
    settings = dict(single["settings"], algorithms=["fed_avg", "dp_fed_avg"])
    assert ours["settings"] | {"output": None} == settings | {"output": None}


def test_points_differ_where_their_settings_do(finished):
    """Or equality with the launcher's would mean little."""
    losses = {
        (algorithm, noise, rate): tuple(
            line["metrics"]["loss"]["mean"]
            for line in read(finished / point(noise, rate))[1]
            if line["algorithm"] == algorithm
        )
        for algorithm in ("fed_avg", "dp_fed_avg")
        for noise in NOISES
        for rate in RATES
    }
    assert len({losses[key] for key in losses if key[0] == "dp_fed_avg"}) == 4
    assert len({losses[key] for key in losses if key[0] == "fed_avg"}) == 2


def test_what_noise_does_not_touch_is_trained_once(finished):
    """FedAvg; with its numbers and the traffic in both folders, and a word on where they come from."""
    for rate in RATES:
        (first, ours), (second, theirs) = (read(finished / point(noise, rate)) for noise in NOISES)
        assert first["reused_from"] == {}
        assert second["reused_from"] == {"fed_avg": point(NOISES[0], rate)}
        fed_avg = [[x for x in lines if x["algorithm"] == "fed_avg"] for lines in (ours, theirs)]
        assert fed_avg[0] == fed_avg[1]
        assert second["compile_seconds"]["fed_avg"] == 0


def test_one_compilation_for_each_algorithm_and_a_table(finished):
    text = (finished / "table.md").read_text()
    assert "compiled programs: 2 for 6 trainings" in text
    assert "trainings that reuse another point's result: 2" in text
    lines = text.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:10]]
    assert rows[0][:3] == ["noise multiplier", "local learning rate", "algorithm"]
    expected = [[n, r, a] for n in NOISES for r in RATES for a in ("FedAvg", "DP-FedAvg")]
    assert [row[:3] for row in rows[2:]] == expected
    for row in rows[2:]:
        summary = run_folder.read(finished / point(row[0], row[1])).summary
        name = {"FedAvg": "fed_avg", "DP-FedAvg": "dp_fed_avg"}[row[2]]
        alone = grid([Row({"noise_multiplier": row[0]}, name, summary, "")], ["third_party"])
        (expected,) = alone.rows
        assert row[3:6] == expected[2:5]
        assert row[-1].split(" [")[0] == expected[-1].split(" [")[0]
        assert "±" in row[5]
    assert "released alone" in text


def test_the_table_is_there_for_machines_too(finished):
    with (finished / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row in rows:
        summary, _ = read(finished / point(row["noise_multiplier"], row["local.learning_rate"]))
        name = row["algorithm"]
        assert float(row["accuracy_best_std"]) == summary["best"][name]["accuracy"]["std"]
        server = summary["privacy"][name]["certified"]["server"]
        assert float(row["certified_server_epsilon"]) == float(server["epsilon"])
        assert row["certified_server_relation"] == server["relation"]
        for view in privacy.VIEWS:
            certified = summary["privacy"][name]["certified"][view]
            assert row[f"certified_{view}_epsilon"] == str(certified["epsilon"])
        assert row["reused_from"] == summary["reused_from"].get(name, "")
    assert math.isinf(float(rows[0]["certified_third_party_epsilon"]))


def test_a_finished_sweep_is_not_trained_again(finished, capsys, monkeypatch):
    monkeypatch.delattr(training_together, "train_algorithm")
    before = {f: f.read_bytes() for f in finished.glob("*/**/*") if f.is_file()}
    both = [*SMALL, "--algorithms", "fed_avg", "dp_fed_avg"]
    assert launch("--grid", *GRID, *both, "--json", output=finished) == 0
    answer, said = capsys.readouterr()
    answer = json.loads(answer)
    assert "4 of 4 points are done" in said
    assert (answer["trained"], answer["compiled"], len(answer["rows"])) == (0, 0, 8)
    assert answer["grid"] == {
        "noise_multiplier": list(NOISES),
        "local.learning_rate": list(RATES),
    }
    assert {f: f.read_bytes() for f in finished.glob("*/**/*") if f.is_file()} == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([*PRIVATE], "algorithms fed_avg dp_fed_avg there, dp_fed_avg here"),
        ([*SMALL, "--algorithms", "fed_avg", "dp_fed_avg", "--p", "0.3"], "p 0.1 there, 0.3 here"),
    ],
)
def test_another_sweep_is_not_mixed_in(finished, args, said, capsys):
    before = {f: f.read_bytes() for f in finished.glob("**/*.*") if f.is_file()}
    assert launch("--grid", *GRID, *args, output=finished) == 2
    assert said in capsys.readouterr().err
    assert launch("--grid", "delta=0.1,0.2", *args, output=finished) == 2
    assert (
        "holds another sweep: grid.noise_multiplier 0.5 1 there, None here"
        in capsys.readouterr().err
    )
    assert {f: f.read_bytes() for f in finished.glob("**/*.*") if f.is_file()} == before


def test_an_interrupted_sweep_goes_on_with_the_same_command(
    finished, tmp_path, monkeypatch, capsys
):
    """In the middle of its second point, of which a killed one leaves no summary. On two devices, for a change."""
    args = ["--grid", "noise_multiplier=0.5,1,2", *PRIVATE, "--layout.devices", "2"]
    recorded, evaluation = [], training_together.Recorder.evaluation

    def interrupting(self, *given):
        evaluation(self, *given)
        recorded.append(self.folder.name)
        if len(recorded) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_together.Recorder, "evaluation", interrupting)
    assert launch(*args, output=tmp_path) == 130
    assert f"the same command with --output {tmp_path} goes on" in capsys.readouterr().err
    cut = tmp_path / "noise_multiplier=1"
    assert read(cut)[0]["status"] == "interrupted"
    assert not (tmp_path / "noise_multiplier=2").exists()
    assert not (tmp_path / "table.md").exists()
    assert not point_ended(cut)
    (cut / "summary.json").unlink()
    assert not point_ended(cut)
    first = (tmp_path / "noise_multiplier=0.5" / "metrics.jsonl").read_text()
    assert launch(*args, "--json", output=tmp_path) == 0
    shown, said = capsys.readouterr()
    assert "1 of 3 points are done" in said
    assert json.loads(shown)["trained"] == 2
    assert (tmp_path / "noise_multiplier=0.5" / "metrics.jsonl").read_text() == first
    for noise in ("0.5", "1", "2"):
        summary, lines = read(tmp_path / f"noise_multiplier={noise}")
        assert summary["status"] == "complete"
        assert [line["round"] for line in lines] == [2, 3]
        if noise in NOISES:
            one_device = read(finished / point(noise, "0.1"))[1][-1]
            assert lines[-1]["metrics"]["loss"]["mean"] == pytest.approx(
                one_device["metrics"]["loss"]["mean"], rel=1e-4
            )


def test_what_changes_shapes_is_compiled_again(tmp_path, capsys):
    """p = 0.10001 keeps as many coordinates as 0.1, but is another number."""
    args = [*SMALL, "--rounds", "1", "--seeds", "1", "--algorithms", "rand_k", "--json"]
    args += ["--grid", "p=0.1,0.2,0.10001"]
    assert launch(*args, output=tmp_path) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["compiled"] == 2
    assert answer["trained"] + answer["reused"] == len(answer["rows"]) == 3


def test_the_width_that_fits_is_found_once_and_shared(tmp_path, capsys, monkeypatch):
    """By the trace alone: one program is compiled, however many points."""
    memory = iter([2**40])  # asked for a second time, it would end in an error
    monkeypatch.setattr(device_memory, "free_memory", lambda: next(memory))
    compiled, compile_ = [], jax.stages.Lowered.compile

    def counting(lowered, *args, **kwargs):
        compiled.append(lowered)
        return compile_(lowered, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counting)
    args = [*PRIVATE, "--cohort", "10", "--rounds", "1", "--seeds", "1", "--layout.clients", "fit"]
    assert launch("--grid", "noise-multiplier=0.5,1", *args, "--json", output=tmp_path) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trained"], answer["compiled"], len(compiled)) == (2, 1, 1)
    assert next(memory, None) is None


def test_what_concerns_accounting_alone_is_trained_once(tmp_path, capsys):
    assert launch("--grid", "delta=1e-3,1e-2", *PRIVATE, "--json", output=tmp_path) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trained"], answer["reused"], answer["compiled"]) == (1, 1, 1)
    strict, loose = (row["certified_server_epsilon"] for row in answer["rows"])
    assert strict > loose
    found = [read(tmp_path / f"delta={delta}")[1][-1] for delta in ("1e-3", "1e-2")]
    assert found[0]["metrics"] == found[1]["metrics"]
    assert found[0]["privacy"] != found[1]["privacy"]


def test_a_metric_that_a_setting_enters_is_not_another_points(tmp_path, capsys, monkeypatch):
    def on(config, data, on=quickstart.on):
        found = on(config, data)
        derived = {"scaled": lambda means: means["loss"] * config.delta}
        return replace(found, model=found.model._replace(score=Score(found.model.score, derived)))

    monkeypatch.setattr(quickstart, "on", on)
    args = [*PRIVATE, "--rounds", "1", "--seeds", "1"]
    assert launch("--grid", "delta=1e-3,1e-2", *args, output=tmp_path) == 0
    for delta in ("1e-3", "1e-2"):
        found = read(tmp_path / f"delta={delta}")[1][-1]["metrics"]
        assert found["scaled"]["mean"] == pytest.approx(found["loss"]["mean"] * float(delta))


def test_points_that_diverge_are_recorded_and_the_sweep_goes_on(tmp_path, capsys):
    args = ["--grid", "noise_multiplier=1e30,1", *SMALL, "--algorithms", "dp_fed_avg", "fed_avg"]
    args += ["--rounds", "1", "--seeds", "1"]
    assert launch(*args, output=tmp_path) == 0
    shown, said = capsys.readouterr()
    assert "diverged: dp_fed_avg: the model or its test loss became NaN" in said
    assert "| 1e30 | DP-FedAvg | 0 (diverged) | - |" in shown
    summary, _ = read(tmp_path / "noise_multiplier=1e30")
    assert summary["status"].startswith("diverged: dp_fed_avg")
    assert summary["rounds"] == {"fed_avg": 1}
    assert read(tmp_path / "noise_multiplier=1")[0]["rounds"] == {"dp_fed_avg": 1, "fed_avg": 1}
    with (tmp_path / "table.csv").open() as file:
        rows = [(r["algorithm"], r["status"], r["rounds"]) for r in csv.DictReader(file)]
    assert rows[:2] == [("fed_avg", "complete", "1"), ("dp_fed_avg", "diverged", "0")]
    assert launch(*args, output=tmp_path) == 0
    assert "2 of 2 points are done" in capsys.readouterr().err
