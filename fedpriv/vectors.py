"""A model as one vector, and some of its coordinates."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpriv.types import PyTree


def dimension(tree: PyTree) -> int:
    """Number of coordinates d of a pytree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def flatten(tree: PyTree) -> jax.Array:
    """f32[d]: the leaves one after the other, as `jax.flatten_util.ravel_pytree` orders them."""
    leaves = [leaf.reshape(-1) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves)


def unflatten(vector: jax.Array, like: PyTree) -> PyTree:
    """The inverse of `flatten`: f32[d] in the shapes of `like`."""
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
