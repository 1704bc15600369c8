"""CITATION.cff is what citation tools read, and agrees with the package."""

import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAPERS = {
    "fed_smp.py": "arXiv:2202.07178",
    "dp_scaffold.py": "arXiv:2111.09278",
    "wavelet.py": "arXiv:2503.21154",
    "msp.py": "arXiv:2405.16058",
}
"""File in fedpriv/algorithms -> its paper."""


def test_what_the_format_asks_for_is_there():
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["type"] == "software"
    for key in ("message", "title", "abstract"):
        assert isinstance(CITATION[key], str)
        assert CITATION[key].strip()
    assert CITATION["authors"] == [{"name": "The fedpriv authors"}]
    assert len(CITATION["keywords"]) == len(set(CITATION["keywords"])) > 0


def test_it_agrees_with_the_package():
    assert CITATION["title"] == PROJECT["name"]
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["license"] == PROJECT["license"]


def test_it_names_the_four_papers():
    numbers = [r["identifiers"][0]["value"] for r in CITATION["references"]]
    assert numbers == list(PAPERS.values())
    for paper, number in zip(CITATION["references"], numbers, strict=True):
        assert paper["url"] == f"https://arxiv.org/abs/{number.removeprefix('arXiv:')}"
        assert paper["type"] in ("article", "conference-paper")
        assert isinstance(paper["year"], int)


@pytest.mark.parametrize(("file", "paper"), list(zip(PAPERS, CITATION["references"], strict=True)))
def test_titles_and_authors_are_those_of_the_headers(file, paper):
    source = (ROOT / "fedpriv" / "algorithms" / file).read_text()
    header = " ".join(source.split('"""')[1].split())
    assert paper["title"] in header
    assert paper["authors"][0]["family-names"] in header
    assert all({"given-names", "family-names"} == set(author) for author in paper["authors"])
