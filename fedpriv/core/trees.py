"""A model as one vector, and some of its coordinates.

Models keep the types of their leaves. What is computed of all of them has at least 32 bits: a vector, a sum, its noise.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import holds_numbers, shown
from fedpriv.core.types import Params, PyTree


def dimension(tree: PyTree) -> int:
    """Number of coordinates d of a pytree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def shapes(tree: PyTree) -> tuple[str, ...]:
    """Structure, shapes and types, in plain values."""
    leaves = (f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}" for leaf in jax.tree.leaves(tree))
    return (str(jax.tree.structure(tree)), *leaves)


def sizes(tree: PyTree) -> str:
    """The tree with the type and shape of each array in its place, such as "{'label': 'int32[60]'}"."""
    kinds = lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"  # noqa: E731
    return str(jax.tree.map(kinds, tree))


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


def check_arrays(params: Params) -> None:
    """Raises ValueError: parameters that are none at all, or a leaf that is no array of a type that JAX has."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(f"params: {shown(params)} holds no arrays; give the parameters of a model")
    for path, leaf in leaves:
        kind = getattr(leaf, "dtype", None)
        text = isinstance(kind, np.dtype) and kind.kind in "OSU"
        if text or not (kind or isinstance(leaf, complex | SupportsFloat)):
            raise _no_floats(path, leaf)


def check_values(params: Params) -> None:
    """Raises ValueError: a leaf that is the shape of an array alone, which is enough for `certify`."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise ValueError(
                f"params{jax.tree_util.keystr(path)}: {shown(leaf)} has no values; give the array, or a model's `init`"
            )


def check_params(params: Params) -> None:
    """Raises ValueError: parameters that no gradient can be taken of: none at all, or a leaf that is not of floats."""
    check_arrays(params)
    check_values(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        kind = getattr(leaf, "dtype", type(leaf))
        if kind is not float and not jnp.issubdtype(kind, jnp.floating):
            raise _no_floats(path, leaf)


def _no_floats(path: Any, leaf: Any) -> ValueError:
    kind = f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else shown(leaf)
    return ValueError(
        f"params{jax.tree_util.keystr(path)}: {kind}; give floats, which alone can be trained, or keep it out of the "
        "parameters"
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


def gather(tree: PyTree, kept: jax.Array) -> jax.Array:
    """f32[k]: the coordinates `kept` (i32[k]) of the flattened tree."""
    return flatten(tree)[kept]


def scatter(values: jax.Array, kept: jax.Array, like: PyTree) -> PyTree:
    """A tree in the shapes of `like` with `values` (f32[k]) at the coordinates `kept` and exactly 0 elsewhere."""
    vector = jnp.zeros(dimension(like), values.dtype)
    vector = vector.at[kept].set(values, unique_indices=True, indices_are_sorted=True)
    return unflatten(vector, like)


def as_float(image: jax.Array) -> jax.Array:
    """u8[...] of 0..255 become f32[...] of 0..1, booleans 0 and 1; others stay as they are."""
    if image.dtype == bool:
        return image.astype(jnp.float32)
    return image.astype(jnp.float32) / 255 if image.dtype == jnp.uint8 else image


def is_finite(tree: PyTree) -> jax.Array:
    """bool[]: whether all floats of the tree are finite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.bool_(True), *(jnp.all(jnp.isfinite(x)) for x in floats)]))
