"""Arrays and keys as people hand them in: one line for what is none."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jax
import numpy as np

from fedpriv.core.arguments import require
from fedpriv.core.types import Key


def check_numbers(name: str, value: Any, axes: int | None = None) -> None:
    """Raises ValueError: no array of real numbers, or one with another number of axes; with 0, a number will do."""
    if axes == 0 and isinstance(value, int | float):
        return
    known = hasattr(value, "shape") and hasattr(value, "dtype")
    kinds = (np.bool_, np.integer, np.floating)
    fits = known and any(jax.dtypes.issubdtype(value.dtype, kind) for kind in kinds)
    fits = fits and (axes is None or value.ndim == axes)
    wanted = "numbers" if axes is None else f"numbers with {axes} axes"
    require(fits, name, value, f"give an array of {wanted}")


def as_numbers(name: str, value: Any, axes: int | None = None) -> np.ndarray:
    """The array, of a list, too; raises ValueError as `check_numbers`."""
    with suppress(TypeError, ValueError):  # of a list of lists of different length
        value = np.asarray(value)
    check_numbers(name, value, axes)
    return value


def check_key(name: str, value: Key) -> None:
    """Raises ValueError: no key of JAX's, typed or not."""
    typed = isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    words = isinstance(value, np.ndarray | jax.Array) and value.dtype == np.uint32 and value.ndim
    require(bool(typed or words), name, value, "give such as jax.random.key(0)")
