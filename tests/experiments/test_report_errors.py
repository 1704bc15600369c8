"""What the report refuses: wrong input in one line, whatever the files hold; the old page stays."""

import itertools
import json
from pathlib import Path

import pytest
from reported import record

from experiments.report import page
from experiments.report.__main__ import main


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
