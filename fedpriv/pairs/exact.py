"""The exact law of what is seen, where all noise is Gaussian, and how far it was moved is told."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpriv.pairs import counts
from fedpriv.pairs.algebra import Moved, Pair, fold
from fedpriv.pairs.curves import Floats, gaussian_delta

_TAIL = 1e-30  # numbers of draws rarer than this, on either side, are counted as delta = 1
_MOST_VALUES = 10_000  # of the squared separation; more are rounded up to this many cells
_MOST_PAIRS = 10**7  # of values side by side
_NARROW = 5e-3  # of the smallest value, of which that is half a percent
_WHOLE = 1e-9  # relative; so near are multiples of one value


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
    """The law of the squared separation; None where something else is secret.

    Formal guarantees: the pair is that of the law and, given a value v, N(sqrt(v), 1) against N(0, 1): Gaussian draws
    that are moved by d_k, also where d_k depends on what was seen before, are one that is moved by sqrt(sum_k d_k^2)
    (Dong, Roth and Su 2022, Corollary 3.3). Where there are too many values, they are rounded up, as the curve rises
    in them.

    None, too, where several draws have more values than multiples of one.
    """
    law = fold(pair, _of_draw, _mixed, _repeated, _composed)
    if law is None or not np.all(np.isfinite([law.values, law.chances])):
        return None
    return law


def _of_draw(draw: Pair) -> Separations | None:
    if not (isinstance(draw, Moved) and draw.noise == "gaussian" and draw.is_sure):
        return None
    if math.isinf(draw.law[0][0]):
        return Separations(np.zeros(0), np.zeros(0), 1.0)
    return Separations(np.array([draw.law[0][0] ** 2]), np.ones(1), 0.0)


def _mixed(cases: list[tuple[float, Separations | None]]) -> Separations | None:
    values, chances, missing = [], [], 0.0
    for chance, law in cases:
        if law is None:
            return None
        values.append(law.values)
        chances.append(chance * law.chances)
        missing += chance * law.missing
    return Separations(*_merged(np.concatenate(values), np.concatenate(chances)), missing)


def _repeated(once: Separations | None, n: int) -> Separations | None:
    if once is None:
        return None
    values, chances, missing = once
    positive = values[values > 0]
    if len(values) == 1 or len(positive) == 0:
        return Separations(n * values, chances, n * missing)
    if len(values) == 2 and values[0] == 0 and not missing:
        number, law, rest = _binomial(n, float(chances[1]))
        return Separations(number * values[1], law, rest)
    multiples = values / positive[0]
    whole = np.rint(multiples)
    if np.any(np.abs(multiples - whole) > _WHOLE * whole) or n * whole.max() > 2**53:
        return None
    unit = float(np.max(positive / whole[values > 0]))
    law_of_one = counts.from_values(whole, chances)
    total = counts.total(law_of_one._replace(missing=law_of_one.missing + missing), n)
    return Separations(unit * total.values, total.chances, total.missing)


def _composed(each: list[Separations | None]) -> Separations | None:
    values, chances, missing = np.zeros(1), np.ones(1), 0.0
    for law in each:
        if law is None:
            return None
        missing += law.missing
        n, p = law.values, law.chances
        if len(values) * len(n) > _MOST_PAIRS:
            values, chances = _merged(values, chances, _MOST_PAIRS // 4000)
            n, p = _merged(n, p, 4000)
        values = np.add.outer(values, n).ravel()
        chances = np.multiply.outer(chances, p).ravel()
        values, chances = _merged(values, chances)
    return Separations(values, chances, missing)


def _binomial(trials: int, rate: float) -> tuple[Floats, Floats, float]:
    from scipy.stats import binom

    count = binom(trials, rate)
    # The upper end by the number of the others: scipy's `isf` gives up on tails this thin.
    low, others = (max(int(binom(trials, p).ppf(_TAIL)), 0) for p in (rate, 1 - rate))
    n = np.arange(low, trials - others + 1)
    return n.astype(float), count.pmf(n), float(count.cdf(n[0] - 1) + count.sf(n[-1]))


def _merged(values: Floats, weights: Floats, most: int = _MOST_VALUES) -> tuple[Floats, Floats]:
    """Equal values as one; where there are more than `most`, rounded up: a larger one has the larger delta.

    To cells of one width, or where that is much beside the smallest value, of one ratio.
    """
    values, where = np.unique(values, return_inverse=True)
    weights = np.bincount(where, weights).astype(np.float64)
    if len(values) > most:
        low, high = values.min(), values.max()
        width = (high - low) / most
        least = values[values > 0].min()
        if width <= _NARROW * least:
            values = low + np.ceil((values - low) / width) * width
        else:
            step = math.log(high / least) / most
            with np.errstate(divide="ignore"):
                cells = np.ceil(np.log(values / least) / step - 1e-9)
            values = least * np.exp(cells * step) * (1 + 1e-8 * step)
        values, where = np.unique(values, return_inverse=True)
        weights = np.bincount(where, weights).astype(np.float64)
    return values, weights
