"""fedpriv sweep [CONFIG] --grid F=a,b ... [--field value ...] [--output DIR] [--json]: a grid of runs.

Every point of the grid (the product of all --grid) is a run folder under DIR, by default runs/sweep-CONFIG-DATE-TIME.
The same command with the same DIR goes on where it was stopped. At the end: a table, in DIR/table.md, table.csv and
table.tex, too. No epsilon in it covers choosing a point by that table. Fields are those of --help, nested ones by dots,
several words in quotes.

--folds N chooses on the training records: each point is trained N times, without one of N parts of them, and scored on
that part. The test records stay unseen. No epsilon covers this choice either.

--best-of MEAN chooses under a certificate: of a geometric number of trials at random points, DIR keeps the model that
is best on the test set, which must be public, and a certificate that covers the choice (Papernot and Steinke 2022).
With --target-epsilon the noise of all trials is such that the choice costs that. Whoever runs the simulation sees the
other trials all the same; beginning again is another release.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedpriv.engine import compilation_cache
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import (
    HELP,
    config_name,
    listing,
    parse,
    split_options,
    words,
)
from fedpriv.experiments.config.settings import Settings, as_typed
from fedpriv.experiments.search.plan import Asked
from fedpriv.experiments.search.sweep import folder_of, swept

DETAILS = (__doc__ or "").partition("\n\n")[2]


@dataclass(frozen=True)
class Options:
    """Options of the command `sweep`, beside the config's."""

    grid: tyro.conf.UseAppendAction[
        Annotated[tuple[tuple[str, ...], ...], tyro.conf.arg(metavar="FIELD=A,B,C")]
    ] = ()
    """What to vary."""
    folds: int | None = None
    """Choose by cross-validation on so many parts of the training records."""
    best_of: float | None = None
    """Keep the best of a random number of trials with this mean."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class AllOptions(Options):
    """With the config's own `output`, which is the folder of the sweep here."""

    output: Path | None = None


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        say(listing())
        return 0
    options, rest = split_options(AllOptions, args)
    asked = _asked(rest, options)
    compilation_cache.cache_programs()
    with folder_of(asked, options.output) as folder, signals.unheard():
        goes_on = f"the same command with --output {folder} goes on"
        try:
            found = swept(asked, folder)
        except (OSError, MemoryError, RuntimeError) as error:
            if not (said := outside(error)):
                raise
            say(f"error: {said}; {goes_on}", file=sys.stderr)
            return 1
        if not found.complete:
            say(f"interrupted; {goes_on}", file=sys.stderr)
            return signals.INTERRUPTED
        say(json.dumps(found.answer, indent=2) if options.json else found.text)
    return 0


def _asked(args: list[str], options: AllOptions) -> Asked:
    """The sweep that the words describe; `args` are those that are no options of the command."""
    name, module = modules.named(config_name(args))
    pairs = [text.partition("=") for texts in options.grid for text in texts]
    grid = [(field.lstrip("-"), values.split(",")) for field, _, values in pairs]
    for field, _ in grid:
        if field.replace("-", "_") in {own.name for own in fields(Options)}:
            raise ValueError(f"grid: {field} is an option of the command; give --{field} VALUE")

    def settle(values: Mapping[str, Any]) -> Settings:
        typed = (words(field, as_typed(value).split()) for field, value in values.items())
        return parse(module, name, [*args, *chain(*typed)], "sweep", Options, DETAILS)

    if set(HELP) & set(args):
        settle({})
    given = [w.partition("=")[0].lstrip("-").replace("-", "_") for w in args if w[:2] == "--"]
    return Asked(name, module, grid, settle, given, options.folds, options.best_of)
