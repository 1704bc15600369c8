"""What a client does with the model it is sent: batches, gradients, local training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.core import random_streams
from fedpriv.core.argument_kinds import require_kind
from fedpriv.core.random_losses import needing_keys, needs_keys, of_one, takes_key, with_keys
from fedpriv.core.types import Example, Key, LossFn, Params
from fedpriv.devices.layout import current
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.low_rank import Batch, Steps, low_rank_steps

Schedule: TypeAlias = Callable[[jax.Array], optax.GradientTransformation]
"""Round number (i32[]) -> the optimiser of that round; `lambda t: optax.sgd(0.1 * 0.99**t, momentum=0.5)`."""

GradFn: TypeAlias = Callable[[Params, Example, jax.Array], Params]
"""(params, batch with leading axis B, mask bool[B]) -> gradient."""


class Plan(NamedTuple):
    """The batches one client takes.

    Attributes:
      steps: i32[], their number.
      at: s -> (positions i32[B], mask bool[B]) of batch s, from 0.
      most: bound on their number, if one is known before the client is: lets large layers be kept in a cheaper form. No
        more batches than that are taken.
    """

    steps: jax.Array
    at: Callable[[jax.Array], tuple[jax.Array, jax.Array]]
    most: int | None = None


Batches: TypeAlias = Callable[[Key, jax.Array, int], Plan]
"""(key, size i32[], capacity) -> Plan."""


def epochs(count: int, batch_size: int) -> Batches:
    """`count` passes over the client's records, each in a fresh order; the last batch of a pass may be smaller.

    Raises:
      ValueError: a count or batch size below 1.
    """
    _positive("epochs", count)
    _positive("batch_size", batch_size)

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        width = min(batch_size, capacity)
        per_epoch = -(-size // width)
        orders = jax.vmap(lambda k: _order(k, size, capacity))(jax.random.split(key, count))
        orders = jnp.pad(orders, ((0, 0), (0, -capacity % width)))

        def at(step: jax.Array) -> tuple[jax.Array, jax.Array]:
            epoch, batch = step // per_epoch, step % per_epoch
            positions = lax.dynamic_slice(orders, (epoch, batch * width), (1, width))[0]
            return positions, batch * width + jnp.arange(width) < size

        return Plan(count * per_epoch, at, count * -(-capacity // width))

    return plan


def steps(count: int, batch_size: int) -> Batches:
    """`count` batches, each a fresh subset of min(batch_size, size) records without replacement.

    Raises:
      ValueError: a count or batch size below 1.
    """
    _positive("steps", count)
    _positive("batch_size", batch_size)

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        width = min(batch_size, capacity)

        def at(step: jax.Array) -> tuple[jax.Array, jax.Array]:
            order = _order(jax.random.fold_in(key, step), size, capacity)
            return order[:width], jnp.arange(width) < size

        return Plan(jnp.int32(count), at, count)

    return plan


def full_batch() -> Batches:
    """One batch of all records."""

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        positions = jnp.arange(capacity, dtype=jnp.int32)
        return Plan(jnp.int32(1), lambda step: (positions, positions < size), 1)

    return plan


def _order(key: Key, size: jax.Array, capacity: int) -> jax.Array:
    """i32[capacity]: the real positions in random order, then the padding."""
    u = jax.random.uniform(key, (capacity,))
    return jnp.argsort(jnp.where(jnp.arange(capacity) < size, u, 2.0)).astype(jnp.int32)


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name}: {value} is not at least 1")


def check_schedule(optimizer: Schedule | None) -> None:
    """Raises ValueError: an optimiser in the place of the function that gives it."""
    if isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            "optimizer: an optax optimiser, not a function of the round; give `lambda t: optax.sgd(0.1)` or the like"
        )


def check_training(optimizer: Schedule, batches: Batches) -> None:
    """Raises ValueError: an optimiser in the place of the function that gives it; a number in the place of batches."""
    check_schedule(optimizer)
    fits = callable(batches) and batches not in (epochs, steps, full_batch)
    require_kind("batches", batches, fits, "fp.epochs(5, batch_size=10) or fp.full_batch()")


def mean_grad(loss: LossFn) -> GradFn:
    """Gradient of the mean loss over the real examples of a batch (0 for an empty one).

    Of a random loss, which takes a key, the batch is `fp.with_keys(key, examples)`; `train` gives one.

    Raises:
      ValueError: `loss` is no function.
    """
    one = of_one(loss)

    def mean_loss(params: Params, batch: Example, mask: jax.Array) -> jax.Array:
        losses = jax.vmap(one, in_axes=(None, 0))(params, batch)
        return jnp.sum(jnp.where(mask, losses, 0.0)) / jnp.maximum(jnp.sum(mask), 1)

    return needing_keys(jax.grad(mean_loss), takes_key(loss))


def train(
    key: Key,
    params: Params,
    shard: Shard,
    *,
    grad: GradFn,
    optimizer: optax.GradientTransformation,
    batches: Batches,
) -> Params:
    """Local training from `params` on one client's records; the optimiser's state (momentum) starts afresh.

    A random loss gets a fresh key for each record of each step, from `key`.

    Returns:
      The trained parameters.
    """
    plan = batches(key, shard.size, shard.capacity)

    def batch_at(s: jax.Array) -> Batch:
        positions, mask = plan.at(s)
        examples = jax.tree.map(lambda leaf: leaf[positions], shard.examples)
        if needs_keys(grad):
            drawing = jax.random.fold_in(key, random_streams.DROPOUT)
            examples = with_keys(jax.random.fold_in(drawing, s), examples)
        return examples, mask

    steps = None
    if plan.most is not None and current().dense == "auto":
        shapes = jax.eval_shape(batch_at, jnp.int32(0))
        steps = low_rank_steps(grad, optimizer, params, shapes, plan.most)
    steps = steps or _plain_steps(grad, optimizer, params)

    def step(s: jax.Array, carry: Any) -> Any:
        return steps.step(s, carry, batch_at(s))

    count = plan.steps if plan.most is None else jnp.minimum(plan.steps, plan.most)
    return steps.trained(lax.fori_loop(0, count, step, steps.start))


def _plain_steps(grad: GradFn, optimizer: optax.GradientTransformation, params: Params) -> Steps:
    def step(s: jax.Array, carry: tuple, batch: Batch) -> tuple:
        params, opt_state = carry
        updates, opt_state = optimizer.update(grad(params, *batch), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return Steps((params, optimizer.init(params)), step, lambda carry: carry[0])
