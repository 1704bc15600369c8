"""experiments.reproduce given something wrong, or something that fails: one line, a remedy."""

import dataclasses

import jax
import pytest
from reproduced import COMPUTED, ITEMS, TABLE, launch, rows, training

from configs import quickstart
from fedpriv.experiments.papers.reproduce.catalogue import PAPERS
from fedpriv.experiments.papers.reproduce.item import Cell, Training
from fedpriv.experiments.papers.reproduce.reading import best_accuracy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    assert jax.device_count() == 2  # starts JAX, before the quickstart asks for one device
    monkeypatch.setitem(PAPERS, "tiny", ITEMS)


def test_a_training_that_diverges_is_no_number(tmp_path, monkeypatch, capsys):
    hot = training("fed_avg", **{"local.learning_rate": 1e30})
    cells = (Cell("hot", "best (%)", "90", (hot,), best_accuracy), *COMPUTED.cells)
    monkeypatch.setitem(PAPERS, "tiny", (dataclasses.replace(TABLE, cells=cells),))
    assert launch("table1", "--scale", "0.5", output=tmp_path) == 1
    assert "diverged: fed_avg" in capsys.readouterr().err
    found = rows(tmp_path / "tiny" / "table1-scale-0.5")
    assert found["hot", "best (%)"]["measured"] == "diverged"
    assert found["hot", "best (%)"]["difference"] == ""
    assert found["all", "found"]["measured"] == "4"  # the others are done all the same


def test_interrupted_while_data_is_read(tmp_path, monkeypatch, capsys):
    """Before the launcher trains, so that nobody but this command can catch it."""

    def interrupting(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(quickstart, "load", interrupting)
    assert launch("table1", output=tmp_path) == 130
    shown, said = capsys.readouterr()
    assert said.splitlines()[-1] == "interrupted; the same command goes on"
    assert shown == ""
    assert "Trained so far: 0 of 2" in (tmp_path / "tiny" / "table1" / "table.md").read_text()


def test_an_illustration_has_nothing_to_measure(tmp_path, capsys):
    assert launch("fig3", output=tmp_path) == 0
    assert "an illustration, nothing to measure" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_missing_data_ends_in_one_line(tmp_path, monkeypatch, capsys):
    absent = Training("fed_smp_fashion_mnist", "fed_avg", rounds=1)
    cells = (Cell("absent", "best (%)", "", (absent,), best_accuracy),)
    monkeypatch.setitem(PAPERS, "tiny", (dataclasses.replace(TABLE, cells=cells),))
    assert launch("table1", "--data-dir", tmp_path / "none", output=tmp_path) == 2
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert last_line.startswith("error: dataset fashion_mnist is not in")
