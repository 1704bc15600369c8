"""Every public name of the library says what it owes its reader, and the check sees where one does not."""

from pathlib import Path

import pytest
from docstring_rules import complaints
from docstring_source import Package

ROOT = Path(__file__).parents[1]

HEADER = '"""Sums: A. Author, "The Mechanism of Sums", 2020."""\n'
GOOD = '''
from typing import NamedTuple


class Sum(NamedTuple):
    """A noisy sum.

    Attributes:
      total: f32[d].
      std: standard deviation of the noise.
    """

    total: jax.Array
    std: float


def noisy(x: jax.Array, clip_norm: float, epsilon: float) -> Claim:
    """Clips and sums (Algorithm 1).

    Args:
      x: f32[n, d].
      clip_norm, epsilon: C, in nats.

    Raises:
      ValueError: C <= 0.
    """
    _check(clip_norm)


def _check(clip_norm: float) -> None:
    if clip_norm <= 0:
        raise ValueError("clip_norm: it is not positive")


def guarded(clip_norm: float) -> None:
    """Clips at C, or not."""
    try:
        _check(clip_norm)
    except ValueError:
        pass
'''


def found(folder: Path, text: str) -> list[str]:
    package = folder / "sums"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    return [line.removeprefix("sums.") for line in complaints(Package(package))]


def test_the_library_says_what_it_owes():
    package = Package(ROOT / "fedpriv")
    assert len(package.public()) > 300
    assert list(complaints(package)) == []


def test_good_docstrings_pass(tmp_path):
    assert found(tmp_path, HEADER + GOOD) == []


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("x: f32[n, d].", "x: numbers.", "noisy: gives no shape or data type of x"),
        ("total: f32[d].", "total: it.", "Sum: gives no shape or data type of total"),
        ("      std: standard", "      of: standard", "Sum: lists of, which it does not have"),
        ("x: f32[n, d].", "y: f32[n, d].", "noisy: lists y, which it does not have"),
        (
            "      std: standard deviation of the noise.\n",
            "",
            "Sum: says nothing of the attribute std",
        ),
        ("C, in nats", "C", "noisy: does not say what unit or kind of number epsilon is"),
        ("C, in nats", "nats", "noisy: does not say what unit or kind of number clip_norm is"),
        ("      ValueError: C <= 0.", "      TypeError: C.", "raised in sums._check"),
        ("except ValueError", "except TypeError", "guarded: does not name ValueError"),
        (" (Algorithm 1)", "", "noisy: does not say where in the publication"),
        (
            'A. Author, "The Mechanism of Sums", 2020',
            "ours",
            "noisy: neither it nor its file names",
        ),
        ('"""Clips at C, or not."""', "", "guarded: does not say what unit or kind of number"),
    ],
)
def test_what_is_missing_or_wrong_is_found(tmp_path, right, wrong, complaint):
    text = HEADER + GOOD
    assert text.count(right) == 1
    lines = found(tmp_path, text.replace(right, wrong))
    assert any(complaint in line for line in lines), lines


def test_errors_are_followed_through_modules_and_into_what_arguments_are_handed_to(tmp_path):
    package = tmp_path / "sums"
    package.mkdir()
    (package / "__init__.py").write_text('"""Sums."""\nfrom sums.parts import Part as Part\n')
    (package / "parts.py").write_text(
        '"""Parts."""\n\n\nclass Part:\n    """A part.\n\n    Raises:\n      ValueError: no size.\n    """\n\n'
        "    def __init__(self, size):\n        if not size:\n            raise ValueError('size')\n"
    )
    (package / "whole.py").write_text(
        '"""Wholes."""\nfrom sums import Part\n\n\ndef cut(size):\n    """Cuts."""\n    return Part(size)\n\n\n'
        'def one():\n    """One."""\n    return Part(1)\n'
    )
    expected = "sums.whole.cut: does not name ValueError, raised in sums.parts.Part.__init__"
    assert list(complaints(Package(package))) == [expected]
