"""How far a score lies above a rival's, over the seeds, with an interval of 95 %."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL, FEWEST = 0.95, 3
TOO_FEW = "too few seeds"


class Lead(NamedTuple):
    """A score less a rival's.

    Attributes:
      mean: over the seeds.
      low, high: of the interval; None where there are too few seeds for one.
      seeds: behind the mean: those that both have where they are paired, else those of the one that has fewer.
      how: "paired" (Student's t of the differences), "Welch" (of two independent samples) or "too few seeds".
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    how: str

    @property
    def is_told_apart(self) -> bool:
        """Whether there is an interval, and it does not hold 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def text(self, factor: float = 1.0, digits: int = 2) -> str:
        """ "+1.20 (-0.35 to +2.75)", or "+1.20 (too few seeds)"."""
        mean = f"{factor * self.mean:+z.{digits}f}"
        if self.low is None or self.high is None:
            return f"{mean} ({self.how})"
        return f"{mean} ({factor * self.low:+z.{digits}f} to {factor * self.high:+z.{digits}f})"


def lead(own: Sequence[float], rival: Sequence[float], paired: bool = True) -> Lead:
    """How far the score `own` lies above `rival`.

    Args:
      own, rival: a score for each seed, from seed 0.
      paired: whether a seed means the same for both: the same clients, the same initial model. Then what one has
        further seeds is left out.
    """
    seeds = min(len(own), len(rival))
    with np.errstate(invalid="ignore"):  # of scores that are infinite
        if paired:
            own, rival = own[:seeds], rival[:seeds]
        mean = float(np.mean(own) - np.mean(rival))
    if seeds < FEWEST or not math.isfinite(mean):
        return Lead(mean, None, None, seeds, TOO_FEW if seeds < FEWEST else "not finite")
    if paired:
        spread = float(np.std(np.subtract(own, rival), ddof=1))
        error, freedom = spread / math.sqrt(seeds), seeds - 1.0
    else:
        error, freedom = _welch(own, rival)
    half = float(error) * _quantile(freedom)
    return Lead(mean, mean - half, mean + half, seeds, "paired" if paired else "Welch")


def _welch(own: Sequence[float], rival: Sequence[float]) -> tuple[float, float]:
    """Standard error of the difference of the means, and its degrees of freedom by Satterthwaite."""
    parts = [np.var(x, ddof=1) / len(x) for x in (own, rival)]
    total = sum(parts)
    each = sum(p**2 / (len(x) - 1) for p, x in zip(parts, (own, rival), strict=True))
    return math.sqrt(total), float(total**2 / each) if each else math.inf


def _quantile(freedom: float) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + LEVEL) / 2, freedom))
