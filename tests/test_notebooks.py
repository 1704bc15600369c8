"""The notebooks run from top to bottom in any folder, and are kept without outputs."""

import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from kernels import installed, kernel

from fedpriv.address import REPOSITORY

FOLDER = Path(__file__).parents[1] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
ABSOLUTE = re.compile(r"(?<![\w.:/~])(/(?:[\w.-]+/)+|~/|[A-Z]:\\)")
SAID = {
    "quickstart": (
        "fed_avg: 2 rounds; eps (of ONE model (one seed) released alone): client level, view third party",
    ),
    "custom_round": (
        "depends on who takes part",
        "accuracy.png code config.json metrics.jsonl model summary.json",
        ": not refuted",
        ": refuted",
    ),
}
"""What a notebook's text depends on, in its output."""
CARDS = {
    "quickstart": ("History", "Certificate", "Run", "Figure"),
    "custom_round": ("Run", "Certificate", "Figure"),
}
"""What it shows as a card."""
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


@each
def test_it_begins_with_one_cell_for_where_fedpriv_is_missing(path):
    """Elsewhere that does nothing. Without a public address it installs nothing by a name that anybody may register.

    A link to Colab needs the address, too.
    """
    first, *others = read(path).cells
    code = [cell.source for cell in others if cell.cell_type == "code"]
    install = read(PATHS[0]).cells[1].source
    assert code[0] == install
    assert not [cell for cell in code[1:] if "pip install" in cell]
    found, names = [], {"get_ipython": lambda: SimpleNamespace(run_line_magic=ran(found))}
    program = TransformerManager().transform_cell(install)
    exec(program, names)
    assert found == []
    missing = program.replace('"fedpriv"', '"a_module_that_is_missing"')
    if REPOSITORY:
        exec(missing, names)
        assert found == [("pip", "install fedpriv")]
    else:
        with pytest.raises(ModuleNotFoundError, match=r"fedpriv-\.\.\.whl"):
            exec(missing, names)
        assert found == []
    link = f"https://colab.research.google.com/github/{REPOSITORY.partition('github.com/')[2]}/blob/main/notebooks/"
    assert (link + path.name in first.source) == ("github.com/" in REPOSITORY)
    assert ("colab.research" in first.source) == ("github.com/" in REPOSITORY)


def ran(found):
    return lambda *line: found.append(line)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return installed(tmp_path_factory.mktemp("site"))


@pytest.mark.slow
@each
def test_it_runs_without_a_checkout(path, site, tmp_path):
    """Its cells one after the other, in a kernel."""
    most = {"rounds": ROUNDS.get(path.stem, 2), "draws": 2000, "steps": 20}
    with kernel(tmp_path, site, **most) as one:
        for cell in read(path).cells:
            if cell.cell_type == "code":
                one.run(cell.source)
    assert one.text
    for expected in SAID.get(path.stem, ()):
        assert expected in one.text
    cards = "".join(one.shown_as("text/html"))
    for expected in CARDS.get(path.stem, ()):
        assert f"<small>{expected}</small>" in cards
    assert not list(tmp_path.iterdir())  # it leaves nothing behind
