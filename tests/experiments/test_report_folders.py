"""What the report makes of runs that have not ended well, and of folders of runs."""

import json

import pytest
from reported import edit, record, tables, text, tree, with_class

from experiments.report.__main__ import main
from experiments.report.folders import read, read_all

RESULTS = "The last state of each"


def rows(folder):
    assert main([str(folder)]) == 0
    head, *found = tables(tree(folder / "report.html"))[RESULTS]
    return {row[0]: dict(zip(head, row, strict=True)) for row in found}


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(tmp_path):
    histories = record(tmp_path / "run", status=None)
    found = rows(tmp_path / "run")["DP-FedAvg"]
    history = histories["dp_fed_avg"]
    assert found["status"] == "running, or ended from outside (no summary.json)"
    assert found["rounds"] == "20"
    final, best = history.accuracy[-1], history.accuracy.max(0)
    for cell, each in (("final", final), ("best", best)):
        shown = [float(x) for x in found[f"{cell} accuracy (%)"].split(" ± ")]
        assert shown == pytest.approx([100 * each.mean(), 100 * each.std(ddof=1)], abs=0.0051)
    assert float(found["rounds/s"]) == pytest.approx(20 * 3 / 0.75, rel=1e-2)
    root = tree(tmp_path / "run" / "report.html")
    assert "server_secagg and server: certified when the run ends" in text(root)
    assert "Versions and device are recorded when a run ends." in text(root)
    assert len(with_class(root, "series")) == 4 + 4 + 3 + 4 + 4 + 3 + 4 + 4


def test_a_line_that_was_cut_off_is_left_out_and_said(tmp_path):
    record(tmp_path / "run", status=None)
    path = tmp_path / "run" / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-40])
    run = read(tmp_path / "run")
    assert run.remarks == ["the last line of metrics.jsonl (line 12) is cut off; left out"]
    assert [e.round for e in run.evaluations["top_k"]] == [5, 10]
    assert main([str(tmp_path / "run")]) == 0
    assert f"run: {run.remarks[0]}" in text(tree(tmp_path / "run" / "report.html"))
    path.write_text(whole.rstrip("\n"))  # only its newline is missing
    run = read(tmp_path / "run")
    assert run.remarks == []
    assert [e.round for e in run.evaluations["top_k"]] == [5, 10, 20]


def test_an_evaluation_that_was_made_again_counts_once(tmp_path):
    record(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    with path.open("a") as file:
        file.write(json.dumps(line | {"seconds": 7.0}) + "\n")
    evaluations = read(tmp_path / "run").evaluations["fed_avg"]
    assert [(e.round, e.seconds) for e in evaluations] == [(5, 7.0), (10, 0.25), (20, 0.25)]


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ("interrupted", {"FedAvg": "interrupted", "Fed-SMP top_k": "interrupted"}),
        (
            "diverged: top_k: the model became NaN in round 21 (seed 0); likely causes: <x>",
            {
                "FedAvg": "diverged",
                "Fed-SMP top_k": "diverged: the model became NaN in round 21 (seed 0)",
            },
        ),
    ],
)
def test_runs_that_did_not_end_well_say_so(tmp_path, status, cells):
    record(tmp_path / "run", status=status)
    found = rows(tmp_path / "run")
    assert {name: found[name]["status"] for name in cells} == cells
    assert found["FedAvg"]["rounds"] == "20 of 200"
    page = tree(tmp_path / "run" / "report.html")
    assert f"run: {status}" in text(page)
    # What was trained after the last evaluation is accounted for, too.
    assert "Epsilons of 25 rounds" in tables(page)


def test_algorithms_that_were_never_evaluated_have_a_line(tmp_path):
    record(tmp_path / "run", status="interrupted", algorithms=("fed_avg",))
    for name in ("config.json", "summary.json"):
        settings = json.loads((tmp_path / "run" / name).read_text())["settings"]
        edit(tmp_path / "run" / name, settings=settings | {"algorithms": ["fed_avg", "top_k"]})
    assert rows(tmp_path / "run")["Fed-SMP top_k"]["status"] == "not evaluated (interrupted)"


