"""Large dense layers as a low-rank sum while a client trains.

A dense layer's gradient over a batch of N records is a product L^T R of N rows, the layer's inputs and the errors of
its outputs. Where the optimiser is linear in it, the weights after s steps are a W_0 + sum_j c_j L_j^T R_j, and a
product with them is one with W_0 and two with thin matrices: neither gradient, nor momentum, nor the weights themselves
are written before the last step. The same numbers up to rounding, less memory traffic; and where clients run side by
side, W_0 is shared by all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import ClosedJaxpr

from fedpriv.core.jaxprs import NotInterpretedError
from fedpriv.core.types import Example, Params
from fedpriv.models.dense import LARGE_MATRIX
from fedpriv.rounds.factored import FactoredGradient, LowRank, Outer
from fedpriv.rounds.linear_optimizer import Coefficients, LinearOptimizer

# Reading and writing weights, gradient and momentum takes as long as this many multiplications per weight, or longer.
_TRAFFIC = 32


Batch: TypeAlias = tuple[Example, jax.Array]
"""Examples with a leading axis, and the mask bool[B] of those that count."""


class Steps(NamedTuple):
    """Local training, step by step.

    Attributes:
      start: what is carried from step to step, before the first.
      step: (number from 0, carried, batch) -> carried.
      trained: carried -> parameters.
    """

    start: Any
    step: Callable[[jax.Array, Any, Batch], Any]
    trained: Callable[[Any], Params]


class _Carry(NamedTuple):
    """Leaves of the parameters and of the optimiser's state, some as coefficients, and each matrix's factors so far.

    Attributes:
      factors: number of a matrix -> (f32[S, N, i], f32[S, N, o]).
    """

    leaves: list[Any]
    state: list[Any]
    factors: dict[int, tuple[jax.Array, jax.Array]]


def low_rank_steps(
    grad: Callable[..., Params],
    optimizer: optax.GradientTransformation,
    params: Params,
    batch: Batch,
    most: int,
) -> Steps | None:
    """Local training with those matrices as sums for which that is exact, and cheaper; None if there are none.

    Args:
      grad: (params, *batch) -> gradient.
      params: W_0.
      batch: of any step, or its shapes.
      most: S, the number of steps at most.
    """
    leaves, tree = jax.tree.flatten(params)
    large = [i for i, x in enumerate(leaves) if _is_large(x)]
    if most < 2 or not large:
        return None
    program = jax.make_jaxpr(grad)(params, *batch)
    rows = {i: _rows_if_cheaper(i, program, optimizer, params, batch, most) for i in large}
    matrices = [i for i in large if rows[i]]
    if not matrices:
        return None
    try:
        gradient = FactoredGradient(program, matrices)
        linear = LinearOptimizer(optimizer, params, matrices, most)
        jax.eval_shape(partial(_left_factors, gradient), leaves, batch)
    except NotInterpretedError:  # one of them is multiplied by another
        return None

    def sums(carry: _Carry) -> list[Any]:
        factors = carry.factors
        at = enumerate(carry.leaves)
        return [_sum(leaves[i], x, factors[i]) if i in factors else x for i, x in at]

    def step(s: jax.Array, carry: _Carry, batch: Batch) -> _Carry:
        found = gradient(sums(carry), batch)
        factors = {i: _at(s, stored, found[i]) for i, stored in carry.factors.items()}
        return _Carry(*linear.step(s, found, carry.state, carry.leaves), factors)

    def trained(carry: _Carry) -> Params:
        precision = gradient.precision
        at = enumerate(sums(carry))
        formed = [x.formed(precision[i]) if isinstance(x, LowRank) else x for i, x in at]
        return jax.tree.unflatten(tree, formed)

    factors = {i: _no_factors(most, rows[i], leaves[i]) for i in matrices}
    return Steps(_Carry(*linear.start(leaves), factors), step, trained)


def _is_large(x: jax.Array) -> bool:
    return x.ndim == 2 and x.size >= LARGE_MATRIX and x.dtype == jnp.float32


def _rows_if_cheaper(
    i: int,
    program: ClosedJaxpr,
    optimizer: optax.GradientTransformation,
    params: Params,
    batch: Batch,
    most: int,
) -> int:
    """N, where the sum is exact and cheaper for matrix i; else 0."""
    try:
        LinearOptimizer(optimizer, params, [i], most)
        gradient = FactoredGradient(program, [i])
        factors = jax.eval_shape(partial(_left_factors, gradient), jax.tree.leaves(params), batch)
        n = factors[0].shape[0]
    except NotInterpretedError:
        return 0
    matrix = jax.tree.leaves(params)[i]
    return n if 2 * n * n * most * sum(matrix.shape) <= _TRAFFIC * matrix.size else 0


def _left_factors(
    gradient: FactoredGradient, leaves: list[jax.Array], batch: Batch
) -> list[jax.Array]:
    """Of the gradients for the matrices, at sums of one step of one record."""
    given: list[Any] = list(leaves)
    for i in gradient.matrices:
        own = Coefficients(jnp.ones(2, jnp.float32), i)
        given[i] = _sum(leaves[i], own, _no_factors(1, 1, leaves[i]))
    found = gradient(given, batch)
    return [found[i].left for i in gradient.matrices]


def _no_factors(steps: int, rows: int, matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    i, o = matrix.shape
    return jnp.zeros((steps, rows, i), jnp.float32), jnp.zeros((steps, rows, o), jnp.float32)


def _sum(start: jax.Array, own: Coefficients, factors: tuple[jax.Array, jax.Array]) -> LowRank:
    left, right = (f.reshape(-1, f.shape[-1]) for f in factors)
    weights = jnp.repeat(own.values[1:], factors[0].shape[1])
    return LowRank(start, own.values[0], left, weights, right)


def _at(
    s: jax.Array, stored: tuple[jax.Array, jax.Array], new: Outer
) -> tuple[jax.Array, jax.Array]:
    return stored[0].at[s].set(new.left), stored[1].at[s].set(new.right)
