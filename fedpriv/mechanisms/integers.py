"""Sums of integers modulo 2^bits, as secure aggregation adds them up, with integer noise of each member.

P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation", ICML 2021, arXiv:2102.06387, Algorithms 1 and 2. N. Agarwal, P. Kairouz, Z. Liu, "The Skellam Mechanism
for Differentially Private Federated Learning", NeurIPS 2021, arXiv:2110.04995, Algorithms 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import NonNegative, Positive, Range, checked
from fedpriv.core.provenance import sealed
from fedpriv.core.trees import flatten, unflatten
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.integer_samplers import draw_shares
from fedpriv.mechanisms.mechanisms import Mechanism, gaussian
from fedpriv.mechanisms.rotation import block_of, padded, rotate, unrotate
from fedpriv.mechanisms.rounding import DEVIATIONS, round_within, rounded_bound, rounding_bias
from fedpriv.pairs.integer_noise import IntegerKind, IntegerNoise
from fedpriv.proof.noise import Floats

MOST_BITS = 30
SumBits: TypeAlias = Annotated[
    int, Range(f"a whole number of bits from 2 to {MOST_BITS}", 2, MOST_BITS, integer=True)
]

_LONGEST = 2.0**15  # of a scaled message, whose squared norm is then counted in 62 bits
_MOST_WRAPPED = 1e-3  # of the coordinates of a sum
_SCALES = 1024  # that are tried
_LOUDEST = 2.0**16  # deviation of the noise of a sum, whose table then has two million columns
MOST_SAID = f"{MOST_BITS} bits and noise of deviation {_LOUDEST:.0f}"


class WrapsError(ValueError):
    """The sum of a cohort's integers, with its noise, takes more bits than it has."""


class Integers(NamedTuple):
    """How messages travel as integers: all but what a cohort and a message decide, see `IntegerSum`.

    Attributes:
      noise: the law of a member's share.
      bits: of a coordinate; sums are taken modulo 2^bits.
    """

    noise: IntegerKind
    bits: int


