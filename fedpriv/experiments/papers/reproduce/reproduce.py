"""A table or a figure of a paper, published beside measured: trains what it needs and is not there yet.

A paper's items share their trainings (OUTPUT/PAPER/runs), each an ordinary run folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.core.arguments import Rate, checked
from fedpriv.core.complaints import require
from fedpriv.devices.distributed import slurm_step
from fedpriv.engine.checkpoint import OtherRunError
from fedpriv.experiments.base.formats import aligned
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number
from fedpriv.experiments.papers.reproduce import page
from fedpriv.experiments.papers.reproduce.catalogue import PAPERS
from fedpriv.experiments.papers.reproduce.cost import Cost, Speeds, left_of, time_rounds
from fedpriv.experiments.papers.reproduce.findings import FINDINGS
from fedpriv.experiments.papers.reproduce.item import Item, Scale, Training, Work
from fedpriv.experiments.papers.reproduce.table import Filled, fill
from fedpriv.experiments.papers.reproduce.work import Shelf, perform, status
from fedpriv.experiments.training.trained_run import TrainingError

DEFAULT_OUTPUT = Path("runs/reproduce")
HEAD = ("paper", "verdict", "measured", "criterion", "finding")  # of `check_findings`


@dataclass(frozen=True)
class Reproduced:
    """The state of an item that is reproduced.

    Attributes:
      folder: holds table.md, table.csv and picture.png.
      text: the text of table.md.
      complete: whether everything asked for was done; False after Ctrl-C.
      problems: one line for each failure, such as a training that diverged.
    """

    folder: Path
    text: str
    complete: bool
    problems: tuple[str, ...]


def find(paper: str | None, name: str | None) -> Item:
    """The item of a paper.

    Raises:
      ValueError: there is no such item.
    """
    if paper not in PAPERS:
        given = "none given" if paper is None else f"there is no {paper!r}"
        raise ValueError(f"paper: {given}; choose one of {', '.join(PAPERS)} (see --list)")
    short = [FINDINGS[paper]] if paper in FINDINGS else []
    items = {item.name: item for item in (*PAPERS[paper], *short)}
    if name not in items:
        given = "none given" if name is None else f"{paper} has no {name!r}"
        raise ValueError(f"item: {given}; choose one of {', '.join(items)}")
    return items[name]


def reproduce(
    paper: str,
    item: str,
    *,
    scale: float = 1.0,
    seeds: int | None = None,
    only: Sequence[str] | None = None,
    data_dir: str | Path | None = None,
    folder: str | Path = DEFAULT_OUTPUT,
    progress: bool = True,
    command: str = "",
) -> Reproduced:
    """Does the missing work of an item, and writes the results so far; the same call again continues.

    Args:
      paper, item: see `fedpriv reproduce --list`.
      scale: fraction of the paper's rounds and seeds, in (0, 1].
      seeds: their number in place of the paper's.
      only: trains only what has all words of one of these texts in its title.
      folder: where everything is kept.
      progress: whether to report progress and the remaining time on standard error.
      command: the command that the page names as its origin.

    Raises:
      ValueError: there is no such item, or it has nothing to measure; existing results are damaged.
    """
    found, size = find(paper, item), scaled_by(scale, seeds)
    if found.illustration:
        raise ValueError(f"{paper} {item}: {found.title}: an illustration, nothing to measure")
    if slurm_step():
        raise ValueError("reproduce: runs in one process; start it without srun")
    output = Path(folder)
    shelf = Shelf.of(output, size)
    done = shelf.results(found)
    left = [work for work in chosen(found, only) if work not in done]
    speeds = output / paper
    cost = Speeds(speeds).cost(left, size)
    if progress:
        say(f"{hint(found, size, len(done), left)}{_on_this_machine(cost)}", file=sys.stderr)
    problems, complete = list[str](), True
    try:
        for number, work in enumerate(left, 1):
            if progress:
                rest = _on_this_machine(Speeds(speeds).cost(left[number - 1 :], size))
                say(f"[{number}/{len(left)}] {work.title}{rest}", file=sys.stderr)
            try:
                data = Path(data_dir) if data_dir else None
                perform(work, size, shelf.run(found, work), data, progress)
            except TrainingError as error:
                problems.append(str(error))
                if progress:
                    say(f"error: {error}", file=sys.stderr)
                if isinstance(error.run.error, OtherRunError):
                    raise ValueError(str(error)) from None
    except KeyboardInterrupt:
        complete = False
    finally:
        said = command or f"experiments.reproduce({paper!r}, {item!r}, scale={scale:g})"
        text = page.write(found, size, shelf.results(found), shelf.item(found), said)
    return Reproduced(shelf.item(found), text, complete, tuple(problems))


def scaled_by(scale: float, seeds: int | None) -> Scale:
    """The scale of an item; raises ValueError where it is none."""
    return Scale(checked("scale", scale, Rate), checked("seeds", seeds, Number | None))


def forecast(
    item: Item, scale: Scale, only: Sequence[str] | None, output: Path, data_dir: Path | None
) -> str:
    """What the item takes, after rounds of it were timed; trains nothing else."""
    shelf = Shelf.of(output, scale)
    left = [work for work in chosen(item, only) if not shelf.ended(item, work)]
    folder = output / item.paper
    speeds = time_rounds(left, Speeds(folder), folder, data_dir)
    cost = speeds.cost(left, scale)
    remark = f", {cost.unknown} piece(s) of work not counted" if cost.unknown else ""
    return f"{item.paper} {item.name} at {scale.name}: {cost} left on this machine{remark}"


def _on_this_machine(cost: Cost) -> str:
    return f"; {cost} left on this machine" if cost.seconds else ""


def chosen(item: Item, only: Sequence[str] | None) -> list[Work]:
    """An item's work in whose title all words of one of the texts occur; raises ValueError where there is none."""
    if only is None:
        return item.needs
    texts = isinstance(only, list | tuple) and all(isinstance(text, str) for text in only)
    require(texts, "only", only, "give texts, in a list")
    wanted = [set(text.split()) for text in only]
    chosen = [
        work for work in item.needs if any(words <= set(work.title.split()) for words in wanted)
    ]
    if not chosen:
        titles = "; ".join(work.title for work in item.needs)
        raise ValueError(f"only: nothing has the words {' or '.join(only)!r}; there are: {titles}")
    return chosen


