"""The steps of local training: gradient, optimiser, update, one batch after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.core.jaxprs import evaluate
from fedpriv.core.types import Params
from fedpriv.mechanisms.not_finite_counts import add_records, counted_records
from fedpriv.rounds.low_rank import Batch, Steps, is_large, low_rank_steps


def take_steps(
    grad: Callable[..., Params],
    optimizer: optax.GradientTransformation,
    params: Params,
    batch_at: Callable[[jax.Array], Batch],
    count: jax.Array,
    most: int | None,
) -> Params:
    """The parameters after `count` gradient steps, which begin with a fresh optimiser.

    With a bound on the steps the largest matrix may be kept as a sum until the last of them: the same numbers up to
    rounding, see `low_rank.py`.

    Args:
      grad: (params, *batch) -> gradient.
      batch_at: s -> batch of step s, from 0.
      count: i32[].
      most: bound on the number of steps, which stop there; None if there is none.
    """
    steps = None
    if most is not None:
        count = jnp.minimum(count, most)
        shapes = jax.eval_shape(batch_at, jnp.int32(0))
        if is_large(params, most):
            grad = _traced_once(grad, params, shapes)
            steps = low_rank_steps(grad, optimizer, params, shapes, most)
    steps = steps or _plain_steps(grad, optimizer, params)

    def step(s: jax.Array, carry: Any) -> Any:
        carried, lost = carry
        with counted_records() as seen:
            carried = steps.step(s, carried, batch_at(s))
        return carried, lost + seen.total()

    start = steps.start, jnp.zeros(2, jnp.int32)
    carried, lost = lax.fori_loop(0, count, step, start)
    add_records(lost)
    return steps.trained(carried)


def _traced_once(
    grad: Callable[..., Params], params: Params, batch: Batch
) -> Callable[..., Params]:
    """`grad` by the program that it is, which serves whatever the steps are: the user's loss is traced once."""

    def counted(params: Params, *batch: Any) -> tuple[Params, jax.Array]:
        with counted_records() as seen:
            gradient = grad(params, *batch)
        return gradient, seen.total()

    program, shapes = jax.make_jaxpr(counted, return_shape=True)(params, *batch)
    tree = jax.tree.structure(shapes)

    def of_program(params: Params, *batch: Any) -> Params:
        leaves = jax.tree.leaves((params, *batch))
        gradient, lost = jax.tree.unflatten(tree, evaluate(program, leaves, _as_it_is))
        add_records(lost)
        return gradient

    return of_program


def _as_it_is(eqn: JaxprEqn, values: list[Any]) -> Any:
    return NotImplemented


def _plain_steps(
    grad: Callable[..., Params], optimizer: optax.GradientTransformation, params: Params
) -> Steps:
    def step(s: jax.Array, carry: tuple, batch: Batch) -> tuple:
        params, opt_state = carry
        updates, opt_state = optimizer.update(grad(params, *batch), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return Steps((params, optimizer.init(params)), step, lambda carry: carry[0])
