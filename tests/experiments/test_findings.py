"""The short forms of the papers' findings: what they are, when they pass, and what the command says of it."""

import re
from pathlib import Path

import pytest

from fedpriv.experiments.commands import reproduce
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.papers.reproduce import reproduce as room
from fedpriv.experiments.papers.reproduce.catalogue import PAPERS
from fedpriv.experiments.papers.reproduce.findings import FINDINGS, HERE, PAPER
from fedpriv.experiments.papers.reproduce.item import Cell, Computation, Item, Scale, Value
from fedpriv.experiments.papers.reproduce.table import Filled
from fedpriv.experiments.papers.reproduce.work import settings_of

ARTIFACT = (Path(__file__).parents[2] / "ARTIFACT.md").read_text()
CELLS = [(paper, cell) for paper, item in FINDINGS.items() for cell in item.cells]


def test_every_paper_has_findings_of_its_own_and_of_ours():
    assert list(FINDINGS) == list(PAPERS)
    for item in FINDINGS.values():
        said = [cell.row.startswith(PAPER) for cell in item.cells]
        assert any(said)
        assert all(cell.claim for cell in item.cells)
        assert all(cell.row.startswith((PAPER, HERE)) for cell in item.cells)


@pytest.mark.parametrize("paper", FINDINGS)
def test_its_trainings_are_ones_that_the_launcher_takes(paper):
    for training in FINDINGS[paper].trainings:
        module = modules.load(training.config)
        settings = changed(module.settings, settings_of(training, Scale(), None))
        assert settings.algorithms == (training.algorithm,)
        assert settings.seeds >= 3


def test_the_artifact_lists_every_finding_with_its_criterion():
    rows = re.findall(r"^\| (\w+) \| (.*?) \| .*? \| (.*?) \|$", ARTIFACT, re.MULTILINE)
    listed = [row for row in rows if row[0] in FINDINGS]
    assert listed == [(paper, cell.row, cell.published) for paper, cell in CELLS]


@pytest.mark.parametrize(
    ("criterion", "value", "passes"),
    [
        ("above 0", Value(1.0, 0.5), True),
        ("above 0", Value(1.0, 1.5), False),
        ("above 0", Value(-1.0, 0.5), False),
        ("within 3", Value(2.0, 0.9), True),
        ("within 3", Value(2.0, 1.1), False),
        ("below -10", Value(-10.1), True),
        ("above 0", None, False),
    ],
)
def test_a_finding_passes_if_a_standard_deviation_changes_nothing(criterion, value, passes):
    cell = Cell("here: it is so", "points", criterion, (), lambda: value)
    assert room.passes(Filled(cell, value, "", True)) is passes


def missing(scale, data_dir):
    raise FileNotFoundError("mnist: not there")


@pytest.mark.parametrize(
    ("read", "verdict", "code"),
    [(lambda: Value(1.0), "passes", 0), (lambda: Value(-1.0), "does not pass", 1)],
)
def test_the_command_says_what_passes_and_its_exit_code(
    read, verdict, code, monkeypatch, tmp_path, capsys
):
    cells = [Cell("here: one is above 0", "points", "above 0", (), read)]
    item = Item("wavelet", "findings", "made up", cells)
    monkeypatch.setattr(room, "FINDINGS", {"wavelet": item})
    assert reproduce.main(["--findings", "--output", str(tmp_path)]) == code
    row = capsys.readouterr().out.splitlines()[2]
    assert re.split(" {2,}", row)[:2] == ["wavelet", verdict]


def test_where_data_are_missing_the_others_are_still_checked(monkeypatch, tmp_path, capsys):
    work = Computation("mnist", missing)
    without = Item("mspdq", "findings", "a", [Cell("here: a", "x", "above 0", (work,), Value)])
    whole = Item(
        "wavelet", "findings", "b", [Cell("here: b", "x", "above 0", (), lambda: Value(1))]
    )
    both = {"mspdq": without, "wavelet": whole}
    monkeypatch.setattr(room, "FINDINGS", both)
    assert reproduce.main(["--findings", "--output", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "error: mspdq: mnist: not there" in err
    assert [re.split(" {2,}", line)[1] for line in out.splitlines()[2:4]] == ["not done", "passes"]
