"""What the report makes of runs that have not ended well, of folders of runs, and of wrong input."""

import itertools
import json
from pathlib import Path

import pytest
from reported import edit, record, tables, text, tree, with_class

from experiments.report import page
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


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch, capsys):
    record(tmp_path / "run", rounds=(5,), seeds=1)
    output = tmp_path / "out" / "page.html"
    output.parent.mkdir()
    output.write_text("old")

    def full(self, *args, **kwargs):
        with self.open("w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main([str(tmp_path / "run"), "--output", str(output)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert output.read_text() == "old"
    assert list(output.parent.iterdir()) == [output]


def broken(name, content):
    def make(base):
        record(base / "run", rounds=(5,), seeds=1)
        path = base / "run" / name
        if callable(content):
            path.write_bytes(content(path.read_bytes()))
        else:
            path.write_text(content)
        return [str(base / "run")]

    return make


def without(key):
    def change(text):
        kept = json.loads(text)
        del kept[key]
        return json.dumps(kept).encode()

    return change


WRONG = {
    "no folder": (lambda base: [str(base / "none")], "none is no folder; give a run folder"),
    "a file": (lambda base: [__file__], "is no folder; give a run folder"),
    "empty": (lambda base: [str(base)], "holds no run; give a run folder"),
    "nothing": (lambda base: [], "arguments are required: RUN"),
    "unknown option": (lambda base: ["x", "--picture", "y"], "unrecognized arguments"),
    "config": (broken("config.json", "{"), "config.json is damaged (Expecting"),
    "config of another kind": (broken("config.json", "[]"), "config.json is damaged"),
    "config without settings": (broken("config.json", without("settings")), "lacks 'settings'"),
    "not UTF-8": (broken("config.json", lambda _: b"\xff\xfe"), "damaged (not UTF-8)"),
    "summary": (broken("summary.json", lambda x: x[:99]), "move it away to report what metrics"),
    "summary without": (
        broken("summary.json", without("privacy")),
        "lacks 'privacy'; move it away",
    ),
    "summary empty": (broken("summary.json", ""), "summary.json is damaged"),
    "line": (
        broken("metrics.jsonl", lambda x: b"{\n" + x),
        "metrics.jsonl, line 1, is damaged (Expecting",
    ),
    "line of another kind": (broken("metrics.jsonl", "3\n"), "line 1, is damaged"),
    "line of another number of seeds": (
        broken("metrics.jsonl", lambda x: x + x.splitlines()[0].replace(b"[", b"[0.5, ") + b"\n"),
        "metrics.jsonl, line 5, has another number of seeds",
    ),
    "line without": (
        broken("metrics.jsonl", '{"algorithm": "top_k", "privacy": {}}\n'),
        "metrics.jsonl, line 1, lacks 'round'; take the line out",
    ),
}


@pytest.mark.parametrize("which", WRONG)
def test_wrong_input_is_refused_in_one_line(which, tmp_path, capsys):
    make, said = WRONG[which]
    try:
        code = main(make(tmp_path))
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.html"))


def leaves(tree, path=()):
    """Paths to everything in a JSON value; of a list to its first entry."""
    yield path
    inside = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree[:1])
        if isinstance(tree, list)
        else ()
    )
    for key, value in inside:
        yield from leaves(value, (*path, key))


def changed(text, path, value):
    tree = json.loads(text)
    if not path:
        return json.dumps(value)
    *above, last = path
    at = tree
    for key in above:
        at = at[key]
    at[last] = value
    return json.dumps(tree)


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.jsonl"])
def test_whatever_a_file_holds_there_is_a_page_or_one_line(name, tmp_path, capsys, monkeypatch):
    """Every field in turn replaced by something else."""
    monkeypatch.setattr(page, "command", lambda run: None)  # slow, and tested elsewhere
    record(tmp_path / "run", rounds=(5, 10), seeds=2, algorithms=("top_k",))
    if name == "metrics.jsonl":
        (tmp_path / "run" / "summary.json").unlink()
    path = tmp_path / "run" / name
    *before, last = path.read_text().splitlines() if name == "metrics.jsonl" else [path.read_text()]
    others = itertools.cycle([None, "x", [], {}, -1, 1e400, True, [1, 2, 3], {"a": 1}])
    codes = []
    for at in leaves(json.loads(last)):
        path.write_text("\n".join([*before, changed(last, at, next(others)), ""]))
        codes.append(main([str(tmp_path / "run")]))
        error = capsys.readouterr().err
        assert error.count("\n") == (1 if codes[-1] else 0)
        assert str(path) in error or not codes[-1]
    assert {0, 2} == set(codes)


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


@pytest.mark.parametrize("output", [".", "none/page.html"])
def test_an_output_that_cannot_be(output, tmp_path, capsys):
    record(tmp_path / "run", rounds=(5,), seeds=1)
    assert main([str(tmp_path / "run"), "--output", str(tmp_path / output)]) == 2
    error = capsys.readouterr().err
    assert "--output: cannot write" in error
    assert error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_sweep_that_is_damaged(tmp_path, capsys):
    record(tmp_path / "p=1", rounds=(5,), seeds=1)
    (tmp_path / "sweep.json").write_text("{}")
    assert main([str(tmp_path)]) == 2
    assert "sweep.json lacks 'points'; restore it" in capsys.readouterr().err
