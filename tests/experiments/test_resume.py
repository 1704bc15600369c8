"""Runs that were stopped go on to the folder that they would have left; test_checkpoint.py has a quick one."""

import importlib
import json
import shutil

import pytest
from reported import record
from resumed import (
    OFTEN,
    SMALL,
    KilledError,
    Stop,
    assert_same,
    files_of,
    launch,
    lines,
    summary,
    values_of_clients,
)

from fedpriv import experiments
from fedpriv.core.json_values import plain
from fedpriv.experiments.base import provenance
from fedpriv.experiments.commands.run import main
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import parse
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs import unfinished
from fedpriv.experiments.training.train import train_or_resume

pytestmark = pytest.mark.usefixtures("quick_to_compile", "compiled_once")

RUN = [*SMALL, "--algorithms", "fed_avg", "rand_k", "--rounds", "9", "--every", "2", "--seeds", "2"]
RUN += ["--per-client", "3"]
GRID = [(name, r) for name in ("fed_avg", "rand_k") for r in (2, 4, 6, 8, 9)]


def settings():
    """`RUN`, from Python."""
    return plain(parse(modules.load("quickstart"), "quickstart", RUN))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of the run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    assert launch(*RUN, "--output", folder) == 0
    assert [(x["algorithm"], x["round"]) for x in lines(folder)] == GRID
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of one that was killed after the third evaluation of its second algorithm."""
    folder = tmp_path_factory.mktemp("run") / "stopped"
    with pytest.raises(KilledError):
        main([*RUN, *OFTEN, "--output", str(folder)], sinks=[Stop("rand_k", 6)])
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["rand_k"]
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    """A copy of it."""
    return shutil.copytree(stopped, tmp_path / "copy")


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_folder(folder, whole):
    """Lines after the checkpoint are written again; the last one is torn."""
    for name in ("metrics.jsonl", "clients.jsonl"):
        with (folder / name).open("a") as file:
            file.write((folder / name).read_text().splitlines()[-1])
    seen = Stop(None, None)
    free = ["--checkpoint.minutes", "None", "--checkpoint.rounds", "4", "--data-dir", "elsewhere"]
    again = ["--resume", folder, "quickstart", *RUN, *free, "--output", folder]
    assert main([str(word) for word in again], sinks=[seen]) == 0
    assert_same(folder, whole)  # what changes no result may differ
    assert seen.seen == GRID  # a sink begins anew, and misses nothing
    [entry] = json.loads((folder / "summary.json").read_text())["resumed"]
    assert entry["rounds"] == {"fed_avg": 9, "rand_k": 4}


@pytest.mark.slow
def test_lines_that_are_lost_are_written_again(folder, whole):
    """All of the algorithm that goes on."""
    for name in ("metrics.jsonl", "clients.jsonl"):
        there = (folder / name).read_text().splitlines(keepends=True)
        assert len(there) == 8
        (folder / name).write_text("".join(there[:5]))
    assert launch("--resume", folder) == 0
    assert_same(folder, whole)


@pytest.mark.slow
def test_without_lines_of_a_finished_algorithm_it_is_trained_again(folder, whole):
    """Without its own, or those of its clients."""

    def finished():
        return [*unfinished.earlier(folder)[0].finished({"fed_avg": 9, "rand_k": 9}, models=True)]

    file = folder / "metrics.jsonl"
    text = file.read_text()
    assert finished() == ["fed_avg"]
    file.write_text("".join(text.splitlines(keepends=True)[:3]) + "{")
    assert finished() == []
    file.write_text(text)
    file = folder / "clients.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]) + "{\n")
    assert launch("--resume", folder) == 0
    assert_same(folder, whole)


@pytest.mark.slow
def test_a_damaged_checkpoint_falls_back(folder, whole, capsys):
    file = folder / "checkpoints" / "rand_k" / "4.npz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert launch("--resume", folder) == 0
    assert "warning: checkpoint of round 4" in capsys.readouterr().err
    assert_same(folder, whole)


@pytest.mark.slow
def test_a_run_without_checkpoints_goes_on_with_the_algorithm_it_was_at(folder, whole):
    shutil.rmtree(folder / "checkpoints")
    assert launch("--resume", folder) == 0
    assert_same(folder, whole)


METRICS = {"per_client_accuracy_mean": 1.0, "mean_update_norm": 100.0}


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_a_run_that_has_ended_shows_another_metric(metric, whole, tmp_path, capsys):
    folder = shutil.copytree(whole, tmp_path / "ended")
    kept = [lines(folder), values_of_clients(folder)]
    assert launch("--resume", folder, "--metric", metric) == 0
    assert metric[:12] in capsys.readouterr().out
    run = experiments.runs.read(folder)
    assert run.settings["metric"] == run.summary.metric == metric
    for name, history in run.history.items():
        assert run.summary.last(name)[metric].per_seed == tuple(history.metric(metric)[-1])
        assert all(0 <= x <= METRICS[metric] for x in run.summary.last(name)[metric].per_seed)
        assert (metric in run.summary.bests(name)) == (metric in run.summary.public)
    assert (folder / f"{run.summary.public.marked(metric)}.png").exists()
    assert [lines(folder), values_of_clients(folder)] == kept
    again = experiments.resume(folder, metric=None)
    assert again.ended_before
    assert summary(folder) == summary(whole)
    assert set(again.history["rand_k"].evaluations[-1].clients) == {"per_client"}
    before = (folder / "summary.json").read_bytes()
    assert launch("--resume", folder, "--metric", "height") == 2
    assert "metric: there is no 'height'; there are accuracy, loss" in capsys.readouterr().err
    assert (folder / "summary.json").read_bytes() == before


@pytest.mark.slow
def test_what_has_ended_is_left(whole, capsys):
    before = {f: f.stat().st_mtime_ns for f in whole.rglob("*")}
    assert launch("--resume", whole) == 0
    assert "has ended: complete" in capsys.readouterr().err
    assert train_or_resume("quickstart", whole, **settings()).ended_before
    assert {f: f.stat().st_mtime_ns for f in whole.rglob("*")} == before


@pytest.mark.slow
def test_train_or_resume(folder, tmp_path, whole):
    assert train_or_resume("quickstart", folder, **settings()).status == "complete"
    assert_same(folder, whole)
    new = settings() | {"rounds": 1, "algorithms": ["fed_avg"]}
    train_or_resume("quickstart", tmp_path / "new", **new)
    assert [x["round"] for x in lines(tmp_path / "new")] == [1]
    with pytest.raises(ValueError, match=r"p 0\.1 there, 0\.2 here"):
        train_or_resume("quickstart", folder, **settings() | {"p": 0.2})


@pytest.mark.slow
def test_another_machine_and_another_metric_are_recorded(folder, whole, monkeypatch, capsys):
    versions = provenance.versions
    monkeypatch.setattr(provenance, "versions", lambda: versions() | {"jax": "9.9"})
    assert launch("--resume", folder, "--metric", "loss") == 0
    error = capsys.readouterr().err
    there = versions()["jax"]
    assert (
        f"warning: resume: the run continues in another environment: versions.jax {there} there, 9.9"
        in error
    )
    [entry] = json.loads((folder / "summary.json").read_text())["resumed"]
    assert f"versions.jax {there} there, 9.9 here" in entry["differs"]
    assert lines(folder) == lines(whole)
    assert experiments.runs.read(folder).summary.metric == "loss"


@pytest.mark.parametrize(("there", "warned"), [("threefry2x32", False), ("rbg", True)])
def test_other_random_numbers_are_said(there, warned, tmp_path):
    here = {"git_revision": None, "prng": "threefry2x32", "streams": 2, "layout": {}}
    before = here | {"prng": there}
    found = unfinished.Earlier(tmp_path, "", None, {"environment": before, "resumed": []}, [])
    about, warning = unfinished.resumed(found, here, {})
    assert bool(warning) == bool(about["resumed"][0]["differs"]) == warned
    assert not warned or "prng rbg there, threefry2x32 here" in warning


def test_a_run_of_an_older_version_is_not_continued(tmp_path):
    """Its seeds give other random numbers."""
    here = {"git_revision": None, "prng": "threefry2x32", "streams": 2, "layout": {}}
    before = {name: value for name, value in here.items() if name != "streams"}
    found = unfinished.Earlier(tmp_path, "", None, {"environment": before, "resumed": []}, [])
    with pytest.raises(
        ValueError, match=r"resume: .* whose seeds give other random numbers; begin"
    ):
        unfinished.resumed(found, here, {})


@pytest.mark.slow
def test_other_data_is_refused_in_a_line(folder, monkeypatch, capsys):
    simulation = importlib.import_module("fedpriv.engine.simulate")  # the function hides it
    identity = simulation.identity

    def other(*args):
        of = identity(*args)
        return lambda rounds: of(rounds) | {"data": "another"}

    before, recorded = files_of(folder / "checkpoints"), lines(folder)
    monkeypatch.setattr(simulation, "identity", other)
    assert launch("--resume", folder) == 2
    error = capsys.readouterr().err
    assert "goes on" not in error
    assert "before its first evaluation" not in error
    assert lines(folder) == recorded
    assert values_of_clients(folder)
    assert summary(folder)["rounds"] == {"fed_avg": 9, "rand_k": 6}
    certified = summary(folder)["privacy"]["rand_k"]["certified"]["third_party"]
    assert certified["epsilon"] >= recorded[-1]["privacy"]["certified"]["epsilon"]
    assert "is of another run: data " in error
    assert "another here; give what was given there" in error
    assert "Traceback" not in error
    assert files_of(folder / "checkpoints") == before  # nothing was lost


def test_another_layout_is_refused(tmp_path):
    """As where the number of devices is left to the machine."""
    here = {"git_revision": None, "prng": "threefry2x32", "streams": 2, "layout": {"devices": 1}}
    before = here | {"layout": {"devices": 8}}
    found = unfinished.Earlier(tmp_path, "", None, {"environment": before, "resumed": []}, [])
    with pytest.raises(ValueError, match=r"layout.devices 8 there, 1 here; use as many devices"):
        unfinished.resumed(found, here, {})


@pytest.mark.parametrize("name", modules.names())
def test_settings_are_read_back_from_every_config(name):
    module = modules.load(name)
    settings = json.loads(json.dumps(plain(module.settings)))
    assert changed(module.settings, settings) == module.settings
    other = settings | {
        "rounds": settings["rounds"] + 1,
        "stop_at_epsilon": 2.5,
        "checkpoint": {"rounds": 3, "minutes": None},
    }
    other |= {"algorithms": settings["algorithms"][:1]}
    assert plain(changed(module.settings, other)) == other


@pytest.mark.slow
def test_a_budget_ends_a_resumed_run_as_any_other(tmp_path):
    """Planned rounds are fewer than the config's."""
    args = [*SMALL, "--algorithms", "rand_k", "--rounds", "9", "--every", "2"]
    args += ["--stop-at-epsilon", "8", "--noise-multiplier", "1", "--delta", "0.065"]
    with pytest.raises(KilledError):
        main([*args, *OFTEN, "--output", str(tmp_path / "r")], sinks=[Stop("rand_k", 4)])
    assert launch("--resume", tmp_path / "r") == 0
    found = summary(tmp_path / "r")
    assert 4 < found["rounds_planned"]["rand_k"] < 9
    assert found["rounds"] == found["rounds_planned"]
    assert lines(tmp_path / "r")[-1]["round"] == found["rounds"]["rand_k"]


def test_rounds_that_are_done_again_stay_spent(tmp_path):
    """A run that had reached round 40 of 200 and was stopped once more before that."""
    about = {"resumed": [{"time": "", "rounds": {}, "differs": [], "reached": {"dp_fed_avg": 40}}]}
    given = {"algorithms": ("dp_fed_avg",), "every": 5, "status": "interrupted"}
    record(tmp_path / "run", rounds=(5, 10), about=about, **given)
    summary = experiments.runs.read(tmp_path / "run").summary
    assert summary.rounds == {"dp_fed_avg": 10}
    assert summary.privacy["dp_fed_avg"].rounds == 45  # it was on its way to the next evaluation
