"""python -m experiments.odd_calls: random calls of fedpriv's public functions, with values of any kind.

Each has to give a result, or one line. The functions, their valid arguments and the values are those of
tests/test_any_argument.py.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number
from fedpriv.experiments.config.options import only_options


@dataclass(frozen=True)
class Options:
    """Options of the command `odd_calls`."""

    calls: Number = 10_000
    """How many."""
    seed: int = 0
    """Of the calls."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Prints which odd calls gave neither a result nor a line of fedpriv's, and how many calls there were."""
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "python -m experiments.odd_calls", __doc__
    )
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from odd_arguments import fuzzed

    rng = random.Random(options.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # some calls write
        for _ in range(options.calls):
            if said := fuzzed(rng):
                wrong += 1
                say(said, flush=True)
    say(f"{options.calls} calls, {wrong} of them neither a result nor one line")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