def hint(item: Item, scale: Scale, done: int, left: Sequence[Work]) -> str:
    """What is about to be done for an item, before it begins."""
    trainings = [work for work in left if isinstance(work, Training)]
    rounds = sum(scale.of(t.rounds) * scale.seeds(t.seeds) for t in trainings)
    computed = len(left) - len(trainings)
    now = (
        [f"{len(trainings)} training(s), {rounds:,} round(s), each seed's counted"]
        if trainings
        else []
    )
    now += [f"{computed} computation(s)"] if computed else []
    return f"{item.paper} {item.name}: {done} of {len(item.needs)} done; now {' and '.join(now) or 'nothing'}"


def listing(output: Path) -> str:
    """Every table and figure that can be reproduced, and how far it has come."""
    lines = []
    for paper, items in PAPERS.items():
        speeds = Speeds(output / paper)
        rows = [
            (item.name, status(item, output), left_of(item, output, speeds), item.title)
            for item in items
        ]
        lines += [paper, *aligned([("item", "status", "time left", "title"), *rows]), ""]
    lines.append(
        "time left: in full, on this machine, from the rounds that were trained on it; ?: none yet (PAPER ITEM --time "
        "times two)"
    )
    return "\n".join(lines)


@dataclass(frozen=True)
class Checked:
    """What came out of a check of papers' findings.

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
    """Whether a finding's number meets its criterion, and would do so one standard deviation higher or lower."""
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
