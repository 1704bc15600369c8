"""What a statistic is of: a number, or several, of each record, between public bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.core.user_functions import asked

Values: TypeAlias = str | Callable[[Example], Any]
"""The name of a leaf, or a function of ONE record."""


def check_values(values: Any) -> None:
    """Raises ValueError: it is neither."""
    fits = isinstance(values, str) or (callable(values) and not isinstance(values, type))
    remedy = "give the name of a leaf, or a function of one record, as lambda x: x['age'] / 10"
    require(fits, "values", values, remedy)


def value_of(values: Values, example: Example) -> jax.Array:
    """Of one record, or of several along leading axes where it is a leaf.

    Raises:
      ValueError: no leaf has that name, or the function does not give back one array of numbers.
    """
    if isinstance(values, str):
        leaves = list(example) if isinstance(example, Mapping) else []
        require(values in leaves, "values", values, f"give one of {leaves}, or a function")
        value = example[values]
    else:
        value = asked("values", values, "(record)", example)
    numbers = hasattr(value, "dtype") and value.dtype.kind in "biuf"
    require(numbers, "values", value, "let it give one array of numbers")
    return value


def numbers_of(values: Values, record: Example) -> jax.Array:
    """f32[...], those of one record; NaN where they are missing."""
    return jnp.asarray(value_of(values, record), jnp.float32)


def observed(numbers: jax.Array, otherwise: float = 0.0) -> jax.Array:
    """The numbers, with `otherwise` where they are missing, which is NaN."""
    return jnp.where(jnp.isnan(numbers), otherwise, numbers)


def shape_of(values: Values, record: Example) -> tuple[int, ...]:
    """That of a record's value; `record` is in shapes."""
    return jax.eval_shape(lambda one: jnp.asarray(value_of(values, one)), record).shape


def shape_within(
    values: Values,
    record: Example,
    bounds: tuple[np.ndarray, np.ndarray],
    axes: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Of what is released of a value, which is averaged over the axes.

    Raises:
      ValueError: the bounds do not go with it, or the axes.
    """
    whole = shape_of(values, record)
    remedy = f"give axes of a value, whose shape is {list(whole)}"
    fits = all(axis < len(whole) for axis in axes) and len(set(axes)) == len(axes)
    require(fits, "axis", axes, remedy)
    kept = tuple(size for axis, size in enumerate(whole) if axis not in axes)
    for each in bounds:
        try:
            fits = np.broadcast_shapes(each.shape, kept) == kept
        except ValueError:
            fits = False
        remedy = f"give numbers, or arrays for {list(kept)} numbers"
        require(fits, "bounds", each, remedy)
    return kept


def scaled_to(numbers: jax.Array, bounds: tuple[np.ndarray, np.ndarray]) -> jax.Array:
    """In [-1, 1], or NaN: where they lie between the bounds, into which they are clipped."""
    low, high = bounds
    middle, reach = (low + high) / 2, (high - low) / 2
    return (jnp.clip(numbers, low, high) - jnp.float32(middle)) / jnp.float32(reach)


def radius_of(shape: tuple[int, ...]) -> float:
    """Of a box of sides from -1 to 1."""
    return math.sqrt(math.prod(shape))


def name_of(values: Values) -> str:
    """As a statistic shows it."""
    return repr(values) if isinstance(values, str) else getattr(values, "__name__", "a function")


def checked_bounds(bounds: Any) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), f64[...] each.

    Raises:
      ValueError: no pair of finite numbers, or of arrays, the first below the second; or so far from 0, for their
        width, that float32 would round values to less than a hundredth of it.
    """
    remedy = "give (low, high), finite, low below high"
    pair = isinstance(bounds, Sequence) and not isinstance(bounds, str) and len(bounds) == 2
    require(pair, "bounds", bounds, remedy)
    low, high = (_numbers("bounds", each, remedy) for each in bounds)
    fits = np.isfinite(low).all() and np.isfinite(high).all()
    try:
        fits &= bool(np.all(low < high))
    except ValueError:  # of shapes that do not go together
        fits = False
    require(bool(fits), "bounds", bounds, remedy)
    most = np.maximum(np.abs(low), np.abs(high))
    fits = np.all((most < 1e37) & (high - low > np.maximum(1e-5 * most, 1e-30)))
    remedy = (
        "float32 cannot tell values between them apart; take a constant off values, or scale them"
    )
    require(bool(fits), "bounds", bounds, remedy)
    return low, high


def checked_edges(bins: Any) -> np.ndarray:
    """The edges of bins, f64[bins + 1].

    Raises:
      ValueError: no edges, such as a number of bins, or edges that do not rise.
    """
    remedy = "give the edges of at least one bin, rising, as np.linspace(0, 1, 11)"
    edges = _numbers("bins", bins, remedy)
    fits = edges.ndim == 1 and len(edges) > 1 and bool(np.isfinite(edges).all())
    require(fits and bool(np.all(np.diff(edges) > 0)), "bins", bins, remedy)
    fits = bool(np.all(np.abs(edges) < 1e37)) and bool(np.all(np.diff(np.float32(edges)) > 0))
    remedy = "float32 cannot tell all edges apart; take a constant off values, or scale them"
    require(fits, "bins", bins, remedy)
    return edges


def _numbers(name: str, value: Any, remedy: str) -> np.ndarray:
    try:
        given = np.asarray(value)
        numbers = given.dtype.kind in "iuf"
    except ValueError:  # of unequal lengths
        numbers = False
    require(numbers, name, value, remedy)
    return given.astype(np.float64)


def checked_candidates(candidates: Any) -> np.ndarray:
    """A public list of items, i64[k].

    Raises:
      ValueError: it is empty, holds what is no whole number, or holds an item twice.
    """
    items = _numbers("candidates", candidates, "give a list of whole numbers, at least one")
    whole = items.ndim == 1 and len(items) > 0 and bool(np.all(items == np.round(items)))
    require(whole, "candidates", candidates, "give a list of whole numbers, at least one")
    require(len(set(items)) == len(items), "candidates", candidates, "give each item once")
    return items.astype(np.int64)
