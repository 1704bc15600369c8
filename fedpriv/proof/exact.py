"""The exact law of what is seen, where all noise is Gaussian, and how far it was moved is told."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpriv.proof.noise import Floats, gaussian_delta
from fedpriv.proof.pairs import Moved, Pair, fold

_TAIL = 1e-30  # numbers of draws rarer than this, on either side, are counted as delta = 1
_MOST = 10_000  # values that are kept


class Separations(NamedTuple):
    """The law of the squared separation of all Gaussian draws together, which the view is told.

    Attributes:
        values: f64[k], from 0 on.
        chances: f64[k].
        missing: probability of values left out, of which nothing is hidden (below 1e-29).
    """

    values: Floats
    chances: Floats
    missing: float

    def delta(self, epsilon: Floats) -> Floats:
        """f64[n], exact but for rounding."""
        there = self.values > 0
        each = gaussian_delta(epsilon[:, None], np.sqrt(self.values[there]))
        return np.asarray(each @ self.chances[there] + self.missing)


@lru_cache(maxsize=16)
def exact(pair: Pair) -> Separations | None:
    """The law of the squared separation; None where something else is secret, or there are too many values.

    Formal guarantees: the pair is that of the law and, given a value v, N(sqrt(v), 1) against N(0, 1): Gaussian draws
    that are moved by d_k at most, whatever was seen before, where d_k is told, are dominated by one that is moved by
    sqrt(sum_k d_k^2) (Dong, Roth and Su 2022, Corollary 3.3).
    """
    return fold(pair, of_draw, _mixed, repeated, _composed)


def of_draw(draw: Pair) -> Separations | None:
    """Of a leaf."""
    if not (isinstance(draw, Moved) and draw.noise == "gaussian" and draw.is_sure):
        return None
    if math.isinf(draw.far):
        return Separations(np.zeros(0), np.zeros(0), 1.0)
    return Separations(np.array([draw.far**2]), np.ones(1), 0.0)


def _mixed(cases: list[tuple[float, Separations | None]]) -> Separations | None:
    known = [(chance, law) for chance, law in cases if law is not None]
    if len(known) < len(cases):
        return None
    values = np.concatenate([law.values for _, law in known])
    chances = np.concatenate([chance * law.chances for chance, law in known])
    return _merged(values, chances, sum(chance * law.missing for chance, law in known))


def repeated(once: Separations | None, n: int) -> Separations | None:
    """Of n draws of one value, or of one that is told from nothing: of those their number is binomial."""
    if once is None:
        return None
    values, chances, missing = once
    if len(values) == 1 or not np.any(values > 0):
        return Separations(n * values, chances, n * missing)
    if len(values) == 2 and values[0] == 0 and not missing:
        number, law, rest = _binomial(n, float(chances[1]))
        return Separations(number * values[1], law, rest)
    return None


def _composed(each: list[Separations | None]) -> Separations | None:
    total: Separations | None = Separations(np.zeros(1), np.ones(1), 0.0)
    for law in each:
        if law is None or total is None or len(total.values) * len(law.values) > _MOST:
            return None
        values = np.add.outer(total.values, law.values).ravel()
        chances = np.multiply.outer(total.chances, law.chances).ravel()
        total = _merged(values, chances, total.missing + law.missing)
    return total


def _merged(values: Floats, weights: Floats, missing: float) -> Separations | None:
    """Equal values as one."""
    values, where = np.unique(values, return_inverse=True)
    chances = np.bincount(where, weights).astype(np.float64)
    return Separations(values, chances, missing) if len(values) <= _MOST else None


def _binomial(trials: int, rate: float) -> tuple[Floats, Floats, float]:
    from scipy.stats import binom

    count = binom(trials, rate)
    # The upper end by the number of the others: scipy's `isf` gives up on tails this thin.
    low, others = (max(int(binom(trials, p).ppf(_TAIL)), 0) for p in (rate, 1 - rate))
    n = np.arange(low, trials - others + 1)
    return n.astype(float), count.pmf(n), float(count.cdf(n[0] - 1) + count.sf(n[-1]))
