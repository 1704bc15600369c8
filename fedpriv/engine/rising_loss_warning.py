"""A warning of a run that ended with more test loss than it began with."""

from __future__ import annotations

import numpy as np

from fedpriv.core.callers import warn_where_called
from fedpriv.engine.history import History

LOSSES = ("loss", "perplexity")
"""Metrics that tell it, the first that the score has; no other is known to be a loss."""
LEAST = 4
"""Evaluations; of fewer nothing is said."""
FALSE_ALARMS = 0.005
"""How often it is said of a loss that stays where it is, of independent normal noise alone."""
REMEDIES = (
    "try a smaller learning rate, or fewer rounds; and against noise a smaller clip norm, fewer trained numbers, or "
    "more clients a round"
)


class RisingLossWarning(UserWarning):
    """That the test loss rose.

    Attributes:
      history: of the run, all of it, for one to whom a warning is an error.
    """

    def __init__(self, said: str, history: History):
        super().__init__(said)
        self.history = history


def warn(history: History) -> None:
    """Warns of a test loss, the mean over the seeds, that rose by more than the noise of its own evaluations.

    It is above its first at the end, and its straight line by least squares rises by more than Student's t test grants
    to noise around a level. Nothing is said where the accuracy, if there is one, is above its first at the end.
    """
    evaluations = history.evaluations
    if len(evaluations) < LEAST:
        return
    metrics = evaluations[-1].metrics
    name = next((name for name in LOSSES if name in metrics), None)
    if name is None:
        return
    curves = {
        each: history.metric(each).mean(1) for each in (*LOSSES, "accuracy") if each in metrics
    }
    accuracy = curves.pop("accuracy", np.zeros(2))
    if accuracy[-1] > accuracy[0] or not rises(curves[name]):
        return
    count = len(history.seeds)
    of = f" (mean of {count} seeds)" if count > 1 else ""
    values = ", ".join(
        f"{each} {curve[0]:.4g} to {curve[-1]:.4g}" for each, curve in curves.items()
    )
    first, last = history.rounds[[0, -1]]
    said = (
        f"the test loss rose over {len(evaluations)} evaluations{of}, from round {first} to {last}: {values}; "
        f"{REMEDIES}"
    )
    warn_where_called(RisingLossWarning(said, history), __name__)


def rises(curve: np.ndarray) -> bool:
    """Whether it does, beyond the noise around its line, and ends above its first."""
    from scipy.stats import t as student

    if not np.isfinite(curve).all() or curve[-1] <= curve[0]:
        return False
    at = np.arange(len(curve)) - (len(curve) - 1) / 2
    slope = at @ curve / (at @ at)
    left = curve - curve.mean() - slope * at
    free = len(curve) - 2
    deviation = np.sqrt(left @ left / free / (at @ at))
    return bool(slope > student.ppf(1 - FALSE_ALARMS, free) * deviation)
