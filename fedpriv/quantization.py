"""Stochastic quantization: numbers become one of 2^B levels, right on average."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv import streams
from fedpriv.codecs import Codec, Coded, Wire, flatten, unflatten
from fedpriv.types import Key, PyTree


class Quantized(NamedTuple):
    """What a receiver knows, and what was lost.

    Attributes:
      values: the levels' values, in the shape of the input.
      codes: i32, the levels' numbers in 0..2^B - 1, which is what travels.
      outside: bool, where the input lay outside the interval and became the nearest level.
    """

    values: jax.Array
    codes: jax.Array
    outside: jax.Array


def quantize(key: Key, x: jax.Array, low: jax.Array, high: jax.Array, bits: int) -> Quantized:
    """Q of Wang et al., eq. 18: the level below or above, with probabilities that make it unbiased inside [low, high].

    2^B levels, evenly from low to high; the paper's formula, which has signs, is for an interval that begins at 0. The
    error is below (high - low) / (2^B - 1), its variance at most a quarter of that squared (eq. 19, Lemma 11).

    Args:
      x: f32[...].
      low, high: ends of the interval, broadcast against x; an empty one (low = high) has one level.
      bits: B.
    """
    most = 2**bits - 1
    step = (high - low) / most
    inside = jnp.clip(x, low, high)
    # A level number is exact in float32, with two bits or more for its fraction.
    position = jnp.where(step > 0, (inside - low) / jnp.where(step > 0, step, 1.0), 0.0)
    codes = jnp.floor(position + jax.random.uniform(key, x.shape))
    codes = jnp.clip(codes, 0, most).astype(jnp.int32)
    values = jnp.where(jnp.isfinite(x), low + codes * step, jnp.nan)  # diverged models stay visible
    return Quantized(values, codes, inside != x)


def check_bits(bits: int, least: int = 1) -> None:
    """Raises ValueError: bits outside least..22 (in float32 more levels would be rounded with a bias)."""
    if not least <= bits <= 22:
        raise ValueError(f"bits: {bits} is not in {least}..22")


def fixed_interval(bits: int, bound: float) -> Codec:
    """2^B levels from -bound to bound, whatever the message; what lies outside becomes the nearest end.

    The diagnostic `saturated` is the fraction of values outside.

    Raises:
      ValueError: bits outside 1..22, or a bound that is not positive.
    """
    check_bits(bits)
    if not bound > 0:
        raise ValueError(f"bound: {bound} is not positive")
    ends = jnp.float32(-bound), jnp.float32(bound)

    def code(key: Key, message: PyTree) -> Coded:
        key = jax.random.fold_in(key, streams.QUANTIZER)
        values, _, outside = quantize(key, flatten(message), *ends, bits)
        return Coded(unflatten(values, message), {"saturated": jnp.mean(outside)})

    return Codec(code, lambda d: Wire(d, bits), True)


def qsgd(bits: int) -> Codec:
    """QSGD-style: sign and 2^(B - 1) - 1 levels of |v| / max |v|, stochastically rounded; max |v| travels in 32 bits.

    D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NIPS 2017, scaled by
    the largest entry instead of the l2 norm, as is usual for dense codes; without the Elias coding of the levels.
    Unbiased, and nothing is ever outside.

    Raises:
      ValueError: bits outside 2..22.
    """
    check_bits(bits, 2)
    levels = 2 ** (bits - 1) - 1

    def code(key: Key, message: PyTree) -> Coded:
        v = flatten(message)
        largest = jnp.max(jnp.abs(v))
        share = jnp.where(largest > 0, jnp.abs(v) / jnp.where(largest > 0, largest, 1.0), 0.0)
        u = jax.random.uniform(jax.random.fold_in(key, streams.QUANTIZER), v.shape)
        rounded = jnp.minimum(jnp.floor(share * levels + u), levels) / levels
        return Coded(unflatten(jnp.sign(v) * rounded * largest, message), {})

    return Codec(code, lambda d: Wire(d, bits, overhead=32), True)
