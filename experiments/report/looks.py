"""How the series of a page are told apart: by colour and marker, and by dashes where there are more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.report.markup import Content, Element, element
from experiments.report.results import Result, named

COLOURS = 7
DASHES = ("", "7 4", "2 3", "10 3 2 3", "12 5", "5 2 2 2 2 2")
# One for each colour, at most 7 wide, about the origin.
MARKERS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "M-3 -3h6v6h-6z",
    "M0 -3.8L3.6 2.8h-7.2z",
    "M0 -4L4 0L0 4L-4 0z",
    "M0 3.8L3.6 -2.8h-7.2z",
    "M-1.2 -3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "M0 -3.8L3.6 -1.2L2.2 3.1H-2.2L-3.6 -1.2z",
)


class Look(NamedTuple):
    """How one algorithm of one run is drawn everywhere.

    Attributes:
      key: of its checkbox and of everything drawn for it.
      label: in the legend.
      colour: number of its colour and marker.
      dash: of its line, as SVG takes it.
    """

    key: str
    label: str
    colour: int
    dash: str

    @property
    def marker(self) -> str:
        return MARKERS[self.colour]


def looks(drawn: Sequence[Result]) -> list[Look]:
    """One for each result: an algorithm keeps its colour and a run its dashes, where there are enough of both."""
    several = len({result.run.name for result in drawn}) > 1
    algorithms = list(dict.fromkeys(result.algorithm for result in drawn))
    runs = list(dict.fromkeys(result.run.name for result in drawn))
    crossed = 1 < len(algorithms) <= COLOURS and 1 < len(runs) <= len(DASHES)
    found = []
    for number, result in enumerate(drawn):
        colour, dash = number % COLOURS, number // COLOURS % len(DASHES)
        if crossed:
            colour, dash = algorithms.index(result.algorithm), runs.index(result.run.name)
        found.append(Look(f"s{number}", named(result, several), colour, DASHES[dash]))
    return found


def legend(found: Sequence[Look], bands: bool) -> Element:
    """Checkboxes that hide a series, and all bands, in every picture; without support for :has they do nothing."""
    entries = [_entry(f"show-{look.key}", [_sample(look), look.label]) for look in found]
    if bands:
        entries.append(_entry("show-bands", "bands"))
    return element(
        "fieldset", element("legend", "Series (untick to hide)"), entries, class_="legend"
    )


def _entry(key: str, content: Content) -> Element:
    box = element("input", type="checkbox", id=key, checked="")
    return element("label", box, content, for_=key)


def _sample(look: Look) -> Element:
    line = element("path", d="M1 7H31", class_="line", stroke_dasharray=look.dash or None)
    marker = element("path", d=look.marker, transform="translate(16 7)", class_="marker")
    return element(
        "svg",
        line,
        marker,
        class_=f"sample c{look.colour}",
        viewBox="0 0 32 14",
        width=32,
        height=14,
        aria_hidden="true",
    )
