"""python -m experiments.sweep [CONFIG] --grid F=a,b ... [--field value ...] [--output DIR] [--json]: a grid of runs.

Every point of the grid (the product of all --grid) is a run folder under DIR. The same command with the same DIR goes
on where it was stopped. At the end: a table, in DIR/table.md, table.csv and table.tex, too. No epsilon in it covers
choosing a point by that table. Fields are those of --help, nested ones by dots, several words in quotes.

--folds N chooses on the training records: each point is trained N times, without one of N parts of them, and scored on
that part. The test records stay unseen. No epsilon covers this choice either.

--best-of MEAN chooses under a certificate: of a geometric number of trials at random points, DIR keeps the model that
is best on the test set, which must be public, and a certificate that covers the choice (Papernot and Steinke 2022).
Whoever runs the simulation sees the other trials all the same; beginning again is another release.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from experiments.base import signals
from experiments.base.command import command
from experiments.base.outside_errors import outside
from experiments.config import Run, modules
from experiments.config.options import config_name, listing, own_options, parse, words
from experiments.config.settings import as_typed
from experiments.search.plan import Asked
from experiments.search.sweep import new_name, swept
from fedpriv.engine import compilation_cache


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        print(listing())
        return 0
    asked, options = _asked(args)
    folder = options.output or new_name(asked.name)
    goes_on = f"the same command with --output {folder} goes on"
    compilation_cache.cache_programs()
    with signals.unheard():
        try:
            found = swept(asked, folder)
        except (OSError, MemoryError, RuntimeError) as error:
            if not (said := outside(error)):
                raise
            print(f"error: {said}; {goes_on}", file=sys.stderr)
            return 1
        if not found.complete:
            print(f"interrupted; {goes_on}", file=sys.stderr)
            return signals.INTERRUPTED
        print(json.dumps(found.answer, indent=2) if options.json else found.text)
    return 0


def _asked(args: list[str]) -> tuple[Asked, argparse.Namespace]:
    """The sweep that the words describe, and the command's own options."""
    name, module = modules.named(config_name(args))
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sweep [CONFIG]",
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        exit_on_error=False,
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--grid", nargs="+", action="extend", default=[], metavar="FIELD=A,B,C", help="to vary")
    option("--folds", type=int, metavar="N", help="choose on N parts of the training records")
    option("--best-of", type=float, metavar="MEAN", help="keep the best of MEAN trials")
    option("--output", type=Path, metavar="DIR", help="default: runs/sweep-CONFIG-DATE-TIME")
    option("--json", action="store_true", help="print one JSON object")
    options, rest = own_options(parser, args)
    pairs = [text.partition("=") for text in options.grid]
    grid = [(field.lstrip("-"), values.split(",")) for field, _, values in pairs]

    def settle(values: Mapping[str, Any]) -> Run:
        typed = (words(field, as_typed(value).split()) for field, value in values.items())
        return parse(module, name, [*rest, *chain(*typed)], "sweep")

    if {"-h", "--help"} & set(rest):
        settle({})
    given = [w.partition("=")[0].lstrip("-").replace("-", "_") for w in rest if w[:2] == "--"]
    return Asked(name, module, grid, settle, given, options.folds, options.best_of), options


if __name__ == "__main__":
    sys.exit(main())
