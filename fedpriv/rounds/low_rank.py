"""The largest dense layer as a low-rank sum while a client trains.

A dense layer's gradient over a batch of N records is a product L^T R of N rows, the layer's inputs and the errors of
its outputs. Where the optimiser is linear in it, the weights after s steps are a W_0 + sum_j c_j L_j^T R_j, and a
product with them is one with W_0 and two with thin matrices: neither gradient, nor momentum, nor the weights themselves
are written before the last step. The same numbers up to rounding, less memory traffic; and where clients run side by
side, W_0 is shared by all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.interpreted import NotInterpretedError
from fedpriv.core.types import Example, Params
from fedpriv.models.dense import LARGE_MATRIX
from fedpriv.rounds.factored_gradient import FactoredGradient, LowRank
from fedpriv.rounds.linear_in_gradients import on_coefficients

# Reading and writing weights, gradient and momentum takes as long as this many multiplications per weight, or longer.
_TRAFFIC = 32


Batch: TypeAlias = tuple[Example, jax.Array]
"""Examples with a leading axis, and the mask bool[B] of those that count."""


class Steps(NamedTuple):
    """Local training with a low-rank sum, step by step.

    Attributes:
      start: what is carried from step to step, before the first.
      step: (number from 0, carried, batch) -> carried.
      trained: carried -> parameters.
    """

    start: Any
    step: Callable[[jax.Array, Any, Batch], Any]
    trained: Callable[[Any], Params]


class _Carry(NamedTuple):
    """Leaves of the parameters and of the optimiser's state, the matrix as coefficients, and its factors so far.

    Attributes:
      left, right: f32[S, N, i] and f32[S, N, o].
    """

    leaves: list[Any]
    state: list[Any]
    left: jax.Array
    right: jax.Array


def is_large(params: Params, most: int) -> bool:
    """Whether a matrix is so large that its sum may pay, for S steps at most."""
    return most >= 2 and max(map(_entries, jax.tree.leaves(params)), default=0) >= LARGE_MATRIX


def _entries(leaf: jax.Array) -> int:
    return leaf.size if leaf.ndim == 2 and leaf.dtype == jnp.float32 else 0


def low_rank_steps(
    grad: Callable[..., Params],
    optimizer: optax.GradientTransformation,
    params: Params,
    batch: Batch,
    most: int,
) -> Steps | None:
    """Local training with the largest matrix as a sum, if that is exact, and cheaper; else None.

    Args:
      grad: (params, *batch) -> gradient.
      params: W_0.
      batch: of any step, or its shapes.
      most: S, the number of steps at most.
    """
    leaves, tree = jax.tree.flatten(params)
    if not is_large(params, most):
        return None
    sizes = [_entries(leaf) for leaf in leaves]
    at = sizes.index(max(sizes))
    matrix = leaves[at]

    def with_sum(carry: _Carry) -> list[Any]:
        left, right = (f.reshape(-1, f.shape[-1]) for f in (carry.left, carry.right))
        share, *_ = own = carry.leaves[at].reshape(-1)
        weights = jnp.repeat(own[1:], carry.left.shape[1])
        sum = LowRank(matrix, share, left, weights, right)
        return [*carry.leaves[:at], sum, *carry.leaves[at + 1 :]]

    def begun(steps: int, rows: int) -> _Carry:
        values = [*leaves[:at], _unit(steps, 0), *leaves[at + 1 :]]
        left, right = (jnp.zeros((steps, rows, n), jnp.float32) for n in matrix.shape)
        return _Carry(values, init(values), left, right)

    def step(s: jax.Array, carry: _Carry, batch: Batch) -> _Carry:
        gradients = gradient(with_sum(carry), batch)
        factors, gradients[at] = gradients[at], _unit(most, s + 1)
        values, state = update(gradients, carry.state, carry.leaves)
        return _Carry(
            values, state, carry.left.at[s].set(factors.left), carry.right.at[s].set(factors.right)
        )

    def trained(carry: _Carry) -> Params:
        summed = with_sum(carry)
        return jax.tree.unflatten(
            tree, [*summed[:at], summed[at].formed(gradient.precision), *summed[at + 1 :]]
        )

    try:
        gradient = FactoredGradient(jax.make_jaxpr(grad)(params, *batch), at)
        init, update = on_coefficients(optimizer, params, at)
        rows = jax.eval_shape(lambda b: gradient(with_sum(begun(1, 1)), b)[at].left, batch).shape[0]
    except NotInterpretedError:
        return None
    cheaper = 2 * rows * rows * most * sum(matrix.shape) <= _TRAFFIC * matrix.size
    return Steps(begun(most, rows), step, trained) if cheaper else None


def _unit(steps: int, at: jax.Array | int) -> jax.Array:
    """f32[1 + steps, 1, 1], coefficients of W_0 and the gradients: 1 for the one at `at`."""
    return jnp.zeros((1 + steps, 1, 1), jnp.float32).at[at].set(1.0)
