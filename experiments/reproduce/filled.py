"""An item's cells with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.compare import RunFolder
from experiments.reproduce.item import Cell, Item, Scale, Training, Value, Work

Results = Mapping[Work, RunFolder]


class Filled(NamedTuple):
    """A cell and what is known of it.

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
        """Of a claim: "agrees" or "does not agree"; None where there is none, or no number."""
        agrees = None if self.value is None else self.cell.agrees(self.value)
        return None if agrees is None else "agrees" if agrees else "does not agree"


def fill(item: Item, scale: Scale, results: Results) -> list[Filled]:
    """Every cell, in order."""
    return [_fill(cell, scale, results) for cell in item.cells]


def _fill(cell: Cell, scale: Scale, results: Results) -> Filled:
    comparable = all(same_rounds(work, scale, results) for work in cell.work)
    if any(work not in results for work in cell.work):
        return Filled(cell, None, "-", comparable)
    runs = [results[work] for work in cell.work]
    if not cell.of_diverged and any(run.summary["status"] != "complete" for run in runs):
        return Filled(cell, None, "diverged", comparable)
    read = cell.read(*runs)
    if isinstance(read, str):
        return Filled(cell, None, read, comparable)
    return Filled(cell, read, "", comparable)


def same_rounds(work: Work, scale: Scale, results: Results) -> bool:
    """Whether the scale leaves it as many rounds as the paper's, or all of a computation."""
    if isinstance(work, Training):
        return scale.of(work.rounds) == work.rounds
    return work not in results or not results[work].summary.get("scaled")


def scaled(item: Item, scale: Scale, results: Results) -> str:
    """What the scale leaves out, as every table and picture says: "scaled: 9 of 180 rounds, 1 of 5 seeds"; or ""."""
    trainings = [work for work in item.needs if isinstance(work, Training)]
    rounds = {(scale.of(t.rounds), t.rounds): None for t in trainings}
    seeds = {(scale.seeds(t.seeds), t.seeds): None for t in trainings}
    parts, every = [], [(rounds, "rounds"), (seeds, "seeds")]
    for name in dict.fromkeys(name for t in trainings for name in (*t.shrinking, *t.rounds_in)):
        named = [t for t in trainings if name in (*t.shrinking, *t.rounds_in)]
        pairs = {(t.at(scale)[name], t.settings[name]): None for t in named}
        every.append((pairs, name.replace("_", " ")))
    for pairs, what in every:
        if any(here != full for here, full in pairs):
            parts.append(f"{_pairs(list(pairs))} {what}")
    said = [results[w].summary.get("scaled") for w in item.needs if w in results]
    parts += [str(text) for text in dict.fromkeys(said) if text]
    return f"scaled: {', '.join(parts)}" if parts else ""


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    """ "9 of 180 and 50 of 1000"; the ranges where there are many."""
    if len(pairs) <= 3:
        return " and ".join(f"{here} of {full}" for here, full in pairs)
    here, full = zip(*pairs, strict=True)
    return f"{min(here)} to {max(here)} of {min(full)} to {max(full)}"
