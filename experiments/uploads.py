"""python -m experiments.uploads FOLDER [FOLDER ...] --accuracy A: messages that cohorts sent to reach an accuracy.

The communication complexity of Wang et al. (Figure 4): for each run folder and algorithm with model splitting, the
rounds I until an evaluation shows accuracy A (in [0, 1], mean over the seeds), the uploads M sum_t (K_t + 1) until
then, as recorded, and Proposition 3's bound on them, which is for K_t by Theorem 3 (`--exchanges 0`). Exit code 2:
something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.command_line import Parser, command
from experiments.compare import evaluated
from experiments.formats import NAMES, markdown
from experiments.records import Line
from experiments.runs import RunFolder, titles
from fedpriv.algorithms.msp import uploads_bound


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.uploads", description=details)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--accuracy", type=float, required=True, metavar="A")
    args = parser.parse_args(argv)
    if not 0 <= args.accuracy <= 1:
        raise ValueError(f"--accuracy: {args.accuracy} is not in [0, 1]")
    runs = evaluated(args.folders)
    if lacking := [
        run for run in runs if not all("accuracy" in x for x in run.results.best.values())
    ]:
        raise ValueError(f"FOLDER: {lacking[0].path} has no accuracy; leave it out")
    print(table(runs, args.accuracy))
    return 0


def table(runs: Sequence[RunFolder], accuracy: float) -> str:
    """Markdown.

    Raises:
      ValueError: no run has an algorithm with exchanges.
    """
    head = ["settings", "algorithm", f"rounds to {accuracy:.1%}", "uploads", "Proposition 3"]
    rows = [
        [title, NAMES.get(name, name), *_row(run, name, accuracy)]
        for run, title in zip(runs, titles(runs), strict=True)
        for name in run.lines
        if _exchanges(run, name)
    ]
    if not rows:
        raise ValueError("FOLDER: no algorithm there makes exchanges; give runs of mspdq_* configs")
    return markdown([head, *rows])


def _row(run: RunFolder, name: str, accuracy: float) -> list[str]:
    rounds, sent, reached = uploads_until(run, name, accuracy)
    if not reached:
        return [f"not in {rounds}", f"more than {sent:.0f}", "-"]
    return [str(rounds), f"{sent:.0f}", _bound(run.settings, name, rounds)]


def uploads_until(run: RunFolder, name: str, accuracy: float) -> tuple[int, float, bool]:
    """Rounds and uploads until an evaluation shows `accuracy`, or in the whole run, and whether one does."""
    before, sent = 0, 0.0
    for line in _exchanges(run, name):
        rounds = line.round - before  # since the last evaluation, over which diagnostics are means
        exchanges = line.diagnostics_not_private["exchanges"].mean
        sent += run.settings["cohort"] * rounds * (exchanges + 1)  # (27)
        before = line.round
        if line.metrics["accuracy"].mean >= accuracy:
            return before, sent, True
    return before, sent, False


def _exchanges(run: RunFolder, name: str) -> list[Line]:
    return [line for line in run.lines.get(name, ()) if line.metric("exchanges")]


def _bound(settings: dict[str, Any], name: str, rounds: int) -> str:
    """(25), for eta = a / t = 2 / (mu (theta + t)), t from 1 as in the paper: mu = 2 / a, theta = 0."""
    if name != "mspdq_fl" or settings["exchanges"] != 0:
        return "-"
    bound = uploads_bound(settings["cohort"], rounds, 2 / settings["learning_rate"], 0.0)
    # A message fewer than Theorem 3 asks for would make the bound easy to keep.
    cut = rounds > settings["most_exchanges"] * settings["learning_rate"]
    return f"{bound:.0f}" + (" (K_t cut)" if cut else "")


if __name__ == "__main__":
    sys.exit(main())
