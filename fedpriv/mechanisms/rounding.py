"""Stochastic rounding to integers that keeps a bound on the norm, which is checked exactly, and how far it is biased.

P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation", ICML 2021, arXiv:2102.06387, Definition 21 and Proposition 22.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.types import Key
from fedpriv.proof.noise import Floats

_TRIES = 16
_COIN = 2.0**-17  # that the chance of rounding up is off by, at most
_CHUNK = 2**15  # numbers whose halves of 16 bits add up in 32


DEVIATIONS = (1.0, 2.0, 3.0, math.inf)
"""Choices for `rounded_bound`: the more, the longer rounded vectors may be, and the less biased they are."""


def rounded_bound(norm: Floats, dimension: int, deviations: float) -> Floats:
    """The squared l2 norms within which vectors of l2 norms `norm` are rounded; with infinite deviations: always.

    Formal guarantees: a vector that is rounded once is longer with probability e^(-deviations^2 / 2) at most, by
    Proposition 22. None is longer than by the root of d = `dimension`, and no coordinate is above `norm` rounded up.
    Squared norms of integers are integers, so the bounds are rounded down.

    Args:
      norm: f64[...].
    """
    root = math.sqrt(dimension)
    likely = norm**2 + dimension / 4 + deviations * (norm + root / 2)
    always = np.minimum((norm + root) ** 2, dimension * np.ceil(norm) ** 2)
    return np.floor(np.minimum(always, likely))


def rounding_bias(dimension: int, deviations: float) -> float:
    """The l2 norm of E[round_within(x)] - x, at most, for all vectors x that the bound of so many deviations is for.

    *Proof.* Let X be x rounded once, A that its norm is within the bound, p = P(A), and Y = <u, X - x> of a unit vector
    u. Y has mean 0 and, as coordinates are independent, variance 1/4 at most. So |E[Y | A]| = |Cov(Y, 1_A)| / p <=
    sqrt((1 - p) / p) / 2, by Cauchy and Schwarz. Rounding towards zero, after all tries, is off by less than 1 in each
    coordinate, and coins are by `_COIN`.
    """
    beyond = math.exp(-(deviations**2) / 2)
    given_within = math.sqrt(beyond / (1 - beyond)) / 2
    return given_within + math.sqrt(dimension) * (beyond**_TRIES + _COIN)


def round_within(key: Key, vector: jax.Array, squared_norm: int) -> jax.Array:
    """i32[d], each coordinate rounded up or down at random, again and again until the norm is within the bound.

    Formal guarantees: the squared l2 norm is at most `squared_norm`, exactly, whatever the vector and the key.

    The mean is the vector where all roundings are within the bound. Otherwise it is nearer to zero in each coordinate,
    by `rounding_bias` at most: an error that grows with the number of clients, which `IntegerSum.error` counts. After
    16 tries, each of which fails with probability 0.61 at most, coordinates are rounded towards zero; where even that
    is too long, which only a vector longer than promised is, the result is 0.

    Args:
      vector: f32[d], below 2^30 in each coordinate.
    """
    low = jnp.floor(vector)
    part = vector - low  # without an error, as that of vector + coin would be for large ones

    def attempt(i: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        up = part + _coins(jax.random.fold_in(key, i), vector.size) >= 1
        integers = low.astype(jnp.int32) + up.astype(jnp.int32)
        return i + 1, integers, is_within(integers, squared_norm)

    def shorter() -> jax.Array:
        integers = jnp.trunc(vector).astype(jnp.int32)
        return jnp.where(is_within(integers, squared_norm), integers, 0)

    _, integers, within = lax.while_loop(
        lambda state: (state[0] < _TRIES) & ~state[2],
        lambda state: attempt(state[0]),
        attempt(jnp.int32(0)),
    )
    return lax.cond(within, lambda: integers, shorter)


def _coins(key: Key, size: int) -> jax.Array:
    """f32[size], uniform on the middles of 2^16 equal parts of the unit interval; two from each random word."""
    words = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
    halves = jnp.concatenate([words >> 16, words & 0xFFFF])[:size]
    return (halves.astype(jnp.float32) + 0.5) * 2.0**-16


def is_within(integers: jax.Array, squared_norm: int) -> jax.Array:
    """bool[], whether the squared l2 norm of i32[d] is at most so much, without rounding or overflow.

    Args:
      integers: below 2^16 in size, else the answer is no.
      squared_norm: below 2^62.
    """
    size = jnp.abs(integers).astype(jnp.uint32)
    square = size * size
    words = _sum(square)
    most = [jnp.uint32((squared_norm >> shift) & 0xFFFF) for shift in (48, 32, 16, 0)]
    more, equal = jnp.bool_(False), jnp.bool_(True)
    for word, limit in zip(words, most, strict=True):
        more |= equal & (word > limit)
        equal &= word == limit
    return ~more & jnp.all(size < 2**16)


def _sum(numbers: jax.Array) -> list[jax.Array]:
    """The sum of u32[d] in four words of 16 bits, the highest first."""
    low, high = numbers & 0xFFFF, numbers >> 16
    columns = [jnp.uint32(0)] * 4
    for place, part in ((0, low), (1, high)):
        sums = _chunks(part)
        columns[place] += jnp.sum(sums & 0xFFFF, dtype=jnp.uint32)
        columns[place + 1] += jnp.sum(sums >> 16, dtype=jnp.uint32)
    for place in range(3):
        columns[place + 1] += columns[place] >> 16
        columns[place] &= 0xFFFF
    return columns[::-1]


def _chunks(parts: jax.Array) -> jax.Array:
    """u32[chunks], sums of numbers below 2^16."""
    filled = jnp.pad(parts, (0, -parts.size % _CHUNK)) if parts.size > _CHUNK else parts
    return jnp.sum(filled.reshape(-1, min(parts.size, _CHUNK)), axis=1, dtype=jnp.uint32)
