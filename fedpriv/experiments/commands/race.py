"""fedpriv race [--datasets D ...] [--entrants E ...] [--output DIR]: who is best at one budget?

Every entrant is tuned on each data set for each budget: its few settings (at most 9 trials) are trained on all but a
part of the training records and tested on that part. What was best is trained on all of them, with three seeds, and
tested on the test records. The same command with the same DIR goes on where it was stopped.

Tables go to DIR/race.md, with pictures beside it, of what there is so far. Tuning looks at private records: no epsilon
here covers it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.engine import compilation_cache
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number
from fedpriv.experiments.config.options import only_options
from fedpriv.experiments.search.race import COURSES, ENTRANTS, SEEDS, race
from fedpriv.experiments.training.trained_run import TrainingError


@dataclass(frozen=True)
class Options:
    """Options of the command `race`."""

    datasets: tuple[str, ...] = tuple(COURSES)
    """Data sets to race on."""
    entrants: tuple[str, ...] = tuple(ENTRANTS)
    """Algorithms that race."""
    rounds: Number | None = None
    """Rounds of every training, in place of the data set's."""
    seeds: Number = SEEDS
    """Of what was chosen."""
    data_dir: Path | None = None
    """Folder of prepared data sets, as for `fedpriv run`."""
    output: Path = Path("runs/race")
    """Folder of the race."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(Options, sys.argv[1:] if argv is None else argv, "fedpriv race", __doc__)
    compilation_cache.cache_programs()
    try:
        race(
            options.output,
            datasets=options.datasets,
            entrants=options.entrants,
            rounds=options.rounds,
            seeds=options.seeds,
            data_dir=options.data_dir,
        )
    except TrainingError as error:
        say(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, MemoryError, RuntimeError) as error:
        if not (said := outside(error)):
            raise
        say(f"error: {said}; the same command goes on", file=sys.stderr)
        return 1
    say(f"tables and pictures: {options.output}")
    return 0
