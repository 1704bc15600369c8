"""The law of squared separations where it has too many values to keep all of them: a witness as `verify.Exact`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpriv.pairs import counts
from fedpriv.proof import exact as plain
from fedpriv.proof.exact import Separations
from fedpriv.proof.noise import Floats, gaussian_delta
from fedpriv.proof.pairs import AnyPair, Pair, fold
from fedpriv.proof.verify import Exact

_MOST_VALUES = 10_000  # of the squared separation; more are rounded up to this many cells
_MOST_PAIRS = 10**7  # of values side by side
_NARROW = 5e-3  # of the smallest value, of which that is half a percent
_WHOLE = 1e-9  # relative; so near are multiples of one value


@dataclass(frozen=True)
class Rounded(Exact):
    """The law of `separations`: as exact as `Exact` where that knows it, and rounded up where there are many values."""

    def deltas(self, pair: Pair, epsilon: Floats) -> Floats:
        """By the law."""
        law = separations(pair)
        if law is None:
            raise self.unknown()
        return law.delta(epsilon)


@lru_cache(maxsize=16)
def separations(pair: Pair) -> Separations | None:
    """The law of the squared separation; None where something else is secret.

    Formal guarantees: as `proof.exact.exact`. Where there are too many values, they are rounded up, as the curve rises
    in them. None, too, where several draws have more values than multiples of one.
    """
    law = fold(pair, plain.of_draw, _mixed, _repeated, _composed)
    finite = law is not None and np.all(np.isfinite([law.values, law.chances]))
    return law if finite else None


def exact_or_rounded(pair: AnyPair) -> Exact:
    """The plain law where that is enough."""
    return Rounded() if plain.exact(pair) is None else Exact()


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
    if (law := plain.repeated(once, n)) is not None:
        return law
    values, chances, missing = once
    positive = values[values > 0]
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


def epsilon_of_mixture(precisions: Floats, weights: Floats, missing: float, delta: float) -> float:
    """Smallest epsilon >= 0, in nats, with missing + sum_k w_k delta_Gauss(epsilon; sqrt(p_k)) <= delta.

    Formal guarantees: an upper bound, larger than the exact root by at most 1e-10 + 1e-12 epsilon; infinity if
    `missing` alone reaches delta.

    Args:
        precisions: f64[k], squared separations p_k, n / multiplier^2; 0 means that nothing is seen.
        weights: f64[k], their probabilities w_k.
        missing: probability of the cases left out of `weights`, for which nothing is assumed to be hidden.
        delta: target, in (0, 1).
    """
    from scipy.optimize import brentq

    if missing >= delta:
        return math.inf
    positive = precisions > 0
    if not positive.any():
        return 0.0
    separation, weight = np.sqrt(precisions[positive]), weights[positive]

    def excess(epsilon: float) -> float:
        return float(weight @ gaussian_delta(epsilon, separation)) + missing - delta

    if excess(0.0) <= 0:
        return 0.0
    # Above this the zero-concentrated bound alone is below delta (Bun and Steinke 2016, Proposition
    # 1.3).
    rho = float(separation.max()) ** 2 / 2
    top = rho + 2 * math.sqrt(rho * -math.log(delta - missing)) + 1.0
    root = float(brentq(excess, 0.0, top, xtol=1e-11, rtol=1e-13))
    return root * (1 + 1e-12) + 1e-10
