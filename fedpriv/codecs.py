"""What travels: a message's size, and the sparsifiers that shrink it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.types import Key, PyTree


class Wire(NamedTuple):
    """Size of one message: `values` numbers of `bits_per_value` bits each, plus `overhead` bits.

    Integers (or i32[] arrays), to be multiplied on the host, where they do not overflow.
    """

    values: int | jax.Array
    bits_per_value: int | jax.Array = 32
    overhead: int | jax.Array = 0

    def bits(self) -> int:
        return int(self.values) * int(self.bits_per_value) + int(self.overhead)


class Coded(NamedTuple):
    """A message after coding and decoding.

    Attributes:
      message: what its receiver decodes, a pytree like what was sent.
      diagnostics: name -> f32[], what a codec measured of itself, such as the fraction of values out of its range.
    """

    message: PyTree
    diagnostics: dict[str, jax.Array]


class Codec(NamedTuple):
    """How a client's message is coded; encoding and decoding are one step here, as nobody looks in between.

    Attributes:
      code: (key, message) -> `Coded`. The key is the client's, from which a codec that draws takes a stream of its own.
      wire: (d) -> size of the coded message of d values.
      lossy: whether what is decoded may differ from the message.
    """

    code: Callable[[Key, PyTree], Coded]
    wire: Callable[[int], Wire]
    lossy: bool


UNCODED = Codec(lambda key, message: Coded(message, {}), Wire, False)
"""32 bits per value, exactly what was sent."""


def dimension(tree: PyTree) -> int:
    """Number of coordinates d of a pytree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def flatten(tree: PyTree) -> jax.Array:
    """f32[d]: the leaves one after the other, as `jax.flatten_util.ravel_pytree` orders them."""
    leaves = [leaf.reshape(-1) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves)


def unflatten(vector: jax.Array, like: PyTree) -> PyTree:
    """The inverse of `flatten`, in the shapes of `like`."""
    leaves, treedef = jax.tree.flatten(like)
    parts, start = [], 0
    for leaf in leaves:
        parts.append(vector[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(treedef, parts)


def gather(tree: PyTree, kept: jax.Array) -> jax.Array:
    """f32[k]: the coordinates `kept` (i32[k]) of the flattened tree."""
    return flatten(tree)[kept]


def scatter(values: jax.Array, kept: jax.Array, like: PyTree) -> PyTree:
    """A tree in the shapes of `like` with `values` (f32[k]) at the coordinates `kept` and exactly 0 elsewhere."""
    vector = jnp.zeros(dimension(like), values.dtype)
    vector = vector.at[kept].set(values, unique_indices=True, indices_are_sorted=True)
    return unflatten(vector, like)


def rand_k(key: Key, d: int, k: int) -> jax.Array:
    """i32[k], sorted: a subset of k of d coordinates, uniformly at random (Fed-SMP, eq. 5).

    The k largest of d random 32-bit numbers; a tie at the threshold (probability below d / 2^32) goes to the lower
    coordinate.
    """
    return largest(jax.random.bits(key, (d,), jnp.uint32), k)


def top_k(magnitude: jax.Array, k: int) -> jax.Array:
    """i32[k], sorted: the coordinates of the k largest of `magnitude` (f32[d], non-negative; Fed-SMP, eq. 6)."""
    # Non-negative IEEE floats are ordered as their bit patterns.
    return largest(lax.bitcast_convert_type(magnitude, jnp.uint32), k)


def largest(scores: jax.Array, k: int) -> jax.Array:
    """i32[k], sorted: coordinates of the k largest of u32[d]; of equal ones at the threshold, the first.

    Bisection on the threshold's 32 bits: 32 counts instead of a sort, exact for any k.
    """

    def bit(i: jax.Array, threshold: jax.Array) -> jax.Array:
        higher = threshold | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(jnp.sum(scores >= higher) >= k, higher, threshold)

    threshold = lax.fori_loop(0, 32, bit, jnp.uint32(0))  # the k-th largest score
    above = scores > threshold
    ties = scores == threshold
    spare = k - jnp.sum(above)
    chosen = above | (ties & (jnp.cumsum(ties) <= spare))
    return jnp.nonzero(chosen, size=k)[0].astype(jnp.int32)
