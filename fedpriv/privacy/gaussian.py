"""Privacy curves delta(epsilon) of Gaussian releases, in closed form.

A curve is the hockey-stick divergence H_{e^eps}(P || Q) = sup_S P(S) - e^eps Q(S) of a pair that no
two neighbours exceed. All functions take arrays, work in logarithms and are checked against
numerical integration in the tests.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def gaussian_delta(epsilon: ArrayLike, separation: ArrayLike) -> Floats:
    """delta(epsilon) of N(separation, 1) against N(0, 1), for any real epsilon.

    Formal guarantees: exact (Balle and Wang 2018, Theorem 8); `separation` is sqrt(steps) /
    multiplier for composed, also adaptively composed, Gaussian releases (Dong, Roth and Su 2022,
    Corollary 3.3).

    Args:
        epsilon: nats.
        separation: distance of the means in standard deviations, above 0; broadcast against
            `epsilon`.
    """
    from scipy.special import log_ndtr

    eps, mu = np.asarray(epsilon, float), np.asarray(separation, float)
    upper = log_ndtr(mu / 2 - eps / mu)
    lower = eps + log_ndtr(-mu / 2 - eps / mu)
    return np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0))


def remove_delta(epsilon: ArrayLike, multiplier: float, rate: float) -> Floats:
    """delta(epsilon >= 0) of (1 - rate) N(0, 1) + rate N(1 / multiplier, 1) against N(0, 1).

    Formal guarantees: exact. Splitting off the common part of the two distributions leaves
    rate * delta_Gauss(log(1 + (e^eps - 1) / rate)) (Balle, Barthe and Gaboardi 2018, Theorem 2).
    """
    eps = np.asarray(epsilon, float)
    # log(1 + (e^eps - 1) / rate), without the overflow of e^eps.
    inner = eps - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-eps))
    return rate * gaussian_delta(inner, 1 / multiplier)


def replace_delta(epsilon: ArrayLike, multiplier: float, rate: float) -> Floats:
    """Dominating curve of a fixed-size cohort without replacement, when one unit is replaced.

    For epsilon >= 0 this is `remove_delta` at the *replace-one* multiplier; for epsilon < 0 it is
    1 - e^eps + e^eps * remove_delta(-eps).

    Formal guarantees: an upper bound on every pair of neighbours, attained for one round. Composed,
    it is still a bound but no longer attained (one curve stands for both directions): 3.489 in the
    tests' example, where a concrete pair has 3.214.

    *epsilon >= 0.* Write M(D) = (1 - q) A + q B and M(D') = (1 - q) A + q B', where A is the output
    given that the unit is not drawn, B and B' given that it is. Advanced joint convexity (Balle,
    Barthe and Gaboardi 2018, Theorem 2) bounds H_{e^eps}(M(D) || M(D')) by q times a convex
    combination of H_{e^eps'}(B || A) and H_{e^eps'}(B || B'), e^eps' = 1 + (e^eps - 1) / q. Both
    pairs differ by one replaced member of the cohort (for B || A: give the unit's place to another,
    uniformly chosen, client), hence are dominated by two unit Gaussians 1 / multiplier apart. It is
    attained by a unit that moves from u to -u while all the others hold -u.

    *epsilon < 0.* H_a(P || Q) = 1 - a + a H_{1/a}(Q || P) for all P, Q, and replacing is a
    symmetric relation.

    Adaptive composition of such curves, and the subsampled pair: Zhu, Dong and Wang 2022 (arXiv
    2106.08567).
    """
    eps = np.asarray(epsilon, float)
    forward = remove_delta(np.abs(eps), multiplier, rate)
    weight = np.exp(np.minimum(eps, 0.0))  # e^eps where eps < 0, else 1
    return np.asarray((1 - weight) + weight * forward)


def epsilon_of_mixture(precisions: Floats, weights: Floats, missing: float, delta: float) -> float:
    """Smallest epsilon >= 0 with missing + sum_k w_k delta_Gauss(epsilon; sqrt(p_k)) <= delta.

    Formal guarantees: an upper bound, larger than the exact root by at most 1e-10 + 1e-12 epsilon.

    Args:
        precisions: squared separations p_k, n / multiplier^2; 0 means that nothing is seen.
        weights: their probabilities w_k.
        missing: probability of the cases left out of `weights`, for which nothing is assumed to be
            hidden.
        delta: target, in (0, 1).

    Returns:
        Epsilon in nats; infinity if `missing` alone reaches delta.
    """
    from scipy.optimize import brentq

    if missing >= delta:
        return math.inf
    seen = precisions > 0
    if not seen.any():
        return 0.0
    separation, weight = np.sqrt(precisions[seen]), weights[seen]

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
