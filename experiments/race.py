"""python -m experiments.race [--datasets D ...] [--entrants E ...] [--output DIR]: who is best at one budget?

Every entrant is tuned on each data set for each budget: its few settings (at most 9 trials) are trained on all but a
part of the training records and tested on that part. What was best is trained on all of them, with three seeds, and
tested on the test records. The same command with the same DIR goes on where it was stopped.

Tables go to DIR/race.md, with pictures beside it, of what there is so far. Tuning looks at private records: no epsilon
here covers it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base.command import Parser, command
from experiments.base.outside_errors import outside
from experiments.config.fields import Number, check_each
from experiments.search.race import COURSES, ENTRANTS, SEEDS, race
from experiments.training.trained_run import TrainingError
from fedpriv.engine import compilation_cache


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.race", description=details)
    parser.add_argument("--datasets", nargs="+", default=list(COURSES), choices=list(COURSES))
    parser.add_argument("--entrants", nargs="+", default=list(ENTRANTS), choices=list(ENTRANTS))
    parser.add_argument("--rounds", type=int, help="of every training, in place of the data set's")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of what was chosen ({SEEDS})")
    parser.add_argument("--data-dir", type=Path, help="prepared data sets, as for experiments.run")
    parser.add_argument("--output", type=Path, default=Path("runs/race"), metavar="DIR")
    options = parser.parse_args(argv)
    check_each(Number, **{"--rounds": options.rounds, "--seeds": options.seeds})
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
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, MemoryError, RuntimeError) as error:
        if not (said := outside(error)):
            raise
        print(f"error: {said}; the same command goes on", file=sys.stderr)
        return 1
    print(f"tables and pictures: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
