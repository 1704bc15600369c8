"""Part of experiments.growth: how fast something grows, as the slope of its logarithm, and whether that is too fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

POINTS = 3  # the largest ones, which count: below them, what does not grow hides what does

# Linear work may look a little steeper: a sort's n log n has slope 1 + 1 / ln n, 1.08 from 1e5 to 1e6, and numbers that
# have left the caches cost more each (0.1 is a quarter more per decade). The next thing that is worse, n^1.5, has 1.5.
TOLERANCE = 0.25


class Slope(NamedTuple):
    """d log y / d log x by least squares, and the lowest and highest there is reason to give.

    Attributes:
      low, high: of fits to each turn by itself, or where every point was measured once, of the slopes between
        neighbouring points.
    """

    slope: float
    low: float
    high: float

    @property
    def linear(self) -> bool:
        """Not worse than linear, within the tolerance."""
        return self.slope <= 1 + TOLERANCE


def of_turns(x: Sequence[float], turns: Sequence[Sequence[float]]) -> Slope:
    """Of the medians of what was measured several times at each of the largest `x`, in the same number of turns."""
    x, turns = x[-POINTS:], turns[-POINTS:]
    each = [fit(x, ys) for ys in zip(*turns, strict=True)]
    return Slope(fit(x, [float(np.median(t)) for t in turns]), min(each), max(each))


def of_values(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Of what was measured once at each of the largest `x`."""
    x, y = x[-POINTS:], y[-POINTS:]
    steps = [fit(x[i : i + 2], y[i : i + 2]) for i in range(len(x) - 1)]
    return Slope(fit(x, y), min(steps), max(steps))


def fit(x: Sequence[float], y: Sequence[float]) -> float:
    """Least squares on logarithms."""
    if min(*x, *y) <= 0:
        raise ValueError(f"{list(x)}, {list(y)}: not all positive, so that there is no logarithm")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def as_json(slope: Slope) -> dict[str, Any]:
    return slope._asdict() | {"linear": slope.linear}
