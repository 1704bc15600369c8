"""python -m experiments.odd_calls: random calls of fedpriv's public functions, with values of any kind.

Each has to give a result, or one line. The functions, their valid arguments and the values are those of
tests/test_any_argument.py.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from pathlib import Path

import tyro


def main(calls: int = 10_000, seed: int = 0) -> None:
    """Prints what gave neither a result nor a line of fedpriv's, and how many calls there were.

    Args:
      calls: how many.
      seed: of the calls.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from odd_arguments import fuzzed

    rng = random.Random(seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # some calls write
        for _ in range(calls):
            if said := fuzzed(rng):
                wrong += 1
                print(said, flush=True)
    print(f"{calls} calls, {wrong} of them neither a result nor one line")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    tyro.cli(main)
