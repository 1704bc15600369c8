"""Folders of strangers: reading one runs nothing, ends in a result or one line, and shows what a terminal would act on.

The folder of 2026 is a real one. Each of its texts becomes a hostile one, each of its files something else, in turn.
"""

import csv
import importlib
import io
import json
import os
import random
import re
import shutil
import warnings
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from recorded import OLD as OURS
from tiers import every

from fedpriv import experiments
from fedpriv.experiments import commands
from fedpriv.experiments.base.command import explained
from fedpriv.experiments.base.formats import markdown_table
from fedpriv.experiments.runs.run_folder import read, runs_of
from fedpriv.experiments.tables import plots
from fedpriv.experiments.tables.frame import as_csv
from fedpriv.experiments.tables.report import charts

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m",
    "a\r\nb\x0b\u2028c",
    "\u202eevil\u2066",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>\" onload='x' &amp; ]]>",
    r"\input{/etc/passwd} 5% $x_{1}$ #&~^ | \| x",
    "../../../etc/passwd",
    "x" * 3000,
    "",
    "--help",
)
FILES = ("run/config.json", "run/metrics.jsonl", "run/summary.json", "sweep.json", "audit.json")
compare, uploads, privacy = (
    importlib.import_module(f"fedpriv.experiments.commands.{name}")
    for name in ("compare", "uploads", "privacy")
)


@pytest.fixture(autouse=True)
def pictures(request, monkeypatch):
    """Drawn, and not saved, but where a test asks for it."""
    if getattr(request, "param", False):
        return True

    def unsaved(draw, key):
        draw(Figure().subplots())
        return "<svg viewBox='0'/>"

    monkeypatch.setattr(charts, "_svg", unsaved)
    monkeypatch.setattr(plots, "save", lambda figure, paths: None)
    return False


@pytest.fixture
def folder(tmp_path):
    """A sweep's folder with one run, and an audit of it."""
    shutil.copytree(OURS, tmp_path / "all" / "run")
    points = {"points": [{"folder": "run", "values": {}, "settings": {}}]}
    (tmp_path / "all" / "sweep.json").write_text(json.dumps(points))
    (tmp_path / "all" / "audit.json").write_text(json.dumps(audited()))
    return tmp_path / "all"


def audited():
    """What an audit by many runs of the folder's own algorithm leaves."""
    run = read(OURS)
    certified = json.loads((OURS / "summary.json").read_text())["privacy"]["rand_k"]["certified"]
    rate = {"rate": 0.1, "low": 0.05, "high": 0.2}
    seen = [{"false_positives": rate, "false_negatives": rate}]
    row = {"algorithm": "rand_k", "canary": "worst_case", "runs": 100, "views": ["server"]}
    row |= {"certified": certified["server"], "audited": {"errors": {"seen": seen}}}
    return {"config": run.config, "many_runs": [row]}


def readers(folder, out):
    """Name -> what reads the folder, as a command or as a function."""
    every = str(folder), str(folder / "run")
    audits = str(folder)
    files = [str(out / f"t.{kind}") for kind in ("tex", "csv", "md", "pdf", "svg")]
    return {
        "compare": lambda: compare.main([every[0], "--best", "--output", *files]),
        "above": lambda: compare.main([every[1], "--above", "rand_k"]),
        "report": lambda: commands.report.main(
            [every[0], "--audits", audits, "--output", str(out / "r.html")]
        ),
        "uploads": lambda: uploads.main([every[1], "--accuracy", "0.1"]),
        "privacy": lambda: privacy.main([every[1]]),
        "table": lambda: _called(lambda: experiments.table(every[0])),
        "figure": lambda: _called(lambda: experiments.figure(every[0], out / "f.png")),
        "page": lambda: _called(lambda: experiments.report(every[0], out / "p.html")),
        "cost": lambda: _called(lambda: experiments.privacy(every[1])),
        "run": lambda: _called(lambda: [(r.history, r.certificates) for r in runs_of(every[0])[0]]),
    }


def _called(function):
    """The exit code that a command would have."""
    try:
        function()
    except Exception as error:
        said, code = explained(error)
        assert said.isprintable()
        return code
    return 0


def check(folder, out, capsys, names=None):
    """Every reader, or those of these names, gives a result or one line."""
    for name, reader in readers(folder, out).items():
        if names and name not in names:
            continue
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fonts, on glyphs
            assert reader() in (0, 2), name
        shown = capsys.readouterr()
        assert all(line.isprintable() for line in shown.out.split("\n")), name
        assert all(line.isprintable() for line in shown.err.split("\n")), name
        assert shown.err.count("\n") <= 1, (name, shown.err)
    for page in out.glob("*.html"):
        text = page.read_text()
        assert "<script" not in text
        assert " onload='" not in text
        assert not set(text) & set("\x1b\x07\x9b\u202e\u2066\x0b")
        page.unlink()


def test_every_reader_reads_the_folder(folder, tmp_path, capsys):
    for name, reader in readers(folder, tmp_path).items():
        refused = name in ("uploads", "privacy", "cost")  # no exchanges; a folder is no config
        assert reader() == (2 if refused else 0), (name, capsys.readouterr().err)
    assert "is a run folder, from which no code is run" in capsys.readouterr().err


MARK = "import pathlib\npathlib.Path({!r}).touch()\n"