@dataclass(frozen=True)
class IntegerSum:
    """The sum of a cohort's messages as integers: rotated, scaled, rounded, added up with noise modulo 2^bits.

    Formal guarantees: a member moves the sum, before it is taken modulo 2^bits, by integers of squared l2 norm at most
    `squared_norm`, whatever its message is and however it is rounded. What comes after the noise, taking it modulo
    2^bits too, costs no privacy.

    Attributes:
      noise, bits: as `Integers`.
      clip_norm: C, of a message before it is scaled.
      noise_multiplier: deviation of the noise of the sum over the root of `squared_norm`.
      shares: n, members of the cohort, each with a share of the noise.
      dimension: d, of a message.
      per_member: messages that a member adds up, at most, each clipped and rounded by itself.
    """

    noise: IntegerKind
    bits: int
    clip_norm: float
    noise_multiplier: float
    shares: int
    dimension: int
    per_member: int = 1

    @property
    def summed(self) -> int:
        """Messages in the sum, at most."""
        return self.shares * self.per_member

    @property
    def scale(self) -> float:
        """What messages are multiplied with: at which the error of the sum, as it is bounded, is least.

        Raises:
          WrapsError: sums need more bits.
        """
        return self._chosen.scale

    @property
    def fits(self) -> bool:
        """Whether the bits are enough for the sum."""
        return self._best(self.bits) is not None

    @cached_property
    def squared_norm(self) -> int:
        """The largest squared l2 norm of a member's integers."""
        (squared,) = self._squared_norms(np.array([self.scale]), self._chosen.deviations)
        return int(squared)

    @property
    def length(self) -> int:
        """How many integers a member sends: d, and what fills the last block of the rotation."""
        return padded(self.dimension)

    @property
    def noise_deviation(self) -> float:
        """Of a coordinate of the decoded sum, in units of the messages."""
        return self.noise_multiplier * math.sqrt(self.squared_norm) / self.scale

    @property
    def error(self) -> float:
        """Root mean square of the error of the decoded sum over its coordinates, in units of the messages, at most.

        Of noise, rounding with its bias, and wrapping, for any messages.
        """
        scale, deviations = self._chosen
        return float(np.sqrt(self._squared_error(np.array([scale]), deviations, self.bits)[0]))

    @property
    def wrap_probability(self) -> float:
        """An upper bound of the probability that a coordinate of the sum wraps, for any messages."""
        scale, deviations = self._chosen
        return float(self._wrapped(np.array([scale]), deviations, self.bits)[0])

    @cached_property
    def noise_of_all(self) -> IntegerNoise:
        """The noise of the whole sum, if there is any."""
        variance = self.noise_multiplier**2 * self.squared_norm / self.shares
        return IntegerNoise(self.noise, self.shares, variance, self.squared_norm, self.length)

    def encode(self, public: Key, key: Key, message: PyTree) -> jax.Array:
        """i32[length], of a message that is clipped already.

        Args:
          public: seeds the rotation, which is the same for all members.
          key: seeds the rounding.
        """
        rotated = rotate(public, flatten(message).astype(jnp.float32) * jnp.float32(self.scale))
        return round_within(key, rotated, self.squared_norm)

    def perturb(
        self, key: Key, total: jax.Array, staying: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """i32[length], with the noise of all shares, or of those of the members that stay (i32[]), modulo 2^bits.

        Returns:
          (the noisy sum, f32[], the fraction of its coordinates that wrapped).
        """
        if self.noise_multiplier > 0:
            total += draw_shares(key, self.noise_of_all, total.shape, staying)
        taken = self._modulo(total)
        return taken, jnp.mean((taken != total).astype(jnp.float32))

    def decode(self, public: Key, total: jax.Array, like: PyTree) -> PyTree:
        """The sum of the messages, a tree like one of them."""
        rotated = total.astype(jnp.float32) / jnp.float32(self.scale)
        return unflatten(unrotate(public, rotated, self.dimension), like)

    def _modulo(self, integers: jax.Array) -> jax.Array:
        """From -2^(bits - 1) to 2^(bits - 1) - 1."""
        beyond = 32 - self.bits
        return (integers << beyond) >> beyond

    @cached_property
    def _chosen(self) -> _Rounding:
        """Raises WrapsError: sums need more bits."""
        best = self._best(self.bits)
        if best is None:
            raise WrapsError(self._why_it_wraps())
        return best

    def _best(self, bits: int) -> _Rounding | None:
        """Of those at which few coordinates wrap the one of least squared error of a coordinate; None: all wrap."""
        scales = np.geomspace(2.0**-10, _LONGEST, _SCALES) / self.clip_norm
        errors = np.array([self._squared_error(scales, each, bits) for each in DEVIATIONS])
        which, best = np.unravel_index(np.argmin(errors), errors.shape)
        if not np.isfinite(errors[which, best]):
            return None
        return _Rounding(float(scales[best]), DEVIATIONS[which])

    def _why_it_wraps(self) -> str:
        """And how many bits, or how much noise, would do."""
        sums = f"sums of {self.summed} messages of {self.dimension} values"
        bits = range(self.bits, MOST_BITS + 1)
        if enough := next((b for b in bits if self._best(b)), None):
            return f"bits: {self.bits}, but {sums} wrap; give {enough}"
        noise = (
            (2**k, replace(self, noise_multiplier=self.noise_multiplier / 2**k))
            for k in range(1, 65)
        )
        less = next((by for by, quieter in noise if quieter._best(MOST_BITS)), None)
        remedy = f"divide it by {less}" if less else "give fewer clients to a cohort"
        return f"noise_multiplier: too much for {sums} with {MOST_SAID}; {remedy}"

    def _squared_error(self, scales: Floats, deviations: float, bits: int) -> Floats:
        """Of a coordinate of the decoded sum, by scale; infinite where many wrap, or where messages may all become 0.

        Each coordinate of a rounded message has one of two neighbouring values, so a variance of 1/4 at most; the bias
        of all messages may have one direction.
        """
        wrapped = self._wrapped(scales, deviations, bits)
        spread = self._spread(scales, deviations)
        bias = (self.summed * rounding_bias(self.length, deviations)) ** 2 / self.dimension
        error = (spread.noise + spread.rounding + bias + 4.0**bits * wrapped) / scales**2
        nothing_left = self._squared_norms(scales, DEVIATIONS[0]) == 0
        error[(wrapped > _MOST_WRAPPED) | nothing_left] = np.inf
        error[spread.noise > _LOUDEST**2] = np.inf
        return error

    def _spread(self, scales: Floats, deviations: float) -> _Spread:
        norms = scales * self.clip_norm
        signal = (self.summed * norms) ** 2 / block_of(self.dimension)
        noise = self.noise_multiplier**2 * self._squared_norms(scales, deviations)
        return _Spread(signal, np.full_like(norms, self.summed / 4), noise)

    def _squared_norms(self, scales: Floats, deviations: float) -> Floats:
        return rounded_bound(scales * self.clip_norm, self.length, deviations)

    def _wrapped(self, scales: Floats, deviations: float, bits: int) -> Floats:
        """By scale a bound of the probability that a coordinate wraps.

        By Chernoff's bound, at the best of some exponents t. The rotation's signs make a coordinate of a message
        sub-Gaussian; so is its mean when it is rounded, which is no farther from zero and as symmetric, as whether a
        norm is within its bound falls with each size (T. E. Harris's inequality); by Hoelder's inequality the sum of n
        has n^2 times the variance proxy. What rounding adds to these means lies in intervals of length 1; the noise
        has the moment-generating function e^(V (cosh t - 1)), or a smaller one.
        """
        spread, most = self._spread(scales, deviations), 2.0 ** (bits - 1) - 1
        t = (
            np.geomspace(1e-2, 1.0, 64)[:, None]
            * most
            / (spread.signal + spread.rounding + spread.noise)
        )
        t = np.minimum(t, 50.0)
        logs = (
            (spread.signal + spread.rounding) * t**2 / 2
            + spread.noise * (np.cosh(t) - 1)
            - t * most
        )
        return np.minimum(1.0, 2 * np.exp(np.minimum(logs.min(axis=0), 0.0)))


class _Rounding(NamedTuple):
    """Of messages: what they are multiplied with before, and how long they may become, as in `rounded_bound`."""

    scale: float
    deviations: float


class _Spread(NamedTuple):
    """Variance, or its proxy, of a coordinate of the sum, in squared integers, by scale."""

    signal: Floats
    rounding: Floats
    noise: Floats


def discrete_gaussian(
    clip_norm: Positive, noise_multiplier: NonNegative, *, bits: SumBits
) -> Mechanism:
    """Clips to l2 norm `clip_norm` (C); messages travel as integers, and each member adds discrete Gaussian noise.

    Formal guarantees: those of `IntegerSum`.

    Args:
      clip_norm: C.
      noise_multiplier: deviation of the noise of the whole sum over the norm of a message as integers, which is rounded
        up; so it is what is certified, and the noise is a little more than C times as large.
      bits: of a coordinate that travels, and of the sum.

    Raises:
      ValueError: C <= 0, infinite or beyond `LEAST_CLIP`, sigma < 0, or bits outside 2..30; in a round, too few bits.
    """
    return _integer_mechanism("discrete_gaussian", clip_norm, noise_multiplier, bits)


def skellam(clip_norm: Positive, noise_multiplier: NonNegative, *, bits: SumBits) -> Mechanism:
    """As `discrete_gaussian`, with Skellam noise: sums of shares have the same law, however many there are."""
    return _integer_mechanism("skellam", clip_norm, noise_multiplier, bits)


def _integer_mechanism(
    noise: IntegerKind, clip_norm: float, noise_multiplier: float, bits: int
) -> Mechanism:
    clip_norm = checked("clip_norm", clip_norm, Positive)
    bits = checked("bits", bits, SumBits)
    real = gaussian(clip_norm, noise_multiplier)

    def perturb(key: Key, total: PyTree) -> PyTree:
        raise ValueError(
            "mechanism: integer noise is added to the sum of a cohort alone; give it to cohort.sum, or to "
            "cohort.private_mean"
        )

    integers = Integers(noise, bits)
    return sealed(real._replace(noise=noise, perturb=perturb, integers=integers, at=None))


@lru_cache(maxsize=64)
def integer_sum(
    integers: Integers,
    clip_norm: float,
    noise_multiplier: float,
    shares: int,
    dimension: int,
    per_member: int = 1,
) -> IntegerSum:
    """Of messages of so many values, of a cohort of at most so many members."""
    return IntegerSum(*integers, clip_norm, noise_multiplier, shares, dimension, per_member)
