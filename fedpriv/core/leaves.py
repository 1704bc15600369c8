"""What the arrays of a tree are: their shapes in words, as floats, finite or not."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpriv.core.types import PyTree


def sizes(tree: PyTree) -> str:
    """The tree with the type and shape of each array in its place, such as "{'label': 'int32[60]'}"."""
    kinds = lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"  # noqa: E731
    return str(jax.tree.map(kinds, tree))


def as_float(image: jax.Array) -> jax.Array:
    """u8[...] of 0..255 become f32[...] of 0..1, booleans 0 and 1; others stay as they are."""
    if image.dtype == bool:
        return image.astype(jnp.float32)
    return image.astype(jnp.float32) / 255 if image.dtype == jnp.uint8 else image


def is_finite(tree: PyTree) -> jax.Array:
    """bool[]: whether all floats of the tree are finite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.bool_(True), *(jnp.all(jnp.isfinite(x)) for x in floats)]))
