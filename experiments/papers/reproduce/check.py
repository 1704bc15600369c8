"""Does the short forms of the papers' findings, and says which of them pass."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.base.formats import aligned
from experiments.base.terminal import say
from experiments.papers.reproduce.findings import FINDINGS
from experiments.papers.reproduce.item import Item, Scale
from experiments.papers.reproduce.reproduce import reproduce
from experiments.papers.reproduce.table import Filled, fill
from experiments.papers.reproduce.work import Shelf

HEAD = ("paper", "verdict", "measured", "criterion", "finding")


@dataclass(frozen=True)
class Checked:
    """What came out.

    Attributes:
      text: a table, a row for each finding.
      passed: whether all findings did.
      complete: False after Ctrl-C.
    """

    text: str
    passed: bool
    complete: bool


def check_findings(paper: str | None, output: Path, data_dir: Path | None) -> Checked:
    """Of one paper, or of all; what is done in the folder is not done again.

    A paper whose data are missing does not pass, and the others are still checked.

    Raises:
      ValueError: there is no such paper.
    """
    if paper not in {None, *FINDINGS}:
        raise ValueError(f"paper: there is no {paper!r}; choose one of {', '.join(FINDINGS)}")
    items, filled = [FINDINGS[paper]] if paper else [*FINDINGS.values()], list[Filled]()
    for item in items:
        complete = _done(item, output, data_dir)
        filled += fill(item, Scale(), Shelf.of(output, Scale()).results(item))
        if not complete:
            break
    names = [item.paper for item in items for _ in item.cells]
    rows = [_row(*pair) for pair in zip(names, filled, strict=False)]
    passed = complete and all(map(passes, filled))
    notes = f"{sum(map(passes, filled))} of {len(filled)} pass; mean +- standard deviation over the seeds"
    return Checked("\n".join([*aligned([HEAD, *rows]), "", notes]), passed, complete)


def passes(one: Filled) -> bool:
    """Whether the number meets its criterion, and would do so one standard deviation higher or lower."""
    return one.verdict == "agrees"


def _done(item: Item, output: Path, data_dir: Path | None) -> bool:
    """Whether it was not interrupted."""
    try:
        return reproduce(item.paper, item.name, data_dir=data_dir, folder=output).complete
    except (ValueError, OSError) as error:
        say(f"error: {item.paper}: {error}", file=sys.stderr)
        return True


def _row(paper: str, one: Filled) -> Sequence[str]:
    verdict = "passes" if passes(one) else "not done" if one.value is None else "does not pass"
    said = f"{one.cell.row}; {one.cell.column}"
    return paper, verdict, one.measured, one.cell.published, said
