"""Programs in pages, notebooks and the gallery call what is there; those in pages, what the reference lists."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from test_site_pages import documented

import fedpriv
from fedpriv import experiments

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
OURS = ("fedpriv",)
MODULES = {"fp": fedpriv, "fedpriv": fedpriv, "experiments": experiments}


def programs() -> Iterator[tuple[str, str]]:
    """File -> its Python."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in (page for page in pages if "_build" not in page.parts):
        if code := "\n".join(BLOCK.findall(page.read_text())):
            yield str(page.relative_to(ROOT)), code
    for file in (ROOT / "docs" / "gallery").glob("*.py"):
        yield str(file.relative_to(ROOT)), file.read_text()
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(file.read_text())["cells"]
        cells = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        code = map(TransformerManager().transform_cell, cells)  # without commands of IPython
        yield str(file.relative_to(ROOT)), "\n".join(code)


def wrong_calls(code: str) -> Iterator[str]:
    """Calls of public functions that there are not, or that do not take what they are given."""
    tree = ast.parse(code)
    modules = dict(MODULES)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "fedpriv":
            modules |= {a.asname or a.name: getattr(fedpriv, a.name) for a in node.names}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        first, _, rest = ast.unparse(call.func).partition(".")
        if first not in modules or not re.fullmatch(r"[\w.]*", rest):
            continue
        try:
            function = attrgetter(rest)(modules[first]) if rest else modules[first]
            signature = inspect.signature(function)
            named = {key.arg: None for key in call.keywords if key.arg}
            some = any(isinstance(arg, ast.Starred) for arg in call.args)
            all_given = not some and len(named) == len(call.keywords)
            given = [] if some else call.args
            (signature.bind if all_given else signature.bind_partial)(*given, **named)
        except (AttributeError, TypeError) as error:
            yield f"{ast.unparse(call.func)}: {error}"


PROGRAMS = dict(programs())


@pytest.mark.parametrize("file", PROGRAMS)
def test_calls_are_of_what_is_there(file):
    assert [*wrong_calls(PROGRAMS[file])] == []


def test_what_is_wrong_is_found():
    code = """
from fedpriv import attacks
fp.poisson(3, 0.5, capacity=2), fp.poisson(*given), fp.fed_avg(loss, **options)
attacks.gone(1), fp.poisson(3), fp.poisson(3, ratio=0.5), fp.fed_avg(loss, samples=3, **options)
"""
    found = [said.partition(":")[0] for said in wrong_calls(code)]
    assert found == ["attacks.gone", "fp.poisson", "fp.poisson", "fp.fed_avg"]
    assert len(PROGRAMS) > 50


def unlisted(code: str, listed: set[str]) -> Iterator[str]:
    """What the program takes from this project, by its full name, that no page of the reference lists."""
    tree, known = ast.parse(code), {"fp": "fedpriv", "experiments": "fedpriv.experiments"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            full = {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
            known |= full
            yield from (name for name in full.values() if not is_listed(name, listed))
        elif isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in known and re.fullmatch(r"[\w.]+", rest):
                full = f"{known[first]}.{rest}"
                yield from [] if is_listed(full, listed) else [full]


def is_listed(name: str, listed: set[str]) -> bool:
    """Whether it is a listed name, what holds such names, or of one."""
    return any(f"{name}.".startswith(f"{one}.") or one.startswith(f"{name}.") for one in listed)


OF_DOCS = {file: code for file, code in PROGRAMS.items() if file.startswith("docs/")}


@pytest.mark.parametrize("file", OF_DOCS)
def test_what_a_page_needs_is_in_the_reference(file):
    assert [*unlisted(OF_DOCS[file], {*documented()})] == []


def test_what_is_not_in_the_reference_is_found():
    code = """
from fedpriv.core.arguments import checked
from fedpriv.experiments.papers import hours as of_papers
import fedpriv as fp
fp.models.MLP((8,), 3), fp.core.trees, experiments.papers.late, experiments.runs.read("r").status
"""
    assert sorted(unlisted(code, {*documented()})) == [
        "fedpriv.core",
        "fedpriv.core.arguments.checked",
        "fedpriv.core.trees",
        "fedpriv.experiments.papers",
        "fedpriv.experiments.papers.hours",
        "fedpriv.experiments.papers.late",
    ]
