"""Which trees are the parameters of a model, and one line for what is not."""

from __future__ import annotations

from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import shown
from fedpriv.core.types import Params


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
