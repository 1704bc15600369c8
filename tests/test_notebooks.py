"""The notebooks run from top to bottom in any folder, and are kept without outputs."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

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

each = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def text_of(cell):
    return "".join(o.text for o in cell.get("outputs", ()) if o.output_type == "stream")


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
@each
@pytest.mark.filterwarnings("default")  # the kernel's own libraries warn
def test_it_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    notebook = read(path)
    folder = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=folder).execute()
    told = "".join(map(text_of, notebook.cells))
    assert told
    for expected in SAID.get(path.stem, ()):
        assert expected in told
    assert not list(tmp_path.iterdir())  # it leaves nothing behind
