"""Rényi accounting as the papers do it: orders, conversion, Poisson subsampled Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedpriv.pairs.divergences import quiet

# The orders of the library that the papers used (TensorFlow Privacy, Opacus).
PAPER_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64))


def to_epsilon(
    divergences: NDArray[np.float64], orders: Sequence[float] | NDArray[np.float64], delta: float
) -> float:
    """A claim's smallest epsilon = rdp + log(1 / delta) / (order - 1) over the orders, in nats (Mironov 2017, Prop. 3).

    Args:
        divergences: f64[orders], Rényi divergence of the whole run at each order.
        orders: f64[orders], above 1.
        delta: probability, in (0, 1).
    """
    return float(np.min(divergences + math.log(1 / delta) / (np.asarray(orders) - 1)))


def poisson_rdp_epsilon(multiplier: float, rate: float, rounds: int, delta: float) -> float:
    """A claim's epsilon of `rounds` Poisson subsampled Gaussians (Mironov, Talwar and Zhang 2019).

    Args:
        multiplier: standard deviation of the noise over the clip norm.
        rate: probability that a given unit is drawn.
        rounds: number of rounds.
        delta: probability, in (0, 1).
    """
    if rounds == 0 or math.isinf(multiplier):
        return 0.0
    if multiplier < 1e-50:  # epsilon is beyond 1e99, and floats would overflow on the way
        return math.inf
    return to_epsilon(rounds * _of_a_round(min(multiplier, 1e50), rate), PAPER_ORDERS, delta)


@lru_cache(maxsize=256)
def _of_a_round(multiplier: float, rate: float) -> NDArray[np.float64]:
    """Rényi divergences of one round at the papers' orders."""
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier))
    with quiet():
        return np.asarray(RdpAccountant(PAPER_ORDERS).compose(event).rdp)
