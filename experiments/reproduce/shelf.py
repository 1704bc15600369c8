"""Where what was done is kept, and how far every item has come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.compare import RunFolder
from experiments.reproduce.item import Item, Scale, Work
from experiments.reproduce.perform import result
from experiments.resume import how_ended

RUNS = "runs"
UNFINISHED = "Trained so far"  # in the table of an item that is not done


@dataclass(frozen=True)
class Shelf:
    """The folders of one scale: OUTPUT/PAPER/runs[-SCALE]/KEY for the trainings, which the items of a paper share, and
    OUTPUT/PAPER/ITEM[-SCALE]/ for their tables and pictures.

    Attributes:
      output: the folder of everything.
      suffix: "" for the full thing, else "-" and the scale's name.
    """

    output: Path
    suffix: str = ""

    @classmethod
    def of(cls, output: Path, scale: Scale) -> Shelf:
        return cls(output, "" if scale.name == Scale().name else f"-{scale.name}")

    def run(self, item: Item, work: Work) -> Path:
        return self.output / item.paper / f"{RUNS}{self.suffix}" / work.key

    def item(self, item: Item) -> Path:
        return self.output / item.paper / f"{item.name}{self.suffix}"

    def results(self, item: Item) -> dict[Work, RunFolder]:
        """Of the item's work, what is done; raises ValueError as `result` does."""
        found = {work: result(work, self.run(item, work)) for work in item.needs}
        return {work: run for work, run in found.items() if run}

    def done(self, item: Item) -> int:
        """How many pieces of the item's work."""
        return sum(how_ended(self.run(item, work)) is not None for work in item.needs)


def shelves(output: Path, paper: str) -> list[Shelf]:
    """The full one, then those of every scale that something was done at."""
    names = [folder.name for folder in sorted((output / paper).glob("*-s*/")) if folder.is_dir()]
    scales = (name[name.index("-") :] for name in names)
    return [Shelf(output, suffix) for suffix in dict.fromkeys(["", *scales])]


def status(item: Item, shelves: list[Shelf]) -> str:
    """How far the item has come, at the scale at which it came farthest."""
    if item.illustration:
        return "nothing to measure"
    for shelf in shelves:
        if shelf.done(item) == len(item.needs) and _whole(shelf.item(item) / "table.md"):
            return "done" + _at(shelf)
    best = max(shelves, key=lambda shelf: shelf.done(item))
    if count := best.done(item):
        return f"partly ({count} of {len(item.needs)}){_at(best)}"
    return "not yet"


def _whole(table: Path) -> bool:
    """Whether the table is there, and does not say that it is a part of one."""
    return table.exists() and UNFINISHED not in table.read_text()


def _at(shelf: Shelf) -> str:
    return f" at {shelf.suffix[1:].replace('-', ' ')}" if shelf.suffix else ""
