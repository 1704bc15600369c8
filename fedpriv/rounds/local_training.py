"""What a client does with the model it is sent: batches, gradients, local training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, Fraction, NonNegative, checked
from fedpriv.core.array_arguments import check_key
from fedpriv.core.complaints import require
from fedpriv.core.over_one_axis import over_one_axis
from fedpriv.core.parameters import check_params
from fedpriv.core.random_losses import (
    GradientFunction,
    needs_keys,
    of_one,
    takes_key,
    with_keys,
)
from fedpriv.core.types import Example, Key, LossFn, Params
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked, gives
from fedpriv.mechanisms.micro_batches import checked_micro, mean_of_parts
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.gradient_steps import Batch, take_steps
from fedpriv.rounds.optimizers import ready

Schedule: TypeAlias = Callable[[jax.Array], optax.GradientTransformation]
"""Round number (i32[]) -> the optimiser of that round; `lambda t: optax.sgd(0.1 * 0.99**t, momentum=0.5)`."""

LearningRate: TypeAlias = NonNegative | Callable[[jax.Array], jax.Array]
"""A number, or round number (i32[]) -> f32[], a schedule of optax."""

GradFn: TypeAlias = Callable[[Params, Example, jax.Array], Params]
"""(params, batch with leading axis B, mask bool[B]) -> gradient."""


class Plan(NamedTuple):
    """The batches that one client takes in local training.

    Attributes:
      steps: i32[], their number.
      at: s -> (positions i32[B], mask bool[B]) of batch s, from 0.
      most: bound on their number, if one is known before the client is: lets large layers be kept in a cheaper form. No
        more batches than that are taken.
      micro: records of a batch whose gradients are taken together, one such part after another; None: all of them.
    """

    steps: jax.Array
    at: Callable[[jax.Array], tuple[jax.Array, jax.Array]]
    most: int | None = None
    micro: int | None = None


Batches: TypeAlias = Callable[[Key, jax.Array, int], Plan]
"""(key, size i32[], capacity) -> Plan."""


def epochs(count: Count, batch_size: Count, micro: Count | None = None) -> Batches:
    """`count` passes over the client's records, each in a fresh order. The last batch of a pass may be smaller.

    Args:
      micro: records whose gradients are taken together: a step's batch in parts of so many, one after another, takes
        the memory of one part. The same steps up to rounding, for gradients that are means over the records.

    Raises:
      ValueError: a count, batch size or micro below 1, or a micro above the batch size.
    """
    count = checked("count", count, Count)
    batch_size = checked("batch_size", batch_size, Count)
    micro = checked_micro(micro, batch_size)

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        width = min(batch_size, capacity)
        per_epoch = -(-size // width)
        orders = jax.vmap(lambda k: _order(k, size, capacity))(jax.random.split(key, count))
        orders = jnp.pad(orders, ((0, 0), (0, -capacity % width)))

        def at(step: jax.Array) -> tuple[jax.Array, jax.Array]:
            epoch, batch = step // per_epoch, step % per_epoch
            positions = lax.dynamic_slice(orders, (epoch, batch * width), (1, width))[0]
            return positions, batch * width + jnp.arange(width) < size

        return Plan(count * per_epoch, at, count * -(-capacity // width), micro)

    return plan


def random_batches(count: Count, batch_size: Count, micro: Count | None = None) -> Batches:
    """`count` batches, each a fresh subset of min(batch_size, size) records, drawn without replacement.

    Args:
      micro: as for `epochs`.

    Raises:
      ValueError: as `epochs`.
    """
    count = checked("count", count, Count)
    batch_size = checked("batch_size", batch_size, Count)
    micro = checked_micro(micro, batch_size)

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        width = min(batch_size, capacity)

        def at(step: jax.Array) -> tuple[jax.Array, jax.Array]:
            order = _order(jax.random.fold_in(key, step), size, capacity)
            return order[:width], jnp.arange(width) < size

        return Plan(jnp.int32(count), at, count, micro)

    return plan


def full_batch(micro: Count | None = None) -> Batches:
    """For local training: one batch a step, with all records of the client.

    Args:
      micro: as for `epochs`; may be more than a client holds.

    Raises:
      ValueError: a micro below 1.
    """
    micro = checked_micro(micro)

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        positions = jnp.arange(capacity, dtype=jnp.int32)
        return Plan(jnp.int32(1), lambda step: (positions, positions < size), 1, micro)

    return plan


def steps_taken(key: Key, steps: jax.Array | int, stragglers: Fraction) -> jax.Array:
    """i32[]: `steps`, or with probability `stragglers` a uniform number from 1 to `steps`; from a stream of its own."""
    late, done = jax.random.split(jax.random.fold_in(key, random_streams.STRAGGLING))
    part = jax.random.randint(done, (), 1, jnp.maximum(steps, 1) + 1)
    return jnp.minimum(jnp.where(jax.random.bernoulli(late, stragglers), part, steps), steps)


def _order(key: Key, size: jax.Array, capacity: int) -> jax.Array:
    """i32[capacity]: the real positions in random order, then the padding."""
    u = jax.random.uniform(key, (capacity,))
    return jnp.argsort(jnp.where(jnp.arange(capacity) < size, u, 2.0)).astype(jnp.int32)


def mean_grad(loss: LossFn) -> GradFn:
    """Gradient of the mean loss over the real examples of a batch (0 for an empty one).

    If the loss takes a key, the batch is `fp.with_keys(key, examples)`, which `train` supplies.

    Raises:
      ValueError: `loss` does not have these parameters; when called, a loss that is not a number or depends on no
        parameter, or model parameters that are not floats.
    """
    one = of_one(loss)

    def mean_loss(params: Params, batch: Example, mask: jax.Array) -> jax.Array:
        losses = jax.vmap(one, in_axes=(None, 0))(params, batch)
        most = jnp.maximum(jnp.sum(mask), 1)
        return jnp.sum(jnp.where(mask, losses, 0.0)) / most.astype(losses.dtype)

    def grad(params: Params, batch: Example, mask: jax.Array) -> Params:
        check_params(params)
        return over_one_axis(jax.grad(mean_loss))(params, batch, mask)

    return GradientFunction(grad, takes_key(loss))


def optimizer_of(schedule: Schedule, t: jax.Array) -> optax.GradientTransformation:
    """The optimiser of round t (i32[]); schedules mix types as they like, as optimisers do, see `ready`."""
    with jax.numpy_dtype_promotion("standard"):
        return schedule(t)


@names_user_code
def train_locally(
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

    Raises:
      ValueError: parameters that are not of floats, or gradients that are not like them.
    """
    remedy = "give fp.train_locally(key, params, shard, ...)"
    check_key("key", key, remedy)
    require(isinstance(shard, Shard), "shard", shard, remedy)
    optimizer = ready("optimizer", optimizer)
    check_params(params)
    plan = asked("batches", batches, "(key, size, capacity)", key, shard.size, shard.capacity)
    gives(isinstance(plan, Plan), "batches", batches, plan, "return a plan, as fp.epochs does")

    def batch_at(s: jax.Array) -> Batch:
        positions, mask = plan.at(s)
        examples = jax.tree.map(lambda leaf: leaf[positions], shard.examples)
        if needs_keys(grad):
            drawing = jax.random.fold_in(key, random_streams.DROPOUT)
            examples = with_keys(jax.random.fold_in(drawing, s), examples)
        return examples, mask

    def like_params(params: Params, *batch: Any) -> Params:
        gradient = grad(params, *batch)
        _check_gradient(gradient, params)
        return gradient

    gradient = mean_of_parts(like_params, plan.micro)
    return take_steps(gradient, optimizer, params, batch_at, plan.steps, plan.most)


def _check_gradient(gradient: Any, params: Params) -> None:
    """Raises ValueError: it is not of floats in the shapes of the parameters, to which it would be stretched."""
    kinds, wanted = _kinds(gradient), _kinds(params)
    for name in dict.fromkeys([*wanted, *kinds]):
        if kinds.get(name) != wanted.get(name):
            raise ValueError(
                f"grad: gives {kinds.get(name, 'nothing')} for params{name}, which is "
                f"{wanted.get(name, 'not there')}; return a tree like the parameters, as fp.mean_grad(loss) does"
            )


def _kinds(tree: Any) -> dict[str, str]:
    kinds = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        kind = getattr(leaf, "dtype", type(leaf))
        floats = kind is float or jnp.issubdtype(kind, jnp.floating)
        shape = list(getattr(leaf, "shape", ()))
        kinds[jax.tree_util.keystr(path)] = f"{'float' if floats else kind}{shape}"
    return kinds
