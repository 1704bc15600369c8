"""The Gaussian trade-off curve that says most of what is proved of a run in one number.

F. Gomez, B. Kulynych, G. Kaissis et al., "(epsilon, delta) considered harmful: best practices for reporting privacy",
2025.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.proof.noise import Floats, gaussian_delta

TOLERANCE = 1e-10
"""Of the false-negative rate. Without one, what happens once in 1e100 runs would decide about mu."""
_LARGEST = 1e4  # mu; nobody is hidden then
_RATES = np.concatenate([np.geomspace(1e-9, 0.01, 100), np.linspace(0.01, 1.0, 300)])


class GaussianBound(NamedTuple):
    """A run hides a unit as well as Gaussian noise of multiplier 1 / mu hides one that is certain to take part.

    Attributes:
      mu: the least, for false-negative rates up to 1e-10.
      regret: how far the bound lies below the curve that is proved, 0 where that is Gaussian: the least k such that
        attackers on the curve who err k more often, in both ways, are below the bound.
    """

    mu: float
    regret: float


def gaussian_bound(
    epsilons: Floats, deltas: Floats, false_negative_rate: Callable[[ArrayLike], Floats]
) -> GaussianBound | None:
    """Of a privacy profile; None where no mu holds, as when something is not hidden at all.

    Args:
      epsilons, deltas: as of `PrivacyProfile`.
      false_negative_rate: its trade-off curve.
    """
    if deltas[-1] > TOLERANCE or not _is_above(_LARGEST, epsilons, deltas):
        return None
    low, high = 0.0, _LARGEST
    while high - low > 1e-9 * high and high > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if _is_above(middle, epsilons, deltas) else (middle, high)
    return GaussianBound(high, _regret(high, false_negative_rate))


def _is_above(mu: float, epsilons: Floats, deltas: Floats) -> bool:
    """Whether the profile of Gaussian noise is above the other, and by `TOLERANCE` below it at most.

    Both are convex in x = e^epsilon. So between two points the other lies below the line through its values there, and
    the Gaussian one above its tangents at both: the line and the tangents are compared where these cross.
    """
    from scipy.special import log_ndtr

    here = gaussian_delta(epsilons, mu) + TOLERANCE
    if (here < deltas).any():
        return False
    slopes = -np.exp(epsilons + log_ndtr(-mu / 2 - epsilons / mu))  # x times the derivative by x
    ratio = np.exp(np.minimum(np.diff(epsilons), 700.0))  # v = x / x_i runs from 1 to this
    first, second = here[:-1] - slopes[:-1], here[1:] - slopes[1:]  # at v = 0
    turn = slopes[:-1] - slopes[1:] / ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        v = np.nan_to_num((second - first) / turn, nan=1.0)
    v = np.clip(v, 1.0, ratio)
    tangents = np.maximum(first + slopes[:-1] * v, second + slopes[1:] / ratio * v)
    line = deltas[:-1] + (v - 1) / (ratio - 1) * np.diff(deltas)
    return bool((tangents >= line).all())


def _regret(mu: float, false_negative_rate: Callable[[ArrayLike], Floats]) -> float:
    from scipy.special import ndtr, ndtri

    bound = ndtr(ndtri(1 - _RATES) - mu)
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        err_more = false_negative_rate(np.minimum(_RATES + middle, 1.0)) - middle
        low, high = (low, middle) if (err_more <= bound).all() else (middle, high)
    return high
