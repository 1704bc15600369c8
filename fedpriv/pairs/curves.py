"""Privacy curves of single and once-composed noise releases, in closed form.

A curve is the hockey-stick divergence H_{e^eps}(P || Q) = sup_S P(S) - e^eps Q(S) of a pair that no two neighbours
exceed. All functions take arrays, and work in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Curve = Callable[[ArrayLike, ArrayLike], Floats]
"""(epsilon, separation = 1 / multiplier) -> delta of a unit that is certain to take part."""


def gaussian_delta(epsilon: ArrayLike, separation: ArrayLike) -> Floats:
    """The curve delta(epsilon) of N(separation, 1) against N(0, 1), for any real epsilon.

    Formal guarantees: exact (Balle and Wang 2018, Theorem 8); `separation` is sqrt(steps) / multiplier for composed,
    also adaptively composed, Gaussian releases (Dong, Roth and Su 2022, Corollary 3.3).

    Args:
        epsilon: f64[...], nats.
        separation: f64[...], distance of the means in standard deviations, above 0.
    """
    from scipy.special import log_ndtr

    eps, mu = np.asarray(epsilon, float), np.asarray(separation, float)
    upper = log_ndtr(mu / 2 - eps / mu)
    lower = eps + log_ndtr(-mu / 2 - eps / mu)
    return np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0))


def laplace_delta(epsilon: ArrayLike, separation: ArrayLike) -> Floats:
    """The curve delta(epsilon) of Laplace(separation, 1) against Laplace(0, 1), for any real epsilon.

    Formal guarantees: exact on the line, and a bound for any vector release with independent Laplace noise and l1
    distance `separation`. For one shift of a + b the privacy loss is a + b - 2 U, U = min(W, a + b), W being 0 or
    Exp(1) with probability 1/2 each; for shifts a and b along two axes it is the same with U = min(W, a) + min(W', b).
    Both have delta = integral of 2 e^(2u + eps - a - b) Pr[U <= u] over u from 0 to (a + b - eps) / 2. The two Pr[U <=
    u] cross once, the single shift's being larger near 0, and over the whole range the integrals agree: so up to any u
    the single shift's is the larger. More axes: by induction.

    Args:
        epsilon: f64[...], nats.
        separation: f64[...], l1 distance in units of the noise's scale b, above 0.
    """
    eps, mu = np.asarray(epsilon, float), np.asarray(separation, float)
    inside = -np.expm1(np.minimum((eps - mu) / 2, 0.0))  # 0 for eps >= mu
    return np.where(eps <= -mu, -np.expm1(np.minimum(eps, 0.0)), inside)


CURVES: dict[str, Curve] = {"gaussian": gaussian_delta, "laplace": laplace_delta}
"""By the noise's distribution."""


def remove_delta(
    epsilon: ArrayLike, multiplier: float, rate: float, noise: str = "gaussian"
) -> Floats:
    """The curve delta(epsilon >= 0), f64[...], of (1 - rate) P + rate Q against P, for Q = P moved by 1 / multiplier.

    Formal guarantees: exact, rate * delta_0(log(1 + (e^eps - 1) / rate)), delta_0 the curve of Q against P (Balle,
    Barthe and Gaboardi 2018, Theorem 2).

    Args:
        epsilon: f64[...], nats.
        multiplier: noise (standard deviation or Laplace scale) over the distance of Q from P.
        rate: probability that the unit is drawn.
        noise: "gaussian" or "laplace".
    """
    eps = np.asarray(epsilon, float)
    # log(1 + (e^eps - 1) / rate), exact near 0 and without the overflow of e^eps.
    near = np.log1p(np.expm1(np.minimum(eps, 1.0)) / rate)
    far = eps - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-eps))
    return rate * CURVES[noise](np.where(eps < 1, near, far), 1 / multiplier)


def add_delta(
    epsilon: ArrayLike, multiplier: float, rate: float, noise: str = "gaussian"
) -> Floats:
    """The curve delta(epsilon >= 0), f64[...], of P against (1 - rate) P + rate Q, for Q = P moved by 1 / multiplier.

    Formal guarantees: exact. With a = e^eps, P - a ((1 - rate) P + rate Q) = k (P - (a rate / k) Q), k = 1 - a (1 -
    rate): k delta_0(log(a rate / k)), delta_0 the curve of P against Q, and 0 where k <= 0.

    Args:
        epsilon, multiplier, rate, noise: as `remove_delta`.
    """
    eps = np.asarray(epsilon, float)
    left = rate - (1 - rate) * np.expm1(np.minimum(eps, 700.0))
    kept = np.maximum(left, 1e-300)
    curve = kept * CURVES[noise](eps + math.log(rate) - np.log(kept), 1 / multiplier)
    return np.where(left > 0, curve, 0.0)


def seen_delta(epsilon: ArrayLike, rate: float, without_it: bool) -> Floats:
    """The curve delta(epsilon >= 0), f64[...], of a unit that is seen where it is drawn: no noise hides it.

    Args:
        epsilon, rate: as `remove_delta`.
        without_it: the direction, of `add_delta` or of `remove_delta`.
    """
    eps = np.asarray(epsilon, float)
    if not without_it:
        return np.full(eps.shape, rate)
    return np.maximum(0.0, rate - (1 - rate) * np.expm1(np.minimum(eps, 700.0)))


def replace_delta(
    epsilon: ArrayLike, multiplier: float, rate: float, noise: str = "gaussian"
) -> Floats:
    """Dominating curve, f64[...], of a fixed-size cohort without replacement, when one unit is replaced.

    Formal guarantees: an upper bound on every pair of neighbours, attained for one round by a unit that moves from u to
    -u while all the others hold -u; composed, a bound that is not attained (one curve stands for both directions).

    *epsilon >= 0.* Write M(D) = (1 - q) A + q B and M(D') = (1 - q) A + q B', A being the output without the unit.
    Advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2) bounds H_{e^eps}(M(D) || M(D')) by q times a
    convex combination of H_{e^eps'}(B || A) and H_{e^eps'}(B || B'), e^eps' = 1 + (e^eps - 1) / q. Both pairs differ by
    one replaced member of the cohort, hence are dominated by noise moved by 1 / multiplier: this is `remove_delta`.

    *epsilon < 0.* H_a(P || Q) = 1 - a + a H_{1/a}(Q || P) for all P, Q, and replacing is a symmetric relation. Adaptive
    composition of such curves: Zhu, Dong and Wang 2022 (arXiv 2106.08567).

    Args:
        epsilon, rate, noise: as `remove_delta`.
        multiplier: noise over the distance of a replaced unit.
    """
    eps = np.asarray(epsilon, float)
    forward = remove_delta(np.abs(eps), multiplier, rate, noise)
    weight = np.exp(np.minimum(eps, 0.0))  # e^eps where eps < 0, else 1
    return np.asarray((1 - weight) + weight * forward)


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
