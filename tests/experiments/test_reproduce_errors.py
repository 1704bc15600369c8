"""experiments.reproduce given something wrong, or something that fails: one line, a remedy."""

import dataclasses

import jax
import pytest
from commands import reproduce
from reproduced import COMPUTED, ITEMS, TABLE, launch, rows, training

from configs import quickstart
from experiments.papers.reproduce import reproduce as room
from experiments.papers.reproduce.catalogue import PAPERS
from experiments.papers.reproduce.item import Cell, Training
from experiments.papers.reproduce.reading import best_accuracy

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    assert jax.device_count() == 2  # starts JAX, before the quickstart asks for one device
    monkeypatch.setitem(PAPERS, "tiny", ITEMS)


def test_no_row_has_the_words(tmp_path, capsys):
    assert launch("table1", "--only", "fed_smp", output=tmp_path) == 2
    assert "only: nothing has the words 'fed_smp'" in capsys.readouterr().err


@pytest.mark.slow
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


def test_not_under_srun(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(room, "slurm_step", lambda: True)
    assert launch("table1", output=tmp_path) == 2
    assert (
        capsys.readouterr().err == "error: reproduce: runs in one process; start it without srun\n"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "paper: none given; choose one of "),
        (["fed_sgd", "table1"], "paper: there is no 'fed_sgd'; choose one of "),
        (["tiny"], "item: none given; choose one of table1, fig1, fig2, fig3"),
        (["tiny", "table9"], "item: tiny has no 'table9'; choose one of table1, "),
        (["tiny", "table1", "--scale", "0"], "--scale: 0.0; give"),
        (["tiny", "table1", "--scale", "1.5"], "--scale: 1.5; give"),
        (["tiny", "table1", "--scale", "nan"], "--scale: nan; give"),
        (["tiny", "table1", "--scale", "half"], "--scale: 'half' is not a number"),
        (["tiny", "table1", "--seeds", "0"], "--seeds: 0; give"),
        (["tiny", "table1", "--output", "/dev/null"], "Not a directory"),
    ],
)
def test_mistakes_in_one_line(args, said, tmp_path, capsys):
    given = args if "--output" in args else [*args, "--output", str(tmp_path)]
    assert reproduce.main(given) == 2
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert last_line.startswith("error: ")
    assert said in last_line


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
