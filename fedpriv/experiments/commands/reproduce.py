"""fedpriv reproduce PAPER ITEM [--scale S]: a table or a figure of a paper, published beside measured.

Trains what the item needs and is not there yet, through the launcher, and writes OUTPUT/PAPER/ITEM/table.md, table.csv
and picture.png. --list shows every table and figure of the papers, and which are done.

A paper's items share their trainings (OUTPUT/PAPER/runs), each an ordinary run folder. The same command goes on where
it was stopped.

--findings checks a short form of each paper's main finding, or of one PAPER's, and says which of them pass.

Exit code 2 means that something given was wrong, 1 that a training diverged or a finding did not pass, 130 that it was
interrupted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fedpriv.core.arguments import Rate
from fedpriv.engine import compilation_cache
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number
from fedpriv.experiments.config.options import only_options
from fedpriv.experiments.papers.reproduce.reproduce import (
    DEFAULT_OUTPUT,
    check_findings,
    find,
    forecast,
    listing,
    reproduce,
    scaled_by,
)


@dataclass(frozen=True)
class Options:
    """Options of the command `reproduce`."""

    paper: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="PAPER")] = None
    """fed_smp, dp_scaffold, wavelet or mspdq."""
    item: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="ITEM")] = None
    """table1, fig2, ...: see --list."""
    list: bool = False
    """Show every item and its state."""
    findings: bool = False
    """Check the papers' main findings in a short form."""
    time: bool = False
    """Train two rounds of each algorithm not yet trained here, and estimate how long the item takes."""
    scale: Rate = 1.0
    """Fraction of the paper's rounds and seeds."""
    seeds: Number | None = None
    """Number of seeds in place of the paper's."""
    only: tuple[str, ...] | None = None
    """Train only titles with these words: a config, a row ("top_k p=0.005"). Finished results stay in the table."""
    data_dir: Path | None = None
    """Folder of prepared data sets, as for `fedpriv run`."""
    output: Path = DEFAULT_OUTPUT
    """Folder of everything."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    options = only_options(Options, args, "fedpriv reproduce", __doc__)
    try:
        if options.list:
            say(listing(options.output))
            return 0
        if options.findings:
            compilation_cache.cache_programs()
            with signals.unheard():
                checked = check_findings(options.paper, options.output, options.data_dir)
                say(checked.text)
            if checked.complete:
                return 0 if checked.passed else 1
            raise KeyboardInterrupt
        item, scale = find(options.paper, options.item), scaled_by(options.scale, options.seeds)
        if item.illustration:
            say(f"{item.paper} {item.name}: {item.title}: an illustration, nothing to measure")
            return 0
        compilation_cache.cache_programs()
        if options.time:
            say(forecast(item, scale, options.only, options.output, options.data_dir))
            return 0
        with signals.unheard():
            reproduced = reproduce(
                item.paper,
                item.name,
                scale=options.scale,
                seeds=options.seeds,
                only=options.only,
                data_dir=options.data_dir,
                folder=options.output,
                command=shlex.join(["fedpriv", "reproduce", *args]),
            )
            if reproduced.complete:
                say(f"{reproduced.text}\nfolder: {reproduced.folder}")
                return 1 if reproduced.problems else 0
    except KeyboardInterrupt:
        pass
    say("interrupted; the same command goes on", file=sys.stderr)
    return signals.INTERRUPTED
