"""What integer noise hides of a unit: by divergences of its exact law, or as real Gaussian noise that is rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, LargeCount, Positive, Rate, check_fields
from fedpriv.core.complaints import require
from fedpriv.pairs.integer_laws import (
    DiscreteGaussians,
    IntegerLaw,
    Skellam,
    apart_from_one,
    shift_divergence,
)
from fedpriv.proof.noise import Floats, Noise

IntegerKind: TypeAlias = Literal["discrete_gaussian", "skellam"]

DRAWN_APART = 2.0**-145
"""In total variation, at most so far is a number that the engine draws from its law."""

_UP = 1 + 1e-12  # more than what products of floats may be too small by
_KERNEL, FARTHEST = (
    1e-7,
    0.01,
)  # nats: how far a rounding kernel may be from one of whole numbers; and all releases


@dataclass(frozen=True)
class IntegerNoise(Noise):
    """Noise of a sum of integers, of so many independent shares, and how far a unit moves the sum.

    Attributes:
        kind: the law of a share.
        shares: how many there are.
        share_variance: of a share; the parameter of a discrete Gaussian.
        squared_norm: of the integers by which one unit moves the sum, at most, in l2.
        dimension: how many integers the sum has.
        beside: of further sums, which a unit moves, too, where it moves this one; with independent noise.
    """

    kind: IntegerKind
    shares: Count
    share_variance: Positive
    squared_norm: LargeCount
    dimension: Count
    beside: tuple[IntegerNoise, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        single = all(isinstance(n, IntegerNoise) and not n.beside for n in self.beside)
        remedy = "give noises of one sum each"
        require(isinstance(self.beside, tuple) and single, "beside", self.beside, remedy)

    def curve(self, epsilon: ArrayLike, far: ArrayLike) -> Floats:
        """Raises ValueError: none is known."""
        raise ValueError("noise: of integers, of which divergences alone are known")

    def largest_loss(self, far: float, deviations: float) -> float:
        """As `curve`."""
        raise ValueError("noise: of integers, of which divergences alone are known")

    @property
    def law(self) -> IntegerLaw:
        """Of a coordinate."""
        return self.law_of(self.shares)

    def law_of(self, shares: Count) -> IntegerLaw:
        """Of a coordinate, of so many of the shares."""
        if self.kind == "skellam":
            return Skellam(shares * self.share_variance)
        return DiscreteGaussians(shares, self.share_variance)

    @property
    def multiplier(self) -> float:
        """Deviation of the noise over the norm of what a unit moves, of all sums together."""
        each = (n.shares * n.share_variance / n.squared_norm for n in self.sums)
        return math.fsum(1 / squared for squared in each) ** -0.5

    @property
    def sums(self) -> tuple[IntegerNoise, ...]:
        """This and those beside it, each by itself."""
        return (replace(self, beside=()), *self.beside)

    @classmethod
    def together(cls, sums: Sequence[IntegerNoise]) -> IntegerNoise:
        """Of several sums."""
        first, *others = sums
        return replace(first, beside=tuple(others))

    def with_part(self, fraction: Rate) -> IntegerNoise | None:
        """Of that fraction of the shares, rounded down; None: of none."""
        left = [math.floor(n.shares * fraction * _UP) for n in self.sums]
        if not all(left):
            return None
        each = [replace(n, shares=k) for n, k in zip(self.sums, left, strict=True)]
        return self.together(each)

    @property
    def share(self) -> IntegerNoise:
        """One of them by itself."""
        return self.together([replace(n, shares=1) for n in self.sums])

    def moved(self, times: float) -> IntegerNoise:
        """Of a unit that moves the sum so many times as far: squared norms of integers are whole numbers."""
        squares = [max(1, math.floor(n.squared_norm * times**2 * _UP)) for n in self.sums]
        each = [replace(n, squared_norm=k) for n, k in zip(self.sums, squares, strict=True)]
        return self.together(each)

    def of_several(self, units: Count) -> IntegerNoise:
        """Of so many units, each with noise of its own: one longer sum."""
        return self.together([replace(n, dimension=units * n.dimension) for n in self.sums])

    def divergence(self, order: float) -> float:
        """Of the sums with the unit against those without; nats. Noises of several are independent: theirs add up."""
        return math.fsum(_divergence(n, order) for n in self.sums)

    def gaussian(self, releases: int) -> tuple[float, float] | None:
        """(multiplier of real Gaussian noise that hides no more, how far apart all releases are from it, in nats).

        Formal guarantees: so many releases, adaptively chosen, are within e^-a and e^a, a the second number, times
        the probabilities of a randomised function of as many real Gaussian releases of that multiplier; None where no
        such a below 0.01 is known.

        *Proof.* Given y ~ N(0, s^2), let x be an integer of probability proportional to e^(-(x - y)^2 / (2 r^2)). The
        sum of these weights over the integers, by Poisson's summation, is r sqrt(2 pi) (1 + 2 e^(-2 pi^2 r^2) ...): for
        all y within 1 -+ 2.0001 e^(-2 pi^2 r^2) of it, if r >= 1. So, but for a factor within twice that of 1, x has
        probability proportional to e^(-x^2 / (2 (s^2 + r^2))), a discrete Gaussian's. The kernel commutes with adding
        integers to y and x, which hence may be those of the data. And k discrete Gaussians of variance v add up to one
        of variance k v within e^-t and e^t, t = 10 sum_j e^(-2 pi^2 v j / (j + 1)), j from 1 to k - 1 (tau of Kairouz,
        Liu and Steinke 2021, Theorem 1), which rises with k. Coordinates are independent: their logarithms add up, and
        so do those of the releases.
        """
        each = [_gaussian(n, float(releases) * n.dimension) for n in self.sums]
        known = [one for one in each if one is not None]
        apart = math.fsum(off for _, off in known)
        if len(known) < len(each) or apart > FARTHEST:
            return None
        return math.fsum(m**-2 for m, _ in known) ** -0.5, apart


def _gaussian(noise: IntegerNoise, coordinates: float) -> tuple[float, float] | None:
    """As `IntegerNoise.gaussian`, of one sum."""
    if noise.kind != "discrete_gaussian":
        return None
    r2 = max(1.0, math.log(4.001 * coordinates / _KERNEL) / (2 * math.pi**2))
    v = noise.share_variance
    apart = coordinates * (
        2 * apart_from_one(noise.shares, v) + 4.001 * math.exp(-2 * math.pi**2 * r2)
    )
    left = noise.shares * v - r2
    return None if left <= 0 else (math.sqrt(left / noise.squared_norm), apart)


@lru_cache(maxsize=2**14)
def _divergence(noise: IntegerNoise, order: float) -> float:
    return shift_divergence(noise.law, order, noise.squared_norm, noise.dimension)


def poisson_sampled(order: float, rate: float, of_one: Sequence[float]) -> float:
    """The divergence, nats, of a Poisson sample of that rate, under add-or-remove.

    Formal guarantees: for integer orders a and noise that is symmetric about 0. Without the unit the output is P, with
    it (1 - q) P + q Q, Q = P + v: the a-th moment of their ratio is expanded, and its terms E_P[(Q / P)^j] are e^((j -
    1) D_j(Q || P)). In the other direction the divergence is no larger: x -> v - x swaps P and Q and keeps the counting
    measure (Mironov, Talwar and Zhang 2019, Theorem 5). All v at once: each D_j is at most its largest. Orders between
    integers: (a - 1) D_a is convex in a.

    Args:
        of_one: D_j of the whole, for j = 0, 1, ..., at least up to the order; the first two do not count.
    """
    return _between(order, lambda a: _poisson(a, rate, of_one))


def _poisson(order: int, rate: float, of_one: Sequence[float]) -> float:
    j = np.arange(order + 1)
    logs = _log_binomials(order) + (order - j) * math.log1p(-rate) + j * math.log(rate)
    logs[2:] += (j[2:] - 1) * np.asarray(of_one[2 : order + 1])
    return float(np.logaddexp.reduce(logs)) / (order - 1)


def drawn_without_replacement(order: float, rate: float, of_one: Sequence[float]) -> float:
    """The divergence, nats, of a cohort of fixed size at that rate, under replace-one, and never more than undrawn.

    Formal guarantees: Wang, Balle and Kasiviswanathan 2019, Theorem 9, for integer orders; others as
    `poisson_sampled`.

    Args:
        of_one: D_j of a replaced unit of the cohort, as of `poisson_sampled`.
    """
    return _between(order, lambda a: min(_fixed(a, rate, of_one), of_one[a]))


def _fixed(order: int, rate: float, of_one: Sequence[float]) -> float:
    j = np.arange(2, order + 1)
    d = np.asarray(of_one[2 : order + 1])
    logs = _log_binomials(order)[2:] + j * math.log(rate) + (j - 1) * d + math.log(2)
    logs[0] += math.log(min(1.0, -2 * math.expm1(-d[0])))
    return float(np.logaddexp.reduce(np.append(logs, 0.0))) / (order - 1)


def _between(order: float, of_integer: Callable[[int], float]) -> float:
    low = math.floor(order)
    below = (low - 1) * of_integer(low) if low > 1 else 0.0
    if low == order:
        return below / (order - 1)
    above = low * of_integer(low + 1)
    return (below + (order - low) * (above - below)) / (order - 1)


@lru_cache(maxsize=2048)
def _log_binomials(n: int) -> Floats:
    from scipy.special import gammaln

    k = np.arange(n + 1)
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
