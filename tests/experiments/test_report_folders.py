"""What the report makes of runs that have not ended well, and of folders of runs."""

import json
import shutil
from pathlib import Path

import pytest
from recorded import made
from reported import edit, record, tables, text, tree

from fedpriv import experiments
from fedpriv.experiments.commands import report as command
from fedpriv.experiments.runs.run_folder import read, read_all
from fedpriv.experiments.runs.run_names import names
from fedpriv.experiments.tables.report import charts

RESULTS = "The last state of each"


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch):
    monkeypatch.setattr(charts, "_svg", lambda draw, key: "<svg viewBox='0'/>")


def rows(folder):
    assert command.main([str(folder), "--best"]) == 0
    head, *found = tables(tree(folder / "report.html"))[RESULTS]
    return {row[0]: dict(zip(head, row, strict=True)) for row in found}


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(tmp_path):
    """Cut off in its last line, begun on another machine and stopped once."""
    history = made("going on").histories["dp_fed_avg"]
    shutil.copytree(made("going on").path, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text(path.read_text()[:-40])
    other = {"versions": {"jax": "1.2.3"}, "device": {"kind": "abacus"}, "git_revision": None}
    again = {"time": "2026-01-02T03:04:05Z", "differs": ["jax 1 there, 2 here"]}
    edit(tmp_path / "run" / "config.json", environment=other, resumed=[again])
    found = rows(tmp_path / "run")["DP-FedAvg"]
    assert found["status"] == "interrupted: no process writes to it (no summary.json)"
    assert found["rounds"] == "20"
    final, best = history.accuracy[-1], history.accuracy.max(0)
    for which, each in (("", final), ("best ", best)):
        shown = [float(x) for x in found[f"{which}accuracy (%)"].split(" ± ")]
        assert shown == pytest.approx([100 * each.mean(), 100 * each.std(ddof=1)], abs=0.0051)
    assert float(found["rounds/s"]) == pytest.approx(20 * 3 / 0.75, rel=1e-2)
    root = tree(tmp_path / "run" / "report.html")
    said = text(root)
    assert "server and server_secagg: certified when the run ends" in said
    assert "run: metrics.jsonl is cut off in line 12, which is left out" in said
    assert "run: went on after a stop (2026-01-02T03:04:05Z), elsewhere: jax 1 there" in said
    assert dict(tables(root)["Versions and device"][1:])["device kind"] == "abacus"


DIVERGED = "diverged: top_k: the model became NaN in round 21 (seed 0)"


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ("interrupted", {"FedAvg": "interrupted", "Fed-SMP top_k": "interrupted"}),
        (
            f"{DIVERGED}; likely causes: <x>",
            {"FedAvg": "diverged", "Fed-SMP top_k": DIVERGED.replace(" top_k:", "")},
        ),
    ],
)
def test_runs_that_did_not_end_well_say_so(tmp_path, status, cells):
    """One of the algorithms was not even begun."""
    folder = shutil.copytree(made("interrupted").path, tmp_path / "run")
    settings = read(folder).settings
    settings["algorithms"] = [*settings["algorithms"], "fed_avg_rand_k"]
    edit(folder / "config.json", settings=settings)
    edit(folder / "summary.json", settings=settings, status=status)
    found = rows(folder)
    assert {name: found[name]["status"] for name in cells} == cells
    assert found["FedAvg-rand_k"]["status"] == f"not evaluated ({status.partition(':')[0]})"
    assert found["FedAvg"]["rounds"] == "20 of 200"
    page = tree(folder / "report.html")
    assert f"run: {status}" in text(page)
    # What was trained after the last evaluation is accounted for, too.
    assert "Epsilons of 25 rounds" in tables(page)


def test_a_run_without_an_evaluation(tmp_path):
    record(tmp_path / "run", status=None, rounds=())
    assert rows(tmp_path / "run")["FedAvg"]["status"] == "not evaluated yet"
    said = text(tree(tmp_path / "run" / "report.html"))
    assert "Nothing was evaluated yet." in said
    assert "no metrics.jsonl" in said
    assert "Versions and device are recorded when a run ends." in said


@pytest.fixture
def small():
    return made("one seed").path


def test_the_folder_of_a_sweep_is_all_its_points_in_their_order(small, tmp_path):
    points = {"p=2": 0.2, "p=10": 0.1, "p=1": 0.01}
    for name, p in points.items():
        shutil.copytree(small, tmp_path / name)
        settings = read(small).settings | {"p": p}
        edit(tmp_path / name / "config.json", settings=settings)
        edit(tmp_path / name / "summary.json", settings=settings)
    wanted = [{"folder": name} for name in [*points, "p=4"]]
    (tmp_path / "sweep.json").write_text(json.dumps({"points": wanted}))
    assert command.main([str(tmp_path)]) == 0
    root = tree(tmp_path / "report.html")
    assert [row[0] for row in tables(root)["Runs"][1:]] == ["p = 0.2", "p = 0.1", "p = 0.01"]
    assert "1 of 4 points of the sweep are not begun" in text(root)
    (tmp_path / "sweep.json").unlink()
    runs, remarks = read_all([tmp_path])
    assert [run.path.name for run in runs] == ["p=1", "p=2", "p=10"]
    assert remarks == []


def test_each_run_once_and_by_a_name_of_its_own(small, tmp_path):
    for folder in ("x/run", "y/run", "z"):
        shutil.copytree(small, tmp_path / folder)
    given = [tmp_path / "x", tmp_path / "x" / "run", tmp_path / "y" / "run", tmp_path / "z"]
    runs, _ = read_all(given)
    assert names(runs) == ["x/run", "y/run", "z"]


def test_the_page_is_in_the_run_or_where_one_is(small, tmp_path, monkeypatch, capsys):
    for name in "ab":
        shutil.copytree(small, tmp_path / name)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert command.main([str(tmp_path / "a")]) == 0
    assert command.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert command.main([str(tmp_path / "a"), "--output", "given.html"]) == 0
    said = capsys.readouterr().out.split()
    assert said == [str(tmp_path / "a" / "report.html"), "report.html", "given.html"]
    assert {p.name for p in here.iterdir()} == {"report.html", "given.html"}
    for runs in (tmp_path / "a", read(tmp_path / "a")):
        assert experiments.report(runs) == tmp_path / "a" / "report.html"
    assert experiments.report([tmp_path / "a", tmp_path / "b"]) == Path("report.html")


def test_a_page_that_cannot_be_written_leaves_what_is_there(small, tmp_path, monkeypatch, capsys):
    shutil.copytree(small, tmp_path / "run")
    output = tmp_path / "page.html"
    output.write_text("old")

    def full(self, *args, **kwargs):
        with self.open("w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert command.main([str(tmp_path / "run"), "--output", str(output)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert output.read_text() == "old"
    assert {p.name for p in tmp_path.iterdir()} == {"run", "page.html"}
