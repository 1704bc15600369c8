"""The gallery: every program is on its page with its picture, and no epsilon stands alone."""

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from brief import brief
from test_documents import NAME, missing_names

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
PROGRAMS = sorted(path.stem for path in GALLERY.glob("*.py") if path.stem != "make")
PAGE = (GALLERY / "index.md").read_text()
IDEAS = GALLERY.parent / "ideas"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
MEANING = ("unit", "view", "adjacency", "basis")
WORDS = {
    "unit": r"\bclient\b|\brecord\b",
    "view": r"third party|server",
    "adjacency": r"add or remove|replace one|zero out",
    "basis": r"constructed|declared",
}


def test_the_page_lists_every_program_with_its_picture():
    pictures = re.findall(r"!\[([^\]]{30,})\]\((\w+)\.png\)", PAGE)
    assert len(PROGRAMS) == len(SECTIONS) == 12
    assert sorted(name for _, name in pictures) == PROGRAMS
    assert sorted(re.findall(r"\]\((\w+)\.py\)", PAGE)) == sorted([*PROGRAMS, "make"])
    assert len(PAGE.split()) <= 800


@pytest.mark.parametrize("text", SECTIONS.values(), ids=SECTIONS.keys())
def test_no_epsilon_on_the_page_stands_alone(text):
    number = re.search(r"epsilon|ε", re.sub(r"!\[[^\]]*\]", "", text))
    assert not number or [m for m in MEANING if not re.search(WORDS[m], text)] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short_and_says_what_its_epsilon_means(name):
    code = (GALLERY / f"{name}.py").read_text()
    assert [*missing_names(code, NAME)] == []
    lines = [line for line in code.splitlines()[1:] if line.strip()]
    assert 20 <= len(lines) <= 45
    if "{c.epsilon" in code:
        assert all(f"c.{field}" in code for field in ("unit", "relation", "delta", "basis"))
        assert "view" in code


@pytest.mark.parametrize(
    "path", [*GALLERY.glob("*.png"), *IDEAS.glob("*.png")], ids=lambda p: p.stem
)
def test_pictures_are_small_and_legible_on_a_phone(path):
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))
    assert path.stat().st_size < 150_000
    assert width == 900
    assert height <= 1.1 * width


def test_a_wrong_name_is_refused(capsys):
    make = runpy.run_path(str(GALLERY / "make.py"))
    assert make["main"](["gone"]) == 2
    assert "gone: no such program; there are adaptive_clipping" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
@pytest.mark.parametrize("name", ["error_feedback", "lora", "adaptive_clipping"])
def test_programs_run(name, tmp_path, monkeypatch):
    """`personal_heads` takes long to compile; the page on personal models trains the same."""
    brief(monkeypatch, rounds=2)
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    runpy.run_path(str(GALLERY / f"{name}.py"))
    plt.close("all")
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@pytest.mark.slow
def test_pictures_of_ideas_are_drawn(tmp_path):
    pictures = runpy.run_path(str(IDEAS / "pictures.py"))
    plt.switch_backend("agg")
    pictures["main"](["unit", "epsilon", "view", "operational_numbers"], tmp_path)
    assert len([*tmp_path.glob("*.png")]) == 4
