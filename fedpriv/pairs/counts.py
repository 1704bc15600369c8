"""Sums of independent whole numbers, rounded up where there are too many values to keep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpriv.proof.noise import Floats

_MOST = 8192  # values that are kept
_TAIL = 1e-40  # of a sum, on either side, that is left out


class Counts(NamedTuple):
    """The law of a count, on low, low + width, ...

    Attributes:
        low, width: whole numbers, width at least 1.
        chances: f64[k].
        missing: probability of what is left out.
    """

    low: int
    width: int
    chances: Floats
    missing: float

    @property
    def values(self) -> Floats:
        """f64[k]."""
        return np.asarray(self.low + self.width * np.arange(len(self.chances)), np.float64)


def from_values(values: Floats, chances: Floats) -> Counts:
    """The law of counts that are one of `values`, whole numbers but for rounding, that rise, f64[k]."""
    likely = np.flatnonzero(chances > _TAIL)
    kept = slice(likely[0], likely[-1] + 1)
    where = np.ceil(values[kept] - 1e-9).astype(np.int64)  # sqrt(3)^2 is less than 3 here
    low, high = int(where[0]), int(where[-1])
    width = max(1, -(-(high - low) // _MOST))
    cells = -((low - where) // width)
    missing = float(chances[: kept.start].sum() + chances[kept.stop :].sum())
    return Counts(low, width, _summed(cells, chances[kept]), missing)


def total(once: Counts, times: int) -> Counts:
    """The law of the sum of `times` independent counts.

    Formal guarantees: stochastically no smaller than the sum, but for `missing`. Chances are sums of products of
    chances, with no cancellation.
    """
    counted: Counts | None = None
    while times:
        if times % 2:
            counted = once if counted is None else _plus(counted, once)
        times //= 2
        if times:
            once = _plus(once, once)
    return counted or Counts(0, 1, np.ones(1), 0.0)


def _plus(a: Counts, b: Counts) -> Counts:
    width = max(a.width, b.width)
    a, b = _on(a, a.low, width), _on(b, b.low, width)
    chances = np.convolve(a.chances, b.chances)
    both = _kept(Counts(a.low + b.low, width, chances, a.missing + b.missing))
    while len(both.chances) > _MOST:
        both = _on(both, both.low, 2 * both.width)
    return both


def _on(law: Counts, low: int, width: int) -> Counts:
    """Rounded up to low, low + width, ...; no value is below `low`."""
    values = law.low + law.width * np.arange(len(law.chances))
    cells = -((low - values) // width)
    return Counts(low, width, _summed(cells, law.chances), law.missing)


def _summed(cells: NDArray[np.int64], chances: Floats) -> Floats:
    return np.bincount(cells, chances).astype(np.float64)


def _kept(law: Counts) -> Counts:
    """Without the tails."""
    below, above = np.cumsum(law.chances), np.cumsum(law.chances[::-1])
    start, end = int(np.sum(below <= _TAIL)), int(np.sum(above <= _TAIL))
    stop = len(law.chances) - end
    left_out = float(law.chances[:start].sum() + law.chances[stop:].sum())
    low = law.low + start * law.width
    return Counts(low, law.width, law.chances[start:stop], law.missing + left_out)
