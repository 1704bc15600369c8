"""What documents, notebooks and docstrings name is there: files, links, modules, public names, tests."""

import functools
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpriv.retired import RETIRED

ROOT = Path(__file__).parents[1]
PAGES = [
    *(
        ROOT / f"{name}.md"
        for name in ("README", "CONTRIBUTING", "CHANGELOG", "ARTIFACT", "SECURITY")
    ),
    *(path for path in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in path.parts),
    *sorted(ROOT.glob("fedpriv/**/*.md")),
    *sorted(ROOT.glob("experiments/**/*.md")),
    *sorted(ROOT.glob("notebooks/*.ipynb")),
]
SOURCES = [
    path
    for folder in ("fedpriv", "experiments", "configs", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
HISTORY = (ROOT / "CHANGELOG.md", ROOT / "docs" / "reference" / "stable_names.md")
"""Whose names may be gone; their files and links may not."""

ENDINGS = "py|md|ipynb|toml|txt|png"
PATH = re.compile(rf"(?<![\w/.:~$*<>{{}}-])((?:[\w.-]+/)+[\w-][\w.-]*\.(?:{ENDINGS}))\b")
FILE = re.compile(rf"`([\w-]+\.(?:{ENDINGS}))`")
NAME = re.compile(r"(?<![\w./])((?:fp|fedpriv|experiments|configs)(?:\.[A-Za-z]\w*)+)")
QUOTED = re.compile(r"`((?:fp|fedpriv|experiments|configs)(?:\.[A-Za-z]\w*)+)")
TEST = re.compile(r"\btest_\w+")
LINK = re.compile(r"(?<!\w)!?\[[^\]\n]*\]\(([^)\s]*[./#A-Z][^)\s]*)\)")

ROOMS = ("fedpriv", "fedpriv/experiments", "experiments", "tests")
THEIRS = re.compile(
    r"[A-Z]+/|runs/|(benchmarks/)?image_classification/|none/|a/|configs/a\.py"
    r"|(flwr|pfl|opacus|jax_privacy|tensorflow_federated)/"
)
"""Files of runs, of other projects, and made up ones."""


@functools.cache
def text_of(path: Path) -> str:
    """Of a notebook, that of its cells."""
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


@functools.cache
def made_by(page: Path) -> frozenset[str]:
    """The files whose content a page has itself, and their names."""
    files = re.findall(r"```python\n# (\S+\.py)\n", text_of(page))
    tests = re.findall(r"^def (test_\w+)", text_of(page), re.MULTILINE)
    return frozenset(files) | {Path(file).stem for file in files} | set(tests)


def missing_files(page: Path, text: str) -> Iterator[str]:
    """Paths from the root, from the page, or within a package."""
    folders = (
        ROOT,
        page.parent,
        *(ROOT / name for name in ("fedpriv", "fedpriv/experiments", "experiments", "tests")),
    )
    for path in PATH.findall(text):
        there = any((folder / path).exists() for folder in folders)
        if not (there or path in made_by(page) or THEIRS.match(path)):
            yield path


def missing_names(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    for name in pattern.findall(text):
        if not resolves(name):
            yield name


@functools.cache
def resolves(name: str) -> bool:
    """Whether a dotted name is a module, what is in one, or a field of a class there; and is not retired."""
    parts = ["fedpriv" if part == "fp" else part for part in name.split(".")]
    if parts[0] == "fedpriv" and any(".".join(parts[1:i]) in RETIRED for i in (2, 3)):
        return False
    if parts[0] == "experiments":  # of `from fedpriv import experiments`, or of the checkout alone
        return any(is_there([*above, *parts]) for above in (["fedpriv"], []))
    return is_there(parts)


def is_there(parts: list[str]) -> bool:
    for i in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            if part in getattr(found, "__annotations__", {}):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@functools.cache
def named_tests() -> set[str]:
    """The names of test modules and of the tests in them."""
    files = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]
    named = [re.findall(r"def (test_\w+)", path.read_text()) for path in files]
    return {path.stem for path in files} | {name for each in named for name in each}


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(text):
        path, _, heading = target.partition("#")
        if re.match(r"https?:|mailto:", path):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (heading and heading not in anchors(file)):
            yield target


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    text = text_of(page)
    missing = [*missing_files(page, text), *broken_links(page, text)]
    missing += [name for name in FILE.findall(text) if not any(known(name))]
    if page not in HISTORY:
        missing += missing_names(text, NAME)
        missing += [name for name in TEST.findall(text) if name not in named_tests()]
    assert [name for name in missing if name.split(".")[-1] not in made_by(page)] == []


def known(name: str) -> Iterator[object]:
    """The files of this name, and the tests' or commands' own that write one."""
    yield from (path for path in SOURCES if path.name == name)
    yield from (path for path in PAGES if path.name == name)
    yield from ROOT.glob(name)
    yield from (path for path in SOURCES if f'"{name}"' in text_of(path))


def test_what_docstrings_and_comments_name_is_there():
    missing = []
    for path in SOURCES:
        text = text_of(path)
        commented = "\n".join(re.findall(r"(?<!\S)#(.*)", text))
        found = [*missing_files(path, text), *missing_names(text, QUOTED)]
        found += [name for name in TEST.findall(commented) if name not in named_tests()]
        missing += [(path.name, name) for name in found]
    assert [pair for pair in missing if pair[0] != Path(__file__).name] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see `tests/test_gone.py`", ["tests/test_gone.py"]),
        ("`rounds/cohort.py`, fedpriv/rounds/cohort.py, runs/A/x.png", []),
        ("https://a.b/c/d.py, {folder}/page.md", []),
        (
            "[a](README.md), [b](README.md#no-such), ![c](gone.png)",
            ["README.md#no-such", "gone.png"],
        ),
        (
            "`fp.fed_avg`, `fp.gone(3)`, fp.Algorithm.round, `fp.models.gone`, `fp.wavelet.haar`",
            ["fp.gone", "fp.models.gone", "fp.wavelet.haar"],
        ),
        ("fedpriv run, python -m experiments.gone x", ["experiments.gone"]),
    ],
)
def test_what_is_missing_is_found(text, found):
    page = ROOT / "README.md"
    missing = [*missing_files(page, text), *broken_links(page, text), *missing_names(text, NAME)]
    assert missing == found
