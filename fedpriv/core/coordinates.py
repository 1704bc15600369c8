"""Some coordinates of a model that is one vector."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.core.types import PyTree


def gather(tree: PyTree, kept: jax.Array) -> jax.Array:
    """f32[k]: the coordinates `kept` (i32[k]) of the flattened tree."""
    return flatten(tree)[kept]


def scatter(values: jax.Array, kept: jax.Array, like: PyTree) -> PyTree:
    """A tree in the shapes of `like` with `values` (f32[k]) at the coordinates `kept` and exactly 0 elsewhere."""
    vector = jnp.zeros(dimension(like), values.dtype)
    vector = vector.at[kept].set(values, unique_indices=True, indices_are_sorted=True)
    return unflatten(vector, like)
