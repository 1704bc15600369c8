"""python -m experiments.reproduce PAPER ITEM [--scale S]: a table or a figure of a paper, published beside measured.

Trains what the item needs and is not there yet, through the launcher, and writes OUTPUT/PAPER/ITEM/table.md, table.csv
and picture.png. --list shows every table and figure of the papers, and which are done.

A paper's items share their trainings (OUTPUT/PAPER/runs), each an ordinary run folder. The same command goes on where
it was stopped.

Exit code 2 means that something given was wrong, 1 that a training diverged, 130 that it was interrupted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base import signals
from experiments.base.command import Parser, command
from experiments.config.fields import Number, check_each
from experiments.papers.reproduce.catalogue import PAPERS
from experiments.papers.reproduce.reproduce import (
    DEFAULT_OUTPUT,
    find,
    forecast,
    listing,
    reproduce,
    scaled_by,
)
from fedpriv.engine import compilation_cache


@command
def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given)
    try:
        if options.list:
            print(listing(options.output))
            return 0
        check_each(Number, **{"--seeds": options.seeds})
        item, scale = find(options.paper, options.item), scaled_by(options.scale, options.seeds)
        if item.illustration:
            print(f"{item.paper} {item.name}: {item.title}: an illustration, nothing to measure")
            return 0
        compilation_cache.cache_programs()
        if options.time:
            print(forecast(item, scale, options.only, options.output, options.data_dir))
            return 0
        with signals.unheard():
            found = reproduce(
                item.paper,
                item.name,
                scale=options.scale,
                seeds=options.seeds,
                only=options.only,
                data_dir=options.data_dir,
                folder=options.output,
                command=shlex.join(["python", "-m", "experiments.reproduce", *given]),
            )
            if found.complete:
                print(f"{found.text}\nfolder: {found.folder}")
                return 1 if found.problems else 0
    except KeyboardInterrupt:
        pass
    print("interrupted; the same command goes on", file=sys.stderr)
    return signals.INTERRUPTED


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


if __name__ == "__main__":
    sys.exit(main())
