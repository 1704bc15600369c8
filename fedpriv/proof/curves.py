"""Privacy curves of one release to which a unit belongs by a secret draw, in closed form.

A curve is the hockey-stick divergence H_{e^eps}(P || Q) = sup_S P(S) - e^eps Q(S) of a pair that no two neighbours
exceed. All functions take arrays, and work in logarithms.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.proof.noise import Floats, Noise, law_of


def remove_delta(
    epsilon: ArrayLike, multiplier: float, rate: float, noise: str | Noise = "gaussian"
) -> Floats:
    """The curve delta(epsilon >= 0), f64[...], of (1 - rate) P + rate Q against P, for Q = P moved by 1 / multiplier.

    Formal guarantees: exact, rate * delta_0(log(1 + (e^eps - 1) / rate)), delta_0 the curve of Q against P (Balle,
    Barthe and Gaboardi 2018, Theorem 2).

    Args:
        epsilon: f64[...], nats.
        multiplier: noise (standard deviation or Laplace scale) over the distance of Q from P.
        rate: probability that the unit is drawn.
        noise: "gaussian", "laplace", or a law.
    """
    eps = np.asarray(epsilon, float)
    # log(1 + (e^eps - 1) / rate), exact near 0 and without the overflow of e^eps.
    near = np.log1p(np.expm1(np.minimum(eps, 1.0)) / rate)
    far = eps - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-eps))
    return rate * law_of(noise).curve(np.where(eps < 1, near, far), 1 / multiplier)


def add_delta(
    epsilon: ArrayLike, multiplier: float, rate: float, noise: str | Noise = "gaussian"
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
    curve = kept * law_of(noise).curve(eps + math.log(rate) - np.log(kept), 1 / multiplier)
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
    epsilon: ArrayLike, multiplier: float, rate: float, noise: str | Noise = "gaussian"
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
