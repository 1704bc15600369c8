"""The notebooks run from top to bottom in any folder, and are kept without outputs."""

import contextlib
import io
import linecache
import re
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from brief import brief

FOLDER = Path(__file__).parents[1] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
ABSOLUTE = re.compile(r"(?<![\w.:/~])(/(?:[\w.-]+/)+|~/|[A-Z]:\\)")
SAID = {
    "custom_round": (
        "depends on who takes part",
        "accuracy.png code config.json metrics.jsonl model summary.json",
        ": not refuted",
        ": refuted",
    )
}
"""What a notebook's text depends on, in its output."""
ROUNDS = {"custom_round": 10}  # its audits need a trained model

each = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)


def read(path):
    return nbformat.read(path, as_version=4)


@each
def test_it_is_kept_without_outputs(path):
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert all(not cell.metadata for cell in notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@each
def test_it_names_no_absolute_path(path):
    for cell in read(path).cells:
        assert not ABSOLUTE.search(cell.source), cell.source


def test_what_counts_as_an_absolute_path():
    assert all(ABSOLUTE.search(x) for x in ("a /b/c", '"/b/c"', "C:\\z", "~/data/"))
    assert not any(
        ABSOLUTE.search(x) for x in ("https://a.b/c/d", "configs/a.py", "1 / p", "a/b/c")
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
@each
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_it_runs(path, tmp_path, monkeypatch):
    """Its cells one after the other, without a kernel; each has a file's name, by which Python knows its lines."""
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    brief(monkeypatch, rounds=ROUNDS.get(path.stem, 2), draws=2000, steps=20)
    names, told = {"__name__": "__main__"}, io.StringIO()
    for i, cell in enumerate(c for c in read(path).cells if c.cell_type == "code"):
        file = str(tmp_path / f"cell_{i}.py")  # which is not there
        lines = cell.source.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, file, (len(cell.source), None, lines, file))
        with contextlib.redirect_stdout(told):
            exec(compile(cell.source, file, "exec"), names)
    plt.close("all")
    assert told.getvalue()
    for expected in SAID.get(path.stem, ()):
        assert expected in told.getvalue()
    assert not list(tmp_path.iterdir())  # it leaves nothing behind
