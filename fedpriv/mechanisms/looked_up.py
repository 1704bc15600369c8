"""Gradients of a table whose rows are looked up: in traced programs, what is added up in an array of zeros."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.mechanisms.entries import composed, shape_of
from fedpriv.mechanisms.outer_products import OneHot, Product, Stacked


class LookedUp(NamedTuple):
    """An equation that adds rows to zeros, for each record by itself.

    Attributes:
      records: the axis of the records.
      table: the axis of the table along which its rows are.
      shared: whether all records look up the same rows.
    """

    eqn: JaxprEqn
    records: int
    table: int
    shared: bool

    def __call__(self, zeros: Any, indices: jax.Array, rows: jax.Array) -> Stacked:
        """The gradients, of the equation's inputs."""
        del zeros
        numbers, shape = self.eqn.params["dimension_numbers"], shape_of(self.eqn.outvars[0])
        column = numbers.scatter_dims_to_operand_dims.index(self.table)
        width, window = shape[self.table], list(numbers.update_window_dims)
        first = [axis for axis in range(rows.ndim) if axis not in window]
        places = indices[..., column]
        if places.dtype.itemsize < 4:  # which do not hold the width
            places = places.astype(jnp.int32)
        if self.shared:
            of_records = window.pop(_kept(numbers, len(shape)).index(self.records))
            first.insert(0, of_records)
            places = jnp.broadcast_to(places, (shape[self.records], *places.shape))
        others = [n for axis, n in enumerate(shape) if axis not in (self.records, self.table)]
        places = places.reshape(places.shape[0], math.prod(places.shape[1:]))
        rows = rows.transpose(*first, *window).reshape(*places.shape, math.prod(others))
        if self.eqn.params["mode"] == lax.GatherScatterMode.CLIP:
            places = jnp.clip(places, 0, width - 1)
        else:
            inside = (places >= 0) & (places < width)
            places, rows = jnp.where(inside, places, 0), jnp.where(inside[..., None], rows, 0)
        to = self.table - (self.records < self.table)
        axes = (*range(1, to + 1), 0, *range(to + 1, len(others) + 1))
        moves = [("reshape", (width, *others))] if len(others) != 1 else []
        product = Product(OneHot(places.astype(jnp.int32), width), rows)
        return Stacked((product,), composed(*moves, ("transpose", axes)))


def looked_up(eqn: JaxprEqn, records: int) -> LookedUp | None:
    """How an equation adds rows to a table of each record, if that is what it does; that the table is 0 is not checked.

    Args:
      records: the axis of the result along which the records are.
    """
    if eqn.primitive.name not in ("scatter-add", "scatter"):
        return None
    numbers, shape = eqn.params["dimension_numbers"], shape_of(eqn.outvars[0])
    indices, rows = map(shape_of, eqn.invars[1:])
    kept, scattered = _kept(numbers, len(shape)), numbers.scatter_dims_to_operand_dims
    if numbers.operand_batching_dims == (records,):
        shared, known = False, tuple(numbers.scatter_indices_batching_dims) == (0,)
    else:
        shared, known = True, numbers.operand_batching_dims == () and records in kept
    if not known or records in scattered:
        return None
    if eqn.primitive.name == "scatter" and math.prod(indices[0 if shared else 1 : -1]) != 1:
        return None  # a row that is written twice has one value, not their sum
    sizes = dict(zip(kept, (rows[axis] for axis in numbers.update_window_dims), strict=True))
    found = [axis for axis in scattered if sizes.get(axis, 1) == 1 < shape[axis]]
    whole = all(sizes[axis] == shape[axis] for axis in kept if axis not in found)
    at_0 = len(scattered) == 1 or eqn.params["mode"] == lax.GatherScatterMode.CLIP
    if len(found) != 1 or not whole or not at_0 or not {*numbers.inserted_window_dims} <= {*found}:
        return None
    return LookedUp(eqn, records, found[0], shared)


def _kept(numbers: Any, axes: int) -> list[int]:
    """The axes of the table that the rows have, too."""
    without = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    return [axis for axis in range(axes) if axis not in without]
