"""Pages that sum up: they are short, their code stands in its file and their numbers on a page of results."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAPERS = [DOCS / "papers" / f"{name}.md" for name in ("fed_smp", "dp_scaffold", "wavelet", "mspdq")]
ARTIFACT = DOCS.parent / "ARTIFACT.md"
SUMMARIES = [
    *PAPERS,
    DOCS / "papers" / "index.md",
    DOCS / "choose.md",
    DOCS / "beside_others.md",
    ARTIFACT,
]
LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?:e-?\d+)?(?![\w.])")


def name_of(page):
    return page.stem


def linked(page: Path, text: str, ending: str) -> str:
    """What stands in the files of this ending that a text of the page links."""
    targets = {target.partition("#")[0] for _, target in LINK.findall(text)}
    files = [page.parent / target for target in sorted(targets) if target.endswith(ending)]
    return "\n".join(file.read_text() for file in files)


def parts(page: Path) -> list[str]:
    """The rows of a table that have links of their own, else sections or the whole."""
    text = page.read_text()
    if page.stem == "choose":
        return [line for line in text.splitlines() if line.startswith("|") and "results/" in line]
    if page.stem == "ARTIFACT":
        return text.partition("\n## Each page")[2].split("\n### ")[1:]
    return text.split("\n## ")[1:] if page.stem == "index" else [text]


def strangers(page: Path, text: str) -> list[str]:
    """Numbers with a point that no linked page of results has."""
    said = LINK.sub(r"\1", text)
    said = re.sub(r"`[^`]*`|\b\d{4}\.\d{5}\b", "", said)
    there = set(NUMBER.findall(linked(page, text, ".md")))
    return [number for number in NUMBER.findall(said) if number not in there]


def quotes(text: str) -> list[str]:
    """The code of the second column of a table."""
    return re.findall(r"^\|[^|]*\| `([^`]+)` \|$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "words"),
    [*((page, 400) for page in PAPERS), (DOCS / "choose.md", 700), (DOCS / "sharp_edges.md", 1000)],
    ids=lambda x: getattr(x, "stem", str(x)),
)
def test_a_page_is_short(page, words):
    assert len(page.read_text().split()) <= words


@pytest.mark.parametrize("page", PAPERS, ids=name_of)
def test_the_code_beside_pseudo_code_stands_in_its_file(page):
    text = page.read_text()
    code = "".join(linked(page, text, ".py").split())
    quoted = quotes(text)
    assert len(quoted) >= 6
    assert [line for line in quoted if "".join(line.split()) not in code] == []


@pytest.mark.parametrize("page", SUMMARIES, ids=name_of)
def test_numbers_stand_on_the_linked_pages_of_results(page):
    assert [number for part in parts(page) for number in strangers(page, part)] == []


def test_what_is_made_up_is_found():
    page = DOCS / "choose.md"
    row = "| a | [98.76](../experiments/results/race.md), with Adam 30.6, `x(0.77)` |"
    assert strangers(page, row) == ["98.76"]
    assert quotes("| 1: a | `x = y` |\n| b | c |") == ["x = y"]
