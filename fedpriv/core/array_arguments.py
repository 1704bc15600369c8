"""Arrays, trees of them and keys as people hand them in: one line for what is none."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jax
import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.trees import holds_numbers
from fedpriv.core.types import Key, PyTree


def check_numbers(name: str, value: Any, axes: int | None = None) -> None:
    """Raises ValueError: no array of real numbers, or of other axes; without axes, a number will do."""
    if not axes and isinstance(value, int | float):
        return
    known = hasattr(value, "shape") and hasattr(value, "dtype")
    fits = known and holds_numbers(value.dtype) and (axes is None or value.ndim == axes)
    wanted = "numbers" if axes is None else f"numbers with {axes} axes"
    require(fits, name, value, f"give an array of {wanted}")


def as_numbers(name: str, value: Any, axes: int | None = None) -> np.ndarray:
    """The array, of a list, too; raises ValueError as `check_numbers`."""
    with suppress(TypeError, ValueError):  # of a list of lists of different length
        value = np.asarray(value)
    check_numbers(name, value, axes)
    return value


def check_leaves(name: str, tree: PyTree) -> None:
    """Raises ValueError: a leaf that is no array that JAX can hold."""
    for path, leaf in jax.tree.leaves_with_path(tree):
        try:
            jax.typeof(leaf)
        except (TypeError, OverflowError):
            remedy = "give arrays, and numbers of at most 32 bits"
            require(False, name + jax.tree_util.keystr(path), leaf, remedy)


def check_key(name: str, value: Key, remedy: str = "give one such as jax.random.key(0)") -> None:
    """Raises ValueError: it is not one key of JAX's, typed or not."""
    array = isinstance(value, jax.Array | np.ndarray)
    typed = array and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    axes = 0 if typed else 1
    fits = array and value.ndim == axes and (typed or value.dtype == np.uint32)
    require(fits, name, value, remedy)
