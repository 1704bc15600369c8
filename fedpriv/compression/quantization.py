"""Stochastic quantization: numbers become one of 2^B levels, right on average.

The codecs that send these levels are in codecs.py.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Range, checked
from fedpriv.core.array_arguments import check_key, check_numbers
from fedpriv.core.types import Key

MOST_BITS = 22
"""In float32 more levels would be rounded with a bias."""

Levels: TypeAlias = Annotated[
    int, Range(f"a whole number of bits from 1 to {MOST_BITS}", 1, MOST_BITS, integer=True)
]
SignedLevels: TypeAlias = Annotated[
    int, Range(f"a whole number of bits from 2 to {MOST_BITS}", 2, MOST_BITS, integer=True)
]
FloatBound: TypeAlias = Annotated[
    float, Range("a bound from 1e-30 to 1e38, within float32", 1e-30, 1e38)
]


class Quantized(NamedTuple):
    """What a receiver of quantized numbers knows, and which were out of range.

    Attributes:
      values: f32, the levels' values, in the shape of the input.
      codes: i32, the levels' numbers in 0..2^B - 1, which travel.
      outside: bool, True where the input lay outside the interval and moved to the nearest level.
    """

    values: jax.Array
    codes: jax.Array
    outside: jax.Array


def quantize(key: Key, x: jax.Array, low: jax.Array, high: jax.Array, bits: Levels) -> Quantized:
    """Q of Wang et al., eq. 18: the level below or above, with probabilities that make it unbiased inside [low, high].

    There are 2^B levels, evenly spaced from low to high. The paper's formula, which has signs, is for an interval that
    begins at 0. The error is below (high - low) / (2^B - 1), its variance at most a quarter of that squared (eq. 19,
    Lemma 11).

    Args:
      x: f32[...].
      low, high: f32[...], ends of the interval, broadcast against x; an empty interval (low = high) has one level.
      bits: B.

    Raises:
      ValueError: bits outside 1..22.
    """
    check_key("key", key)
    check_numbers("x", x)
    for name, end in (("low", low), ("high", high)):
        check_numbers(name, end, getattr(end, "ndim", 0))
    bits = checked("bits", bits, Levels)
    most = 2**bits - 1
    step = jnp.asarray((high - low) / most)
    inside = jnp.clip(x, low, high)
    # A level number is exact in float32, with two bits or more for its fraction.
    position = jnp.where(step > 0, (inside - low) / jnp.where(step > 0, step, 1.0), 0.0)
    codes = jnp.floor(position + jax.random.uniform(key, x.shape, position.dtype))
    codes = jnp.clip(codes, 0, most).astype(jnp.int32)
    values = jnp.where(
        jnp.isfinite(x), low + codes.astype(step.dtype) * step, jnp.nan
    )  # diverged models stay visible
    return Quantized(values, codes, inside != x)
