"""Stochastic rounding to integers that keeps a bound on the norm, which is checked exactly.

P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation", ICML 2021, arXiv:2102.06387, Definition 21 and Proposition 22.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.types import Key

_TRIES = 16
_CHUNK = 2**15  # numbers whose halves of 16 bits add up in 32


def rounded_bound(norm: float, dimension: int) -> int:
    """The squared l2 norm that a vector of l2 norm `norm` keeps when it is rounded, with probability 1 - e^(-1/2).

    Proposition 22, with beta = e^(-1/2); rounded down, as squared norms of integers are integers.
    """
    always = (norm + math.sqrt(dimension)) ** 2
    likely = norm**2 + dimension / 4 + (norm + math.sqrt(dimension) / 2)
    return math.floor(min(always, likely))


def round_within(key: Key, vector: jax.Array, squared_norm: int) -> jax.Array:
    """i32[d], each coordinate rounded up or down without bias, again and again until the norm is within the bound.

    Formal guarantees: the squared l2 norm is at most `squared_norm`, exactly, whatever the vector and the key. After
    16 tries, each of which fails with probability 0.61 at most, coordinates are rounded towards zero; where even that
    is too long, which only a vector longer than promised is, the result is 0.

    A coordinate's coin has 16 bits: its mean is off by 2^-17 at most, which costs no privacy.

    Args:
      vector: f32[d], below 2^30 in each coordinate.
    """

    def attempt(i: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        integers = jnp.floor(vector + _coins(jax.random.fold_in(key, i), vector.size))
        integers = integers.astype(jnp.int32)
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
