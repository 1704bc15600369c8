"""Rényi divergences of integer noise, coordinate by coordinate, from its exact law.

Sums of discrete Gaussians: P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", ICML 2021, arXiv:2102.06387. Skellam: N. Agarwal, P. Kairouz, Z. Liu, "The Skellam
Mechanism for Differentially Private Federated Learning", NeurIPS 2021, arXiv:2110.04995.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedpriv.core.arguments import Count, Positive, check_fields
from fedpriv.proof.noise import Floats

_NEGLIGIBLE = 50.0  # nats below the largest, of terms that are left out of sums
_MOST_EXACT = 256  # shifts of which divergences are summed, at most
_ROUNDING = 1e-9  # of logarithms of masses


class IntegerLaw(Protocol):
    """A symmetric law on the integers, of the noise of one coordinate of a sum; it is hashable."""

    def __hash__(self) -> int: ...

    @property
    def variance(self) -> float:
        """Of the noise, at most."""

    @property
    def exact_shifts(self) -> int:
        """Up to which shift a divergence is worth its time; from there on `steepest` loses little."""

    def divergence(self, order: float, shift: int) -> float:
        """D_order(noise + shift || noise), nats, exact but for rounding, upwards; order > 1, shift >= 1."""

    def steepest(self, order: float, shift: int) -> float:
        """A bound of D_order(noise + k || noise) / k^2 for all k >= shift."""

    def log_mass(self, x: NDArray[np.int64]) -> Floats:
        """f64[...], of integers x."""


@dataclass(frozen=True)
class DiscreteGaussians:
    """The sum of so many independent discrete Gaussians, each proportional to e^(-x^2 / (2 share_variance)).

    *The law.* Let V = shares x share_variance. Adding 1 to each of the n summands multiplies their weight by
    e^(-x / s^2 - n / (2 s^2)), x being their sum and s^2 the share's variance. So the sum has the mass
    P(x) = e^(-x^2 / (2 V)) h(x), h being periodic with period n, and even.

    *Its divergences.* Completing the square, with Z = sum_x P(x),

        D_a(k) = a k^2 / (2 V) + log(sum_x e^(-(x - a k)^2 / (2 V)) h(x - k)^a h(x)^(1 - a) / Z) / (a - 1).

    As sum_x e^(-(x - y)^2 / (2 V)) is largest for integers y, the last term is at most a / (a - 1) times the logarithm
    of the largest h over the smallest.
    """

    shares: Count
    share_variance: Positive

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def variance(self) -> float:
        """The parameter; the variance itself is a little smaller where that of a share is below 1."""
        return self.shares * self.share_variance

    @property
    def is_nearly_one(self) -> bool:
        """Whether the sum is one discrete Gaussian but for 2^-150 of its mass."""
        return 2 * apart_from_one(self.shares, self.share_variance) <= 2.0**-150

    @property
    def exact_shifts(self) -> int:
        """As `IntegerLaw`."""
        spread = _spread(self.shares, self.share_variance)
        return min(_MOST_EXACT, 1 + math.ceil(math.sqrt(1e3 * spread * self.variance)))

    def steepest(self, order: float, shift: int) -> float:
        """As `IntegerLaw`."""
        spread = _spread(self.shares, self.share_variance)
        return order / (2 * self.variance) + order / (order - 1) * spread / shift**2

    def divergence(self, order: float, shift: int) -> float:
        """As `IntegerLaw`."""
        n, v = self.shares, self.variance
        spread = _spread(n, self.share_variance)
        gaussian = order * shift**2 / (2 * v)
        if spread < 1e-14:  # h is constant
            return gaussian + order / (order - 1) * spread
        log_h = _log_periodic(n, self.share_variance)
        reach = math.ceil(math.sqrt(2 * v * (2 * order * spread + _NEGLIGIBLE)))
        middle = round(order * shift)
        x = np.arange(middle - reach, middle + reach + 1)
        terms = -((x - order * shift) ** 2) / (2 * v)
        terms = terms + order * log_h[(x - shift) % n] - (order - 1) * log_h[x % n]
        x = np.arange(-reach, reach + 1)
        whole = _log_sum(-(x**2) / (2 * v) + log_h[x % n])
        rest = _log_sum(terms) - whole + (2 * order - 1) * _ROUNDING
        return gaussian + min(rest, order * spread) / (order - 1)

    def log_mass(self, x: NDArray[np.int64]) -> Floats:
        """f64[...], of integers x."""
        n, v = self.shares, self.variance
        log_h = _log_periodic(n, self.share_variance)
        reach = math.ceil(math.sqrt(2 * v * (_spread(n, self.share_variance) + _NEGLIGIBLE)))
        around = np.arange(-reach, reach + 1)
        whole = _log_sum(-(around**2) / (2 * v) + log_h[around % n])
        return -(np.square(x) / (2 * v)) + log_h[x % n] - whole


@dataclass(frozen=True)
class Skellam:
    """The difference of two independent Poisson numbers of mean `variance` / 2 each: sums of such are such.

    *The law.* P(x) = e^-V I_|x|(V), I being the modified Bessel function, from ratios of neighbouring orders by their
    continued fraction. *Its divergences.* For integer orders they are bounded by Agarwal et al.'s Theorem 3.5; others
    lie below the chord, as (a - 1) D_a is convex in a, and 0 at a = 1.
    """

    variance: Positive

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def exact_shifts(self) -> int:
        """As `IntegerLaw`."""
        return 8 if self.variance < 1e4 else 0

    def steepest(self, order: float, shift: int) -> float:
        """As `IntegerLaw`."""
        low = math.floor(order)
        ends = [(a - 1) * self._bound(a, shift) for a in (low, low + 1)]
        return (ends[0] + (order - low) * (ends[1] - ends[0])) / (order - 1)

    def _bound(self, order: int, shift: int) -> float:
        """Of D_order(k) / k^2 for all k >= shift, by the theorem with both norms k; it falls with k."""
        v = self.variance
        beyond = min(((2 * order - 1) + 6 / shift) / (4 * v**2), 3 / (2 * shift * v))
        return order / (2 * v) + beyond

    def divergence(self, order: float, shift: int) -> float:
        """As `IntegerLaw`."""
        reach = math.ceil(math.sqrt(2 * self.variance * _NEGLIGIBLE) + _NEGLIGIBLE)
        end = math.ceil(order * shift) + shift + reach
        log_p = _log_bessel(self.variance, 2 ** math.ceil(math.log2(end)))
        x = np.arange(-reach, end)
        terms = order * log_p[abs(x - shift)] - (order - 1) * log_p[abs(x)]
        return (_log_sum(terms) + (2 * order - 1) * 1e-11) / (order - 1)

    def log_mass(self, x: NDArray[np.int64]) -> Floats:
        """f64[...], of integers x."""
        return _log_bessel(self.variance, int(abs(x).max()) + 1)[abs(x)]


def _log_sum(logs: Floats) -> float:
    """log of the sum of e^logs."""
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).sum()))


@lru_cache(maxsize=8)
def _log_bessel(variance: float, size: int) -> Floats:
    """log of e^-V I_x(V), f64[size], for x = 0 ... size - 1."""
    from scipy.special import ive

    beyond = size + math.ceil(10 * math.sqrt(variance + size))
    ratio, ratios = 0.0, np.empty(size)
    for x in range(beyond, 0, -1):  # I_x / I_(x - 1)
        ratio = 1 / (2 * x / variance + ratio)
        if x < size:
            ratios[x] = ratio
    ratios[0] = float(ive(0, variance))
    return np.cumsum(np.log(ratios))


def shift_divergence(law: IntegerLaw, order: float, squared_norm: int, dimension: int) -> float:
    """The largest D_order(noise + v || noise) over integer vectors v of so many coordinates, and squared norm at most.

    Formal guarantees: an upper bound. Noise of different coordinates is independent, so divergences add up: D(v) =
    sum_i g(|v_i|), g being that of one coordinate. With m_k coordinates of |v_i| = k, this is the sum of m_k g(k) under
    sum_k m_k k^2 <= squared_norm and sum_k m_k <= dimension, so that for any price p >= 0 of the norm

        D(v) <= p squared_norm + dimension max(0, max_k g(k) - p k^2).
    """
    if squared_norm == 0:
        return 0.0
    largest = math.isqrt(squared_norm)
    exact = min(law.exact_shifts, largest)
    shifts = np.arange(1, exact + 1)
    costs = np.array([law.divergence(order, int(k)) for k in shifts])
    if largest > exact:
        steepest = law.steepest(order, exact + 1)
        shifts = np.append(shifts, [exact + 1, largest])
        costs = np.append(costs, steepest * shifts[-2:].astype(float) ** 2)
    squares = shifts.astype(float) ** 2
    prices = np.append(costs / squares, 0.0)
    over = np.maximum(costs - prices[:, None] * squares, 0.0).max(axis=1)
    return float(np.min(prices * squared_norm + dimension * over))


@lru_cache(maxsize=256)
def apart_from_one(shares: int, variance: float) -> float:
    """At least |log(P / P')|, P being the law of so many discrete Gaussians, and P' that of one of all their variance.

    The tau of Kairouz, Liu and Steinke 2021, Theorem 1: 10 sum_k e^(-2 pi^2 v k / (k + 1)), k from 1 to shares - 1.
    """
    k = np.arange(1, min(shares, 1000))
    first = float(np.sum(np.exp(-2 * math.pi**2 * variance * k / (k + 1))))
    beyond = max(shares - 1000, 0) * math.exp(-2 * math.pi**2 * variance * 1000 / 1001)
    return 10 * (first + beyond)


@lru_cache(maxsize=64)
def _spread(shares: int, variance: float) -> float:
    """log of the largest h over the smallest, at most, see `DiscreteGaussians`; that of a single one is constant."""
    if shares == 1:
        return 0.0
    if variance >= 9:
        return 2 * apart_from_one(shares, variance)
    log_h = _log_periodic(shares, variance)
    return float(log_h.max() - log_h.min()) + 2 * _ROUNDING


@lru_cache(maxsize=16)
def _log_periodic(shares: int, variance: float) -> Floats:
    """log h(x), f64[shares], for x = 0 ... shares - 1, less a constant; see `DiscreteGaussians`.

    h follows from the masses P(x) of the sum for x up to half of the shares. To keep their relative error small, each
    is computed with the summands tilted by e^(c x / s^2), so that the sum is likely to be near x: then the summands are
    discrete Gaussians about c, and their n-th power is taken of the discrete Fourier transform.
    """
    half = shares // 2
    log_h = np.empty(half + 1)
    begin = 0
    while begin <= half:
        center = _center_of_mean(begin / shares, variance)
        mean, of_one, log_weight = _moments(center, variance)
        deviation = math.sqrt(shares * of_one)
        end = max(begin, min(half, math.floor(shares * mean + 3 * deviation)))
        near = np.arange(begin, end + 1)
        tilted = np.log(_masses_of_sum(shares, variance, center, deviation, near))
        log_h[near] = tilted - near * (center / variance) + near**2 / (2 * shares * variance)
        log_h[near] += shares * log_weight
        begin = end + 1
    return np.concatenate([log_h, log_h[1 : shares - half][::-1]])


def _about(center: float, variance: float) -> tuple[NDArray[np.int64], Floats]:
    """(x, weights e^(-(x - center)^2 / (2 variance))) of a discrete Gaussian, but for weights that do not count."""
    reach = math.ceil(math.sqrt(2 * variance * _NEGLIGIBLE)) + 1
    x = np.arange(-reach, reach + 2)
    return x, np.exp(-((x - center) ** 2) / (2 * variance))


def _moments(center: float, variance: float) -> tuple[float, float, float]:
    """(mean, variance, log sum_x e^((2 center x - x^2) / (2 variance))) of a discrete Gaussian about `center`."""
    x, weights = _about(center, variance)
    total = weights.sum()
    mean = float(x @ weights / total)
    return (
        mean,
        float((x - mean) ** 2 @ weights / total),
        math.log(total) + center**2 / (2 * variance),
    )


def _center_of_mean(mean: float, variance: float) -> float:
    """Of the discrete Gaussian of that mean, in [0, 1/2]."""
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _moments(middle, variance)[0] < mean else (low, middle)
    return low


def _masses_of_sum(
    shares: int, variance: float, center: float, deviation: float, at: NDArray[np.int64]
) -> Floats:
    """Of the sum of so many discrete Gaussians about `center`, at integers within 3 deviations of its mean."""
    x, weights = _about(center, variance)
    size = 2 ** math.ceil(math.log2(max(20 * deviation, len(x)) + 2))
    once = np.zeros(size)
    np.add.at(once, x % size, weights / weights.sum())
    return np.fft.irfft(np.fft.rfft(once) ** shares, size)[at % size]
