"""The pages of docs/: short, and every example runs and prints what the page says."""

import contextlib
import importlib
import io
import pkgutil
import re
import types
from collections import Counter
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from brief import brief

import fedpriv as fp
from fedpriv import experiments
from fedpriv.experiments import commands

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LAUNCHER = "fedpriv.experiments."  # whose types are those of the files that it reads
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
IN_TEST_DATA_PAGES = {"hugging_face.md", "pytorch.md"}  # with stand-ins for what is not installed
WITH_EXAMPLES = [
    page
    for page in PAGES
    if EXAMPLE.search(page.read_text()) and page.name not in IN_TEST_DATA_PAGES
]
PRINT_NOTHING_TRAINED = {
    "docs/how_to/fine_tuning.md",
    "docs/how_to/large_models.md",
    "docs/how_to/publish_a_model.md",
    "docs/ideas/client_and_round.md",
    "docs/start.md",
}
NAMES = re.compile(r"```\{names\} (\S+)\n(.*?)```", re.DOTALL)


def name_of(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_read_in_minutes(page):
    assert len(page.read_text().split()) <= 1200


def test_a_glossary_is_learned():
    entries = re.findall(r"^- \*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert 20 <= len(entries) <= 40
    assert entries == sorted(entries, key=str.lower)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
@pytest.mark.filterwarnings("ignore:.* training records repeat another")  # made up ones
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_examples_print_what_the_page_says(page, tmp_path, monkeypatch):
    """A block that begins with the name of a file is that file, which may be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict = {}
    few = {"rounds": 2} if str(page.relative_to(ROOT)) in PRINT_NOTHING_TRAINED else {}
    brief(monkeypatch, draws=2000, **few)
    for code, said in EXAMPLE.findall(page.read_text()):
        if file := re.match(r"# (\S+\.py)\n", code):
            (tmp_path / file[1]).write_text(code)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert not said or printed.getvalue() == said


def test_the_idea_of_a_leak_names_the_line():
    """What `the_check.md` says in words of what its example prints."""
    (code,) = [code for code, _ in EXAMPLE.findall((DOCS / "ideas" / "the_check.md").read_text())]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    first, second = printed.getvalue().splitlines()
    assert first == "1.36 constructed"
    assert "depends on who takes part" in second
    assert "past every release" in second


def documented() -> Counter[str]:
    """The full names that reference pages list."""
    found: Counter[str] = Counter()
    for page in sorted((DOCS / "reference").glob("*.md")):
        for module, names in NAMES.findall(page.read_text()):
            found.update(f"{module}.{name}" for name in names.split())
    return found


def public() -> set[str]:
    """The names of `fp`, of its rooms, and of `experiments`, but for modules themselves."""
    return {f"fedpriv.experiments.{name}" for name in experiments.__all__} | {
        *offered(fp, "fedpriv")
    }


def offered(module: types.ModuleType, path: str):
    for name in names_of(module):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            yield from offered(value, f"{path}.{name}")
        else:
            yield f"{path}.{name}"


def names_of(module: types.ModuleType) -> list[str]:
    """Of its own functions and classes, or of what it exports."""
    own = [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", "") == module.__name__
    ]
    return getattr(module, "__all__", own)


def test_every_public_name_has_one_place():
    found = documented()
    assert [name for name, times in found.items() if times > 1] == []
    assert len(public()) > 200
    assert public() - set(found) == set()


def classes(hint):
    """Those of fedpriv in a type hint."""
    if isinstance(hint, type) and hint.__module__.startswith("fedpriv."):
        yield hint
    for part in get_args(hint):
        for one in part if isinstance(part, list) else [part]:
            yield from classes(one)


def named(path):
    """What a full name stands for; a module may be a name in another, as `fedpriv.papers.haar` is."""
    holder, _, name = path.rpartition(".")
    return getattr(pkgutil.resolve_name(holder), name)  # which may be called as a file is


def test_every_type_that_a_public_function_takes_or_returns_has_a_place():
    """Of arguments, fields, methods and results, also within functions and unions."""
    values = {path: named(path) for path in public() if not path.startswith(LAUNCHER)}
    known = [named(path) for path in documented() if not path.startswith(LAUNCHER)]
    lacking = {}
    for path, value in values.items():
        described = [value]
        if isinstance(value, type):
            members = [getattr(value, n) for n in vars(value) if not n.startswith("_")]
            described += [getattr(m, "fget", m) for m in members if not isinstance(m, type)]
        for one in described:
            try:
                hints = get_type_hints(one) if callable(one) else {}
            except TypeError:  # no function of Python's
                continue
            found = [c for name, hint in hints.items() if name[0] != "_" for c in classes(hint)]
            lacking |= {c.__qualname__: path for c in found if not any(c is k for k in known)}
    assert len(values) > 200
    assert lacking == {}


def test_all_that_is_for_accounting_has_a_place():
    listed = {name.rpartition(".")[2] for name in documented()}
    assert set(importlib.import_module("fedpriv.privacy").__all__) <= listed


def test_every_command_has_its_help():
    text = (DOCS / "reference" / "commands.md").read_text()
    assert sorted(re.findall(r"```\{command\} (\w+)\n```", text)) == sorted(
        [*commands.listed(), "benchmark", "odd_calls"]
    )
