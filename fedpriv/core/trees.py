"""A model as one vector.

Models keep the types of their leaves. What is computed of all of them has at least 32 bits: a vector, a sum, its noise.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import PyTree


def dimension(tree: PyTree) -> int:
    """Number of coordinates d of a pytree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def shapes(tree: PyTree) -> tuple[str, ...]:
    """Structure, shapes and types, in plain values."""
    leaves = (f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}" for leaf in jax.tree.leaves(tree))
    return (str(jax.tree.structure(tree)), *leaves)


def widened(tree: PyTree) -> PyTree:
    """The tree with its leaves of fewer than 32 bits as f32, so that norms and sums keep their digits."""
    return jax.tree.map(lambda x: x.astype(width(x)) if _is_real(x) else x, tree)


def same_structure(one: PyTree, other: PyTree) -> bool:
    """Whether two trees have leaves at the same places."""
    ours: Any = jax.tree.structure(one)
    return bool(ours == jax.tree.structure(other))


def real(tree: PyTree, name: str = "message") -> PyTree:
    """The tree to clip and perturb: every leaf, of any type, in floats of 32 bits or more.

    Integers and booleans become float32 (float64 in a tree with 64 bits), and shorter floats float32.

    Args:
      tree: arrays of any type, or numbers.
      name: what an error calls the tree.

    Raises:
      ValueError: a leaf that is complex, a PRNG key, or of another type that holds no real numbers.
    """
    jax.tree_util.tree_map_with_path(lambda path, leaf: _check_real(name, path, leaf), tree)
    tree = jax.tree.map(jnp.asarray, tree)
    kind = width(tree)
    return jax.tree.map(lambda x: x.astype(width(x) if _is_real(x) else kind), tree)


def holds_numbers(dtype: Any) -> bool:
    """Whether an array of this type is one of real numbers, or booleans."""
    return any(jax.dtypes.issubdtype(dtype, kind) for kind in (np.bool_, np.integer, np.floating))


def _check_real(name: str, path: Any, leaf: Any) -> None:
    dtype = leaf.dtype if hasattr(leaf, "dtype") else jnp.asarray(leaf).dtype
    if holds_numbers(dtype):
        return
    remedy = "leave it out"
    if jnp.issubdtype(dtype, jnp.complexfloating):
        remedy = "give jnp.stack([z.real, z.imag])"
    raise ValueError(
        f"{name}{jax.tree_util.keystr(path)}: {dtype} holds no real numbers, and only these can be clipped and "
        f"perturbed; {remedy}"
    )


def width(tree: PyTree) -> Any:
    """The type of floats that holds all leaves: float32, or float64 if one of them has 64 bits."""
    kinds = [_type(leaf) for leaf in jax.tree.leaves(tree)]
    wide = any(kind.itemsize == 8 and kind.kind in "fiu" for kind in kinds)
    return jnp.dtype(jnp.float64 if wide else jnp.float32)


def _type(leaf: jax.Array) -> Any:
    """The leaf's type as JAX computes with it."""
    return jax.dtypes.canonicalize_dtype(leaf.dtype)


def _is_real(leaf: jax.Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def flatten(tree: PyTree) -> jax.Array:
    """f32[d]: the leaves one after another, in the order of `jax.flatten_util.ravel_pytree`."""
    leaves = [leaf.reshape(-1) for leaf in jax.tree.leaves(widened(tree))]
    return jnp.concatenate(leaves)


def unflatten(vector: jax.Array, like: PyTree) -> PyTree:
    """The inverse of `flatten`: f32[d] in the shapes of `like`, and real numbers in the types of its leaves."""
    leaves, treedef = jax.tree.flatten(like)
    parts, start = [], 0
    for leaf in leaves:
        part = vector[start : start + leaf.size].reshape(leaf.shape)
        both = _is_real(part) and _is_real(leaf)
        parts.append(part.astype(_type(leaf)) if both else part)
        start += leaf.size
    return jax.tree.unflatten(treedef, parts)
