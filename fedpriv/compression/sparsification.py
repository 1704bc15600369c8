"""Which coordinates of a message travel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.types import Key


def rand_k(key: Key, d: int, k: int) -> jax.Array:
    """Coordinates that travel, i32[k], sorted: a subset of k of d, uniformly at random (Fed-SMP, eq. 5).

    The k largest of d random 32-bit numbers; a tie at the threshold (probability below d / 2^32) goes to the lower
    coordinate.
    """
    return largest(jax.random.bits(key, (d,), jnp.uint32), k)


def top_k(magnitude: jax.Array, k: int) -> jax.Array:
    """Coordinates that travel, i32[k], sorted: the k largest of `magnitude` (f32[d], non-negative; Fed-SMP, eq. 6).

    Of other types, as f32.
    """
    # Non-negative IEEE floats are ordered as their bit patterns.
    return largest(lax.bitcast_convert_type(magnitude.astype(jnp.float32), jnp.uint32), k)


def largest(scores: jax.Array, k: int) -> jax.Array:
    """Coordinates that travel, i32[k], sorted: the k largest of u32[d]; of equal ones at the threshold, the first.

    Bisection on the threshold's 32 bits: 32 counts instead of a sort, exact for any k.
    """

    def bit(i: jax.Array, threshold: jax.Array) -> jax.Array:
        higher = threshold | (jnp.uint32(1) << jnp.uint32(31 - i))
        return jnp.where(jnp.sum(scores >= higher) >= k, higher, threshold)

    threshold = lax.fori_loop(0, 32, bit, jnp.uint32(0))  # the k-th largest score
    above = scores > threshold
    ties = scores == threshold
    spare = k - jnp.sum(above)
    chosen = above | (ties & (jnp.cumsum(ties) <= spare))
    return jnp.nonzero(chosen, size=k)[0].astype(jnp.int32)
