"""A warning of a run that ended with more test loss than it began with."""

from __future__ import annotations

import numpy as np

from fedpriv.core.callers import warn_where_called
from fedpriv.engine.history import History

LOSSES = ("loss", "perplexity")
"""Metrics that tell it, the first that the score has; no other is known to be a loss."""
LEAST = 4
"""Evaluations; of fewer nothing is said."""
REMEDIES = (
    "the training does not help as it is: try a smaller learning rate or clip norm, fewer trained numbers, more "
    "clients a round, or less noise"
)


def warn(history: History) -> None:
    """Warns of a seed's test loss that is above its first at the end, and rose in half of the evaluations or more.

    An evaluation in which it rose is one above the evaluation before. The first, after the first rounds, has none
    before it, and counts as one in which it did not. So a curve that falls is never told of, however noisy it is.
    """
    evaluations = history.evaluations
    if len(evaluations) < LEAST:
        return
    name = next((name for name in LOSSES if name in evaluations[-1].metrics), None)
    if name is None:
        return
    losses = history.metric(name)  # [evaluations, seeds]
    rises = (np.diff(losses, axis=0) > 0).sum(0)
    risen = (losses[-1] > losses[0]) & (2 * rises >= len(losses))
    if not risen.any():
        return
    s = int(np.argmax(np.where(risen, losses[-1] - losses[0], -np.inf)))
    seeds = (
        ""
        if len(risen) == 1
        else f" (seed {history.seeds[s]}; {risen.sum()} of {len(risen)} seeds)"
    )
    values = ", ".join(
        f"{each} {history.metric(each)[0, s]:.4g} to {history.metric(each)[-1, s]:.4g}"
        for each in LOSSES
        if each in evaluations[-1].metrics
    )
    first, last = history.rounds[[0, -1]]
    warn_where_called(
        f"the test loss rose in {rises[s]} of {len(losses)} evaluations{seeds}, from round {first} to {last}: "
        f"{values}; {REMEDIES}",
        __name__,
    )
