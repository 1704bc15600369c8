"""Gradients of records that are formed: in the order of the tensor's entries, and their weighted sum.

XLA's CPU backend writes whole copies of a batch's gradients where it has to put entries in another order, or zeros in
the place of those that do not count. Here neither is written.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.materialized import materialized
from fedpriv.mechanisms.entries import Move
from fedpriv.mechanisms.outer_products import EXACT, OneHot, Stacked, counted

_TOGETHER = 32
"""Records, up to which XLA's CPU backend computes and adds numbers in one loop."""
_FEW = 8


def is_formed_last(gradients: object) -> bool:
    """Whether a tensor's gradients are one product of matrices, whose rows take about as much memory as they do."""
    if not isinstance(gradients, Stacked) or len(gradients.products) != 1:
        return False
    left, right = gradients.products[0].left, gradients.products[0].right
    if isinstance(left, OneHot) or isinstance(right, OneHot):
        return False
    (_, rows, i), o = left.shape, right.shape[2]
    return rows * (i + o) <= 2 * i * o


def formed(gradients: Stacked) -> jax.Array:
    """f32[B, ...], gradients of one product: the transposed matrices', where these have the tensor's order."""
    (product,) = gradients.products
    left, right = product.left, product.right
    assert not isinstance(left, OneHot)
    assert not isinstance(right, OneHot)
    shape = _of_transposed(left.shape[2], right.shape[2], gradients.moves)
    values = gradients.formed() if shape is None else product.swapped().formed()
    return values if shape is None else values.reshape(values.shape[0], *shape)


def _of_transposed(i: int, o: int, moves: tuple[Move, ...]) -> tuple[int, ...] | None:
    """The shape to which `moves` bring a matrix [i, o], if that is the order of its transpose's entries; else None.

    They are that if all axes of the matrix's rows go behind those of its columns.
    """
    entries = moves[0][1] if moves and moves[0][0] == "reshape" else (i, o)
    kind, axes = moves[-1] if moves else ("", ())
    if kind != "transpose" or len(moves) > 2 or (len(moves) == 2 and moves[0][0] != "reshape"):
        return None
    count = len(axes) - axes.index(0)
    behind = (*range(count, len(axes)), *range(count))
    if axes != behind or math.prod(entries[:count]) != i:
        return None
    return (*entries[count:], *entries[:count])


def weighted_sum(values: jax.Array, weights: jax.Array) -> jax.Array:
    """f32[...]: sum_b weights_b values_b, of values [B, ...]; those of weight 0 do not count, even if not finite."""
    group = max(n for n in range(1, _TOGETHER + 1) if weights.shape[0] % n == 0)
    if jax.default_backend() != "cpu" or group < _FEW:
        return jnp.tensordot(weights, counted(values, weights), 1, precision=EXACT)
    return _weighted_sum(values, weights, group=group)


@materialized
def _weighted_sum(values: jax.Array, weights: jax.Array, *, group: int) -> jax.Array:
    factors = weights.reshape(-1, *[1] * (values.ndim - 1))
    each = jnp.where(factors != 0, factors * values, 0.0)
    sums = jnp.sum(each.reshape(-1, group, *values.shape[1:]), 1)
    return jnp.sum(lax.optimization_barrier(sums), 0)
