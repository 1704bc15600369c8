"""An item's cells with what was measured, in Markdown and in CSV: published beside measured, with the difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedpriv.experiments.base import formats
from fedpriv.experiments.base.formats import ABSENT
from fedpriv.experiments.papers.reproduce.item import (
    Cell,
    Computed,
    Item,
    Results,
    Scale,
    Training,
    Value,
    Work,
)
from fedpriv.experiments.papers.reproduce.reading import complete
from fedpriv.experiments.runs.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas


class Filled(NamedTuple):
    """A cell of an item and what was measured for it.

    Attributes:
      value: the number here; None where its work is not done, or did not end with a number.
      said: in place of a number: "-" for what is not done, "diverged", or what the cell's `read` says.
      comparable: whether as many rounds were trained as in the paper.
    """

    cell: Cell
    value: Value | None
    said: str
    comparable: bool

    @property
    def difference(self) -> float | None:
        """Measured less published; None where one of them is missing."""
        printed = self.cell.printed
        return None if printed is None or self.value is None else self.value.mean - printed.mean

    @property
    def verdict(self) -> str | None:
        """Of a claim: "agrees" or "does not agree", and whether a standard deviation more or less would change that;
        None where there is none, or no number.
        """
        agrees = None if self.value is None else self.cell.agrees(self.value)
        if self.value is None or agrees is None:
            return None
        mean, std = self.value.mean, self.value.std or 0
        moved = {self.cell.agrees(Value(mean + by)) for by in (-std, std)}
        doubt = "" if moved == {agrees} else ", within the spread"
        return ("agrees" if agrees else "does not agree") + doubt

    @property
    def measured(self) -> str:
        """Mean +- standard deviation, with as many decimals as the paper prints."""
        if self.value is None:
            return self.said
        there = (n for n in (self.value.mean, self.value.std) if n is not None)
        return " +- ".join(f"{n:.{self.cell.decimals}f}" for n in there)


def fill(item: Item, scale: Scale, results: Results) -> list[Filled]:
    """Every cell of an item, in order."""
    return [_fill(cell, scale, results) for cell in item.cells]


def _fill(cell: Cell, scale: Scale, results: Results) -> Filled:
    comparable = all(_in_full(work, scale, results) for work in cell.work)
    if any(work not in results for work in cell.work):
        return Filled(cell, None, ABSENT, comparable)
    done = [results[work] for work in cell.work]
    diverged = any(isinstance(run, RunFolder) and not complete(run) for run in done)
    read = "diverged" if diverged and not cell.of_diverged else cell.read(*done)
    if isinstance(read, str):
        return Filled(cell, None, read, comparable)
    return Filled(cell, read, "", comparable)


def _in_full(work: Work, scale: Scale, results: Results) -> bool:
    """Whether the scale leaves it as many rounds as the paper's, or all of a computation."""
    if isinstance(work, Training):
        return scale.of(work.rounds) == work.rounds
    found = results.get(work)
    return not (isinstance(found, Computed) and found.summary.get("scaled"))


def scaled(item: Item, scale: Scale, results: Results) -> str:
    """What the scale leaves out, as every table and picture says: "scaled: 9 of 180 rounds, 1 of 5 seeds"; or ""."""
    here: dict[str, dict[tuple[int, int], None]] = {"rounds": {}, "seeds": {}}
    for training in item.trainings:
        here["rounds"][scale.of(training.rounds), training.rounds] = None
        here["seeds"][scale.seeds(training.seeds), training.seeds] = None
        for name in (*training.shrinking, *training.rounds_in):
            pair = training.at(scale)[name], training.settings[name]
            here.setdefault(name.replace("_", " "), {})[pair] = None
    parts = {
        f"{_pairs(list(pairs))} {what}": None
        for what, pairs in here.items()
        if any(left != full for left, full in pairs)
    }
    found = [results[work] for work in item.needs if work in results]
    said = [done.summary.get("scaled") for done in found if isinstance(done, Computed)]
    parts |= {str(text): None for text in said if text}
    return f"scaled: {', '.join(parts)}" if parts else ""


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    """ "9 of 180 and 50 of 1000"; the ranges where there are many."""
    if len(pairs) <= 3:
        return " and ".join(f"{here} of {full}" for here, full in pairs)
    here, full = zip(*pairs, strict=True)
    return f"{min(here)} to {max(here)} of {min(full)} to {max(full)}"


def markdown(filled: Sequence[Filled]) -> str:
    """An item's table in the paper's rows and columns; a column that the paper prints has three here."""
    columns = list(dict.fromkeys(f.cell.column for f in filled))
    printed = {f.cell.column for f in filled if f.cell.published}
    head = [""]
    for column in columns:
        three = [f"{column}: published", "measured", "difference"]
        head += three if column in printed else [column]
    found = {(f.cell.row, f.cell.column): f for f in filled}
    rows = []
    for row in dict.fromkeys(f.cell.row for f in filled):
        line = [row]
        for column in columns:
            parts = _parts(found.get((row, column)))
            line += parts if column in printed else parts[1:2]
        rows.append(line)
    return formats.markdown_table([head, *rows])


def _parts(filled: Filled | None) -> list[str]:
    """Published, measured and the difference, in parentheses where rounds are fewer."""
    if filled is None:
        return ["", "", ""]
    published, difference = filled.cell.published or ABSENT, filled.difference
    if filled.verdict is None and difference is None:
        return [published, filled.measured, ABSENT]
    text = filled.verdict or f"{difference:+z.{filled.cell.decimals}f}"
    return [published, filled.measured, text if filled.comparable else f"({text})"]


def frame(filled: Sequence[Filled], scaled: str) -> pandas.DataFrame:
    """An item's table with a row per cell, numbers unrounded; None where there is none."""
    import pandas

    return pandas.DataFrame.from_records([_record(f, scaled) for f in filled])


def _record(f: Filled, scaled: str) -> dict[str, Any]:
    printed, value = f.cell.printed or (None, None), f.value or (f.said, None)
    return {
        "row": f.cell.row,
        "column": f.cell.column,
        "published": printed[0],
        "published_std": printed[1],
        "measured": None if value[0] == ABSENT else value[0],
        "measured_std": value[1],
        "difference": f.difference,
        "claim": f.cell.published if f.cell.claim else None,
        "verdict": f.verdict,
        "comparable": "yes" if f.comparable else "no",
        "scaled": scaled,
    }
