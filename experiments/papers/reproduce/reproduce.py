"""The command `reproduce`: a table or a figure of a paper, published beside measured.

Trains what the item needs and is not there yet, through the launcher, and writes OUTPUT/PAPER/ITEM/table.md, table.csv
and picture.png. --list shows every table and figure of the papers, and which are done.

A paper's items share their trainings (OUTPUT/PAPER/runs), each an ordinary run folder. The same command goes on where
it was stopped.

Exit code 2 means that something given was wrong, 1 that a training diverged, 130 that it was interrupted.
"""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from experiments.base import signals
from experiments.base.command import Parser, command
from experiments.base.formats import columns
from experiments.config.fields import Number, check_each
from experiments.papers.reproduce import page
from experiments.papers.reproduce.catalogue import PAPERS
from experiments.papers.reproduce.cost import Cost, Speeds, left_of, time_rounds
from experiments.papers.reproduce.item import Item, Scale, Training, Work
from experiments.papers.reproduce.work import Shelf, perform, status
from fedpriv.devices.distributed import slurm_step

DEFAULT_OUTPUT = Path("runs/reproduce")


@command
def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given)
    typed = shlex.join(["python", "-m", "experiments.reproduce", *given])
    try:
        if options.list:
            print(listing(options.output))
            return 0
        item, scale = _item(options.paper, options.item), _scale(options)
        if item.illustration:
            print(f"{item.paper} {item.name}: {item.title}: an illustration, nothing to measure")
            return 0
        if options.time:
            return forecast(item, scale, options)
        if slurm_step():
            raise ValueError("reproduce: runs in one process; start it without srun")
        with signals.unheard():
            return reproduce(item, scale, options, typed)
    except KeyboardInterrupt:
        return _interrupted()


def _parser() -> Parser:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.reproduce", description=details)
    parser.add_argument("paper", nargs="?", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("item", nargs="?", metavar="ITEM", help="table1, fig2, ...: see --list")
    parser.add_argument("--list", action="store_true", help="every item, and how far it has come")
    parser.add_argument(
        "--time",
        action="store_true",
        help="train two rounds of each algorithm that was never trained here, and say how long the item takes",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="S",
        help="fraction of the paper's rounds and seeds, above 0 and at most 1 (default: 1)",
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="number of seeds in place of the paper's"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="WORDS",
        help='train only what has these words: a config, a row ("top_k p=0.005"); what is done stays in the table',
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="prepared data sets, as for experiments.run"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help=f"folder of everything (default: {DEFAULT_OUTPUT})",
    )
    return parser


def _item(paper: str | None, name: str | None) -> Item:
    """Raises ValueError where there is no such item."""
    if paper not in PAPERS:
        given = "none given" if paper is None else f"there is no {paper!r}"
        raise ValueError(f"PAPER: {given}; choose one of {', '.join(PAPERS)} (see --list)")
    items = {item.name: item for item in PAPERS[paper]}
    if name not in items:
        given = "none given" if name is None else f"{paper} has no {name!r}"
        raise ValueError(f"ITEM: {given}; choose one of {', '.join(items)}")
    return items[name]


def _scale(options: Namespace) -> Scale:
    """Raises ValueError where it is none."""
    if not 0 < options.scale <= 1:
        raise ValueError(f"--scale: {options.scale} is not above 0 and at most 1")
    check_each(Number, **{"--seeds": options.seeds})
    return Scale(options.scale, options.seeds)


def forecast(item: Item, scale: Scale, options: Namespace) -> int:
    """Says what the item takes, after rounds of it were timed; trains nothing else."""
    shelf = Shelf.of(options.output, scale)
    left = [work for work in _chosen(item, options.only) if not shelf.ended(item, work)]
    folder = options.output / item.paper
    speeds = time_rounds(left, Speeds(folder), folder, options.data_dir)
    cost = speeds.cost(left, scale)
    remark = f", {cost.unknown} piece(s) of work not counted" if cost.unknown else ""
    print(f"{item.paper} {item.name} at {scale.name}: {cost} left on this machine{remark}")
    return 0


def reproduce(item: Item, scale: Scale, options: Namespace, command: str) -> int:
    """Does what is missing of the item's work, and writes what there is; returns the exit code."""
    shelf = Shelf.of(options.output, scale)
    done = shelf.results(item)
    left = [work for work in _chosen(item, options.only) if work not in done]
    folder = options.output / item.paper
    cost = Speeds(folder).cost(left, scale)
    print(f"{hint(item, scale, len(done), left)}{_on_this_machine(cost)}", file=sys.stderr)
    code = 0
    try:
        for number, work in enumerate(left, 1):
            rest = _on_this_machine(Speeds(folder).cost(left[number - 1 :], scale))
            print(f"[{number}/{len(left)}] {work.title}{rest}", file=sys.stderr)
            code = max(code, perform(work, scale, shelf.run(item, work), options.data_dir))
            if code > 1:
                break
    except KeyboardInterrupt:
        code = 130
    text = page.write(item, scale, shelf.results(item), shelf.item(item), command)
    if code == 130:
        return _interrupted()
    if code < 2:
        print(f"{text}\nfolder: {shelf.item(item)}")
    return code


def _on_this_machine(cost: Cost) -> str:
    return f"; {cost} left on this machine" if cost.seconds else ""


def _interrupted() -> int:
    print("interrupted; the same command goes on", file=sys.stderr)
    return 130


def _chosen(item: Item, only: Sequence[str] | None) -> list[Work]:
    """The work in whose title all words of one of the texts occur; raises ValueError where there is none."""
    if only is None:
        return item.needs
    wanted = [set(text.split()) for text in only]
    chosen = [
        work for work in item.needs if any(words <= set(work.title.split()) for words in wanted)
    ]
    if not chosen:
        titles = "; ".join(work.title for work in item.needs)
        raise ValueError(
            f"--only: nothing has the words {' or '.join(only)!r}; there are: {titles}"
        )
    return chosen


def hint(item: Item, scale: Scale, done: int, left: Sequence[Work]) -> str:
    """What is about to be done, before it begins."""
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
    """Every table and figure, and how far it has come."""
    lines = []
    for paper, items in PAPERS.items():
        speeds = Speeds(output / paper)
        rows = [
            (item.name, status(item, output), left_of(item, output, speeds), item.title)
            for item in items
        ]
        lines += [paper, *columns([("item", "status", "time left", "title"), *rows]), ""]
    lines.append(
        "time left: in full, on this machine, from the rounds that were trained on it; ?: none yet (PAPER ITEM --time "
        "times two)"
    )
    return "\n".join(lines)
