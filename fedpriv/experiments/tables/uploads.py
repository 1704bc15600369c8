"""Messages that cohorts sent to reach an accuracy: the communication complexity of Wang et al. (Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpriv.algorithms.msp import uploads_bound
from fedpriv.core.json_values import of_kind
from fedpriv.experiments.base.formats import markdown_table
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.contents import Line
from fedpriv.experiments.runs.run_folder import CONFIG, RunFolder
from fedpriv.experiments.runs.run_names import titles


def table(runs: Sequence[RunFolder], accuracy: float) -> str:
    """Uploads to reach an accuracy, as a Markdown table.

    Args:
      accuracy: to reach, in [0, 1].

    Raises:
      ValueError: a run has no accuracy, or none has an algorithm with exchanges.
    """
    for run in runs:
        if any(line.metric("accuracy") is None for lines in run.lines.values() for line in lines):
            raise ValueError(f"runs: {run.path} has no accuracy; leave it out")
    head = ["settings", "algorithm", f"rounds to {accuracy:.1%}", "uploads", "Proposition 3"]
    rows = [
        [title, run.name_of(name), *_row(run, name, accuracy)]
        for run, title in zip(runs, titles(runs), strict=True)
        for name in run.lines
        if _exchanges(run, name)
    ]
    if not rows:
        raise ValueError("runs: no algorithm there makes exchanges; give runs of mspdq_* configs")
    return markdown_table([head, *rows])


def _row(run: RunFolder, name: str, accuracy: float) -> list[str]:
    rounds, sent, reached = uploads_until(run, name, accuracy)
    if not reached.all():
        some = f" (reached by {reached.sum()} of {len(reached)} seeds)" if reached.any() else ""
        return [f"not in {rounds.max()}{some}", f"more than {sent.mean():.0f}", "-"]
    return [_spread(rounds, 1), _spread(sent), _bound(run, name, rounds)]


def uploads_until(
    run: RunFolder, name: str, accuracy: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per seed: rounds and uploads until `accuracy` is seen, or of the whole run, and whether it is."""
    lines = _exchanges(run, name)
    if not lines:  # diverged before the first evaluation
        return np.zeros(1), np.zeros(1), np.zeros(1, bool)
    rounds = np.array([line.round for line in lines])
    since = np.diff(rounds, prepend=0)[:, None]  # diagnostics are means over these rounds
    exchanges = np.array([line.diagnostics_not_private["exchanges"].per_seed for line in lines])
    sent = np.cumsum(_setting(run, "cohort") * since * (exchanges + 1), axis=0)  # (27)
    shown = np.array([line.of_score["accuracy"].per_seed for line in lines]) >= accuracy
    reached = np.asarray(shown.any(axis=0))
    last = np.where(reached, shown.argmax(axis=0), len(lines) - 1)
    return rounds[last], sent[last, np.arange(len(last))], reached


def _spread(per_seed: np.ndarray, decimals: int = 0) -> str:
    s = Spread.of(per_seed)
    return f"{s.mean:.0f}" if s.std is None else f"{s.mean:.{decimals}f} ± {s.std:.{decimals}f}"


def _exchanges(run: RunFolder, name: str) -> list[Line]:
    return [line for line in run.lines.get(name, ()) if line.metric("exchanges")]


def _setting(run: RunFolder, name: str) -> float:
    return of_kind(float, run.settings.get(name), f"{run.path / CONFIG}: settings.{name}")


def _bound(run: RunFolder, name: str, rounds: np.ndarray) -> str:
    """(25), for eta = a / t = 2 / (mu (theta + t)), t from 1 as in the paper: mu = 2 / a, theta = 0."""
    if name != "mspdq_fl" or run.settings.get("exchanges") != 0:
        return "-"
    rate, cohort = _setting(run, "learning_rate"), int(_setting(run, "cohort"))
    bound = np.array([uploads_bound(cohort, int(i), 2 / rate, 0.0) for i in rounds])
    # A message fewer than Theorem 3 asks for would make the bound easy to keep.
    cut = rounds.max() > _setting(run, "most_exchanges") * rate
    return _spread(bound) + (" (K_t cut)" if cut else "")