def test_a_run_without_an_evaluation(tmp_path):
    record(tmp_path / "run", status=None, rounds=())
    assert rows(tmp_path / "run")["FedAvg"]["status"] == "not evaluated yet"
    said = text(tree(tmp_path / "run" / "report.html"))
    assert "Nothing was evaluated yet." in said
    assert "no metrics.jsonl" in said


def test_numbers_that_are_not_finite_are_shown_as_such(tmp_path):
    record(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(x) for x in path.read_text().splitlines()]
    lines[-1]["loss"] = {"mean": "nan", "std": "nan", "per_seed": ["nan", 1.0, 2.0]}
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert rows(tmp_path / "run")["Fed-SMP top_k"]["final loss"].startswith("nan")
    assert "1 values are not finite and left out." in text(tree(tmp_path / "run" / "report.html"))


def sweep(folder, names):
    for i, name in enumerate(names):
        record(folder / name, rounds=(5, 10), seeds=2, seed=i)
    points = [{"folder": n, "values": {}, "settings": {}} for n in [*names, "p=4"]]
    (folder / "sweep.json").write_text(json.dumps({"points": points}))


def test_the_folder_of_a_sweep_is_all_its_points_in_their_order(tmp_path):
    sweep(tmp_path / "sweep", ["p=2", "p=10", "p=1"])
    assert main([str(tmp_path / "sweep")]) == 0
    root = tree(tmp_path / "sweep" / "report.html")
    names = [row[0] for row in tables(root)["Runs"][1:]]
    assert names == ["p=2", "p=10", "p=1"]
    assert "1 of 4 points of the sweep are not begun" in text(root)
    (tmp_path / "sweep" / "sweep.json").unlink()
    runs, remarks = read_all([tmp_path / "sweep"])
    assert [run.name for run in runs] == ["p=1", "p=2", "p=10"]
    assert remarks == []


def test_each_run_once_and_by_a_name_of_its_own(tmp_path):
    for above in ("x", "y"):
        record(tmp_path / above / "run", rounds=(5,), seeds=1)
    record(tmp_path / "z", rounds=(5,), seeds=1)
    given = [tmp_path / "x", tmp_path / "x" / "run", tmp_path / "y" / "run", tmp_path / "z"]
    runs, _ = read_all(given)
    assert [run.name for run in runs] == ["x/run", "y/run", "z"]


def test_the_page_is_in_the_run_or_where_one_is(tmp_path, monkeypatch, capsys):
    for name in "ab":
        record(tmp_path / name, rounds=(5,), seeds=1)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert main([str(tmp_path / "a")]) == 0
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert main([str(tmp_path / "a"), "--output", "given.html"]) == 0
    said = capsys.readouterr().out.split()
    assert said == [str(tmp_path / "a" / "report.html"), "report.html", "given.html"]
    assert {p.name for p in here.iterdir()} == {"report.html", "given.html"}


def test_a_run_that_went_on_after_a_stop_says_so(tmp_path):
    """Entries that config.json has where runs can be resumed."""
    record(tmp_path / "run", status=None)
    other = {"versions": {"jax": "1.2.3"}, "device": {"kind": "abacus"}, "git_revision": None}
    again = {"time": "2026-01-02T03:04:05Z", "differs": ["jax 1 there, 2 here"]}
    edit(tmp_path / "run" / "config.json", environment=other, resumed=[again])
    assert main([str(tmp_path / "run")]) == 0
    root = tree(tmp_path / "run" / "report.html")
    said = "run: went on after a stop (2026-01-02T03:04:05Z), elsewhere: jax 1 there, 2 here"
    assert said in text(root)
    assert dict(tables(root)["Versions and device"][1:])["device kind"] == "abacus"
