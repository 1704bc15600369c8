"""Privacy curves of one release of several units of one person, of which a draw holds a random number.

The noise is moved by d_j with probability p_j, or not at all with p_0 = 1 - sum_j p_j: Q = p_0 P + sum_j p_j P_j, on
the line, d_j rising. All functions take arrays, and work in logarithms. Shapes: epsilon f64[n]; distances, in units of
the noise's standard deviation or Laplace scale, and their chances, f64[k] both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.proof.noise import Floats, law_of

_AT_ONCE = 2**22  # numbers side by side
_STEPS = 60  # of Newton, who needs a few
_HALVINGS = 150  # distances may be 1e18 apart
_LOG_MOST = 700.0  # where e^x is finite
_ROUNDING = 1e-13  # relative, of a sum of chances
_OnTheLine: TypeAlias = Callable[[Floats, Floats, Floats, str], Floats]


def several_delta(
    epsilon: ArrayLike, distances: Floats, chances: Floats, noise: str = "gaussian"
) -> Floats:
    """The curve delta(epsilon >= 0), f64[n], of Q against P: with the person against without it.

    Formal guarantees: exact on the line, and no less than that of vectors: of any Q = sum_j p_j E[P moved by v_j], v_j
    random, |v_j| <= d_j (l1 norms for Laplace noise); nor than with numbers of units that are stochastically smaller.

    *Proof.* Under P, let R_j be the likelihood ratio of P moved by v_j, given v_j, so that the ratio of Q is R =
    p_0 + sum_j p_j E[R_j]. Both H_a(Q || P) = E_P[(R - a)+] and H_a(P || Q) = E_P[(1 - a R)+] are averages of convex
    functions of R: they are the larger, the larger R is in convex order. Each R_j is at most S_j in it, the ratio of a
    move by d_j along the line, by the curves of a single move (`noise.gaussian_delta`, `noise.laplace_delta`: E(R_j
    - a)+ <= E(S_j - a)+ for all a, and both have mean 1). All S_j rise in the same number z, the noise along the line:
    they are comonotone, and of sums of numbers with given laws the comonotone one is the largest in convex order, the
    larger the larger each is (M. Shaked, J. Shanthikumar, "Stochastic Orders", 2007, Theorem 3.A.37 and before). So is
    the sum with weights p_j, for any law of the v_j. A stochastically smaller number is one of a coupling in which
    each d_j is replaced by a smaller one. For Gaussian noise: C. Choquette-Choo et al., "Privacy Amplification for
    Matrix Mechanisms", ICLR 2024, Lemma 4.5.

    Args:
        epsilon: nats.
        distances: d_1 < ... < d_k, above 0.
        chances: p_1, ..., p_k, above 0.
        noise: "gaussian" or "laplace".
    """
    return _in_pieces(_with_it, epsilon, distances, chances, noise)


def none_delta(
    epsilon: ArrayLike, distances: Floats, chances: Floats, noise: str = "gaussian"
) -> Floats:
    """The curve delta(epsilon >= 0), f64[n], of P against Q, as `several_delta`: without the person against with it."""
    return _in_pieces(_without_it, epsilon, distances, chances, noise)


def replaced_delta(
    epsilon: ArrayLike, distances: Floats, chances: Floats, noise: str = "gaussian"
) -> Floats:
    """Dominating curve, f64[n], where a person's units are replaced by as many others, `distances` apart.

    Formal guarantees: an upper bound, which for a single unit is `curves.replace_delta`.

    *epsilon >= 0.* Let A be the output given that none of the units is drawn, B_j and B'_j given that j are, of either
    person, and p = 1 - p_0. By advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2) H_a of (1 - p) A +
    sum_j p_j B_j against (1 - p) A + sum_j p_j B'_j is p ((1 - b) H_a'(B || A) + b H_a'(B || B')) at most, with B =
    sum_j (p_j / p) B_j, a' = 1 + (a - 1) / p and b = a / a'. B_j and B'_j differ in j units: the second is at most
    sum_j (p_j / p) times the curve of noise moved by d_j, by joint convexity. B_j and A have a coupling in which they
    differ in j units (the samplings' proofs say which), with one law of A for all j: told who is drawn in A, B is a
    mixture of A moved by at most d_j, and the first is at most the curve of `several_delta`.

    *epsilon < 0.* As `curves.replace_delta`: replacing is a symmetric relation.

    Args:
        epsilon, distances, chances, noise: as `several_delta`; epsilon may be negative.
    """
    eps = np.asarray(epsilon, float)
    drawn = math.fsum(chances)
    positive = np.abs(eps)
    near = np.log1p(np.expm1(np.minimum(positive, 1.0)) / drawn)
    far = positive - math.log(drawn) + np.log1p(-(1 - drawn) * np.exp(-positive))
    inner = np.where(positive < 1, near, far)
    curve = law_of(noise).curve
    told = sum(p * curve(inner, d) for d, p in zip(distances, chances, strict=True))
    among = drawn * several_delta(inner, distances, chances / drawn, noise)
    share = np.exp(positive - inner)
    forward = (1 - share) * among + share * told
    weight = np.exp(np.minimum(eps, 0.0))
    return np.asarray((1 - weight) + weight * forward)


def in_place_delta(
    epsilon: ArrayLike, distances: Floats, chances: Floats, noise: str = "gaussian"
) -> Floats:
    """The curve, f64[n], where a person's units are replaced by others in their places, `distances` apart.

    P = p_0 N + sum_j p_j (N + d_j / 2) against Q = p_0 N + sum_j p_j (N - d_j / 2): one curve stands for both.

    Formal guarantees: exact on the line, and no less than that of vectors: of p_0 N + sum_j p_j E[N + u_j] against p_0
    N + sum_j p_j E[N + v_j], u_j and v_j random, of norms up to d_j / 2 (l1 norms for Laplace noise).

    *Proof.* Let S be any set of outputs, N(S) = s, and F_d(s) the largest mass that N moved by a vector of norm up to d
    can give to a set of mass s. By the curves of a single move (`noise.gaussian_delta`, `noise.laplace_delta`), whose
    least curves determine F_d, that is the mass of a half-line, on the line; and the least mass is 1 - F_d(1 - s). So
    P(S) - a Q(S) <= p_0 (1 - a) s + sum_j p_j (F_h(s) - a (1 - F_h(1 - s))), h = d_j / 2. On the line one half-line {z
    > t} of mass s attains all of these at once: the largest for every move to the right, and the least for every move
    to the left.

    Args:
        epsilon, distances, chances, noise: as `several_delta`; epsilon may be negative.
    """
    eps = np.atleast_1d(np.asarray(epsilon, float))
    weight = np.exp(np.minimum(eps, 0.0))
    forward = _in_pieces(_in_place, np.abs(eps), distances / 2, chances, noise)
    return np.asarray((1 - weight) + weight * forward)


def _in_place(eps: Floats, far: Floats, chances: Floats, noise: str) -> Floats:
    """P(z > t) - a Q(z > t), t where P / Q = a."""
    none, logs = _log_of_none(chances), np.log(chances)
    t = _PLACED[noise](eps, far, none, logs)
    same = none + _log_above(t, noise)
    sides = [_log_above(t[:, None] - way * far, noise) for way in (1, -1)]
    upper, lower = (np.logaddexp(same, np.logaddexp.reduce(logs + side, axis=1)) for side in sides)
    return np.exp(upper) * -np.expm1(np.minimum(eps + lower - upper, 0.0))


def _log_of_none(chances: Floats) -> float:
    none = 1 - math.fsum(chances)
    return math.log(none) if none > _ROUNDING else -math.inf


def _placed_gaussian(eps: Floats, far: Floats, none: float, logs: Floats) -> Floats:
    """z with log P / Q = eps, f64[n], by Newton between ends that hold it: the ratio rises."""
    terms = logs - far**2 / 2
    low, high = np.zeros(len(eps)), ((eps[:, None] - terms) / far).min(axis=1)  # Q / N <= 1 there
    z = high
    for _ in range(_STEPS):
        each = [terms + way * far * z[:, None] for way in (1, -1)]
        there, other = (np.logaddexp(none, np.logaddexp.reduce(x, axis=1)) for x in each)
        gap = there - other - eps
        if np.all(np.abs(gap) <= 1e-13 * (1 + eps)):
            break
        low, high = np.where(gap < 0, z, low), np.where(gap < 0, high, z)
        slopes = [np.exp(x - s[:, None]) @ far for x, s in zip(each, (there, other), strict=True)]
        slope = slopes[0] + slopes[1]
        step = z - gap / np.where(slope > 0, slope, np.inf)
        z = np.where((step > low) & (step < high), step, (low + high) / 2)
    return np.asarray(z)


def _placed_laplace(eps: Floats, far: Floats, none: float, logs: Floats) -> Floats:
    """z in [0, far] with log P / Q = eps, f64[n], or the nearer end: by halving."""
    low, high = np.zeros(len(eps)), np.full(len(eps), far[-1])
    for _ in range(_HALVINGS):
        z = (low + high) / 2
        if np.all((z == low) | (z == high)):
            break
        losses = [np.abs(z)[:, None] - np.abs(z[:, None] - way * far) for way in (1, -1)]
        there, other = (
            np.logaddexp(none, np.logaddexp.reduce(logs + loss, axis=1)) for loss in losses
        )
        above = there - other > eps
        low, high = np.where(above, low, z), np.where(above, z, high)
    return (low + high) / 2


_PLACED = {"gaussian": _placed_gaussian, "laplace": _placed_laplace}


def _in_pieces(
    curve: _OnTheLine, epsilon: ArrayLike, distances: Floats, chances: Floats, noise: str
) -> Floats:
    """Some epsilons at a time, so that there is memory for them all."""
    eps = np.atleast_1d(np.asarray(epsilon, float))
    pieces = np.array_split(eps, 1 + len(eps) * len(distances) // _AT_ONCE)
    return np.concatenate([curve(piece, distances, chances, noise) for piece in pieces])


def _with_it(eps: Floats, distances: Floats, chances: Floats, noise: str) -> Floats:
    """Q(z > t) - a P(z > t), t where Q / P = a; p_0 P is taken from both."""
    drawn, logs = math.fsum(chances), np.log(chances)
    near = np.log(np.expm1(np.minimum(eps, 1.0)) + drawn)
    far = eps + np.log1p(-(1 - drawn) * np.exp(-eps))
    target = np.where(eps < 1, near, far)
    t = _THRESHOLDS[noise](target, distances, logs)
    upper = np.logaddexp.reduce(logs + _log_above(t[:, None] - distances, noise), axis=1)
    lower = target + _log_above(t, noise)
    return np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0))


def _without_it(eps: Floats, distances: Floats, chances: Floats, noise: str) -> Floats:
    """P(z < t) - a Q(z < t), t where Q / P = 1 / a; 0 where there is none.

    What rounding may have left of p_0 bounds no loss: it is taken off Q, which is sound.
    """
    drawn, logs = min(1.0, math.fsum(chances) * (1 + _ROUNDING)), np.log(chances)
    left = drawn - (1 - drawn) * np.expm1(np.minimum(eps, _LOG_MOST))
    kept = np.log(np.maximum(left, 1e-300))
    t = _THRESHOLDS[noise](kept - eps, distances, logs)
    upper = kept + _log_above(-t, noise)
    below = np.logaddexp.reduce(logs + _log_above(distances - t[:, None], noise), axis=1)
    curve = np.exp(upper) * -np.expm1(np.minimum(eps + below - upper, 0.0))
    return np.where(left > 0, curve, 0.0)


def _log_above(x: Floats, noise: str) -> Floats:
    """log Pr[noise > x]."""
    from scipy.special import log_ndtr

    if noise == "gaussian":
        return np.asarray(log_ndtr(-x))
    far = np.log1p(-np.exp(np.minimum(x, 0.0)) / 2)
    return np.where(x < 0, far, -math.log(2) - np.maximum(x, 0.0))


def _gaussian_threshold(target: Floats, distances: Floats, logs: Floats) -> Floats:
    """z with log sum_j p_j e^(d_j z - d_j^2 / 2) = target, f64[n], by Newton from the right: it is convex and rises."""
    terms = logs - distances**2 / 2
    z = ((target[:, None] - terms) / distances).min(axis=1)
    for _ in range(_STEPS):
        each = terms + distances * z[:, None]
        total = np.logaddexp.reduce(each, axis=1)
        slope = np.exp(each - total[:, None]) @ distances
        step = (total - target) / slope
        z = z - step
        if np.all(np.abs(step) <= 1e-13 * (1 + np.abs(z))):
            break
    return z


def _laplace_threshold(target: Floats, distances: Floats, logs: Floats) -> Floats:
    """z in [0, d_k] with log sum_j p_j e^(|z| - |z - d_j|) = target, f64[n], or the nearer end: by halving."""
    low, high = np.zeros(len(target)), np.full(len(target), distances[-1])
    for _ in range(_HALVINGS):
        z = (low + high) / 2
        if np.all((z == low) | (z == high)):
            break
        losses = np.minimum(2 * z[:, None] - distances, distances)
        above = np.logaddexp.reduce(logs + losses, axis=1) > target
        low, high = np.where(above, low, z), np.where(above, z, high)
    return (low + high) / 2


_THRESHOLDS = {"gaussian": _gaussian_threshold, "laplace": _laplace_threshold}