@every("kind", ["file", "module", "beside", "relative"], kind=lambda kind: kind == "file")
def test_reading_runs_no_code_that_a_folder_names(folder, tmp_path, capsys, monkeypatch, kind):
    marker = tmp_path / "ran"
    code = MARK.format(str(marker))
    where = {"file": folder / "run" / "own.py", "beside": folder / "own.py"}.get(kind)
    where = where or tmp_path / "importable" / "own_module.py"
    where.parent.mkdir(exist_ok=True)
    where.write_text(code)
    monkeypatch.syspath_prepend(str(where.parent))
    name = str(where) if kind in ("file", "beside") else "own_module"
    if kind == "relative":
        name = "own_module.py"
        monkeypatch.chdir(where.parent)
    for file in ("config.json", "summary.json"):
        path = folder / "run" / file
        held = json.loads(path.read_text())
        held["settings"] |= {"config": name, "model": name, "record": [name]}
        path.write_text(json.dumps(held | {"config": name, "code": {name: "0"}}))
    for file in (folder / "run" / "code", folder / "code"):
        file.mkdir()
        (file / "own.py").write_text(code)
    check(folder, tmp_path, capsys)
    assert not marker.exists()
    if kind == "file":  # the law can fail: going on with a run does run it, and says so before
        with pytest.raises(ValueError, match="resume: cannot continue"):
            experiments.resume(folder / "run", progress=False)
        assert marker.exists()
        assert f"runs the code in {name}" in capsys.readouterr().err


def test_a_page_says_what_trains_an_own_config_again(folder, tmp_path):
    """Without running it."""
    path = folder / "run" / "config.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"config": "/somewhere/own.py"}))
    text = experiments.report(folder / "run", tmp_path / "p.html").read_text()
    assert "fedpriv run /somewhere/own.py --rounds 4" in text
    assert "--local.learning-rate 0.1" in text


def replaced(held, at, text):
    """`held` with its text number `at` (keys included) replaced, and how many there are."""
    count = -1

    def walk(value):
        nonlocal count
        if isinstance(value, dict):
            found = {}
            for key, each in value.items():
                count += 1
                found[text if count == at else key] = walk(each)
            return found
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, str):
            count += 1
            return text if count == at else value
        return value

    return walk(held), count + 1


@pytest.mark.parametrize(
    "pictures", [False, pytest.param(True, marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("file", FILES)
def test_hostile_texts_are_shown_or_refused(folder, tmp_path, capsys, file, pictures):
    """Some of the texts, drawn with a fixed seed, each by some hostile one."""
    path, rng = folder / file, random.Random(file)
    lines = path.read_text().splitlines() if file.endswith("jsonl") else [path.read_text()]
    whole = [json.loads(line) for line in lines]
    _, count = replaced(whole, -1, "")
    for at in rng.sample(range(count), min(count, 2)):
        made, _ = replaced(whole, at, rng.choice(HOSTILE))
        path.write_text("".join(json.dumps(each) + "\n" for each in made))
        check(folder, tmp_path, capsys, rng.sample([*readers(folder, tmp_path)], 2))


KINDS = {
    "folder": Path.mkdir,
    "empty": Path.touch,
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "list": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "lost": lambda path: path.symlink_to("nowhere"),
}


@every("kind", KINDS, kind=lambda make: make is os.mkfifo)
def test_another_thing_in_the_place_of_a_file_gets_one_line(folder, tmp_path, capsys, kind):
    for file in FILES:
        path = folder / file
        kept = path.read_bytes()
        path.unlink()
        KINDS[kind](path)
        reader = "report" if file == "audit.json" else "compare"
        check(folder, tmp_path, capsys, (reader, "table", "cost"))
        path.rmdir() if kind == "folder" else path.unlink()
        path.write_bytes(kept)


def test_a_spreadsheet_computes_nothing_of_a_folder(folder):
    """Texts that begin as a formula does are quoted, numbers are as they were."""
    before = experiments.table(folder)
    for name in ("summary.json", "metrics.jsonl"):
        path = folder / "run" / name
        path.write_text(path.read_text().replace('"rand_k"', '"@rand_k"'))
    made = experiments.table(folder).assign(**{"=x": -1.5, "y": ["-2.5", "-2.5 + 1"]})
    cells = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert [row["algorithm"] for row in cells] == ["dp_fed_avg", "'@rand_k"]
    assert [row["'=x"] for row in cells] == ["-1.5", "-1.5"]
    assert [row["y"] for row in cells] == ["-2.5", "'-2.5 + 1"]
    assert as_csv(before) == before.to_csv(index=False)


def test_a_table_stays_whole_whatever_its_texts():
    """In GFM a bar ends a cell but for one behind an odd number of backslashes."""
    rows = [["a", "b"], ["x|y", "p\\|q"], ["1\n2", "\x1b[0m"]]
    head, rule, *lines = markdown_table(rows, ["one\ntwo", "\u202ethree"]).splitlines()
    assert lines[-2:] == ["- one two", r"- \u202ethree"]
    for line in (head, rule, *lines[:2]):
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert lines[1] == r"| 1 2 | \x1b[0m |"


def test_all_that_commands_print_goes_through_one_place():
    """But what measures speed, which reads no folder."""
    ours = Path(experiments.__file__).parent
    found = [
        file.relative_to(ours).as_posix()
        for file in ours.rglob("*.py")
        if re.search(r"(?<![\w.])print\(", file.read_text())
    ]
    assert [name for name in found if not name.startswith("speed/")] == ["base/terminal.py"]
