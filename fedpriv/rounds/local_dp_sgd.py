"""The private local steps of a client: K noisy gradients of clipped records, and what they return."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.core.arguments import Count, Fraction, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.trees import dimension, flatten
from fedpriv.core.types import Key, Params
from fedpriv.mechanisms.per_example import Gradients, RecordMechanism
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.local_training import Batches, Plan, Schedule, optimizer_of, steps_taken
from fedpriv.rounds.optimizers import ready
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.record_samplers import RecordSampler


@checking_fields
class LocalSteps(NamedTuple):
    """DP-SGD on a client's records, with any optimiser of optax on the noisy gradients.

    Formal guarantees: those of `Shard.private_mean`, once a step: a record is bounded for replacement where `records`
    draws exact subsets or sizes are public, for addition and removal where it draws by Poisson, else for zero-out, as a
    whole client always is.

    Attributes:
      gradients: gradients of single records, from `per_example(loss)` or in closed form.
      records: draws a step's records. `fp.poisson(R, s)` and `fp.everyone(R)` draw among R places; a client fills one
        per record, at most R. So its number of records stays secret, and a step's sum is divided by the same lot size L
        = s R for all. `fp.fixed_size(R, L)` is for clients with exactly R records each, `fp.PublicSizes` for clients
        whose numbers of records are public.
      steps: K.
      optimizer: round -> the optimiser of the noisy gradients; its state (momentum) starts afresh in every round.
      mechanism: bounds a record's gradient and perturbs the sum.
      unit: the privacy unit.
      stragglers: share of the clients that take fewer steps, see `fp.straggling`. Certificates count all K steps.
    """

    gradients: Gradients
    records: RecordSampler
    steps: Count
    optimizer: Schedule
    mechanism: RecordMechanism
    unit: Literal["record", "client"] = "record"
    stragglers: Fraction = 0.0

    def run(
        self,
        key: Key,
        x: Params,
        shard: Shard,
        correction: Params | None = None,
        *,
        moving: jax.Array | bool = True,
    ) -> tuple[Params, jax.Array, jax.Array]:
        """K steps from x along the noisy gradients plus `correction`; unless `moving`, all gradients are taken at x.

        Returns:
          (y_K, the mean of the K noisy gradients f32[d], the user drift: the mean of ||y_k - x||^2). Of a straggler,
          those of the steps that it takes.
        """
        moving = checked("moving", moving, jax.Array | bool)
        optimizer = ready("optimizer", optimizer_of(self.optimizer, jnp.asarray(shard.round)))
        if correction is None:
            correction = jax.tree.map(jnp.zeros_like, x)

        def at(y: Params) -> Params:
            return jax.tree.map(lambda y, x: jnp.where(moving, y, x), y, x)

        taken: jax.Array | int = self.steps
        if self.stragglers > 0:
            taken = steps_taken(key, self.steps, self.stragglers)

        def step(k: jax.Array, carry: tuple) -> tuple:
            y, state, total, drift = carry
            h = shard.private_mean(
                self.gradients, at(y), records=self.records, mechanism=self.mechanism
            )
            # The barrier keeps constants from being folded across it, so that a correction of 0 changes no bit.
            direction = lax.optimization_barrier(jax.tree.map(jnp.add, h, correction))
            updates, state = optimizer.update(direction, state, y)
            y = optax.apply_updates(y, updates)
            moved = jax.tree.map(jnp.subtract, at(y), x)
            drift += optax.tree.norm(moved, squared=True)
            return y, state, total + flatten(h), drift

        def step_if_taken(k: jax.Array, carry: tuple) -> tuple:
            after = step(k, carry)
            if self.stragglers == 0:
                return after
            return jax.tree.map(lambda new, old: jnp.where(k < taken, new, old), after, carry)

        start = (x, optimizer.init(x), jnp.zeros(dimension(x)), jnp.zeros(()))
        y, _, total, drift = shard.private_steps(step_if_taken, start, steps=self.steps)
        return at(y), total / taken, drift / taken


def check_steps(local: LocalSteps) -> None:
    """Raises ValueError: no local steps of DP-SGD, or a part of them is of another kind."""
    remedy = "give fp.LocalSteps(gradients, records, steps, optimizer, mechanism)"
    require(isinstance(local, LocalSteps), "local", local, remedy)
    check_parts(
        gradients=local.gradients,
        records=local.records,
        optimizer=local.optimizer,
        mechanism=local.mechanism,
    )


Work = TypeVar("Work", LocalSteps, Batches)


def straggling(work: Work, rate: Fraction) -> Work:
    """`work` that a client, with probability `rate`, ends early: after k steps, k uniform from 1 on.

    T. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127, Section 5.2. Who is
    late, and how late, is drawn afresh in every round, independently of data.

    Formal guarantees: those without stragglers. A client's message is bounded whatever the client does. A record is
    seen through the noisy gradients of the steps taken, which all K together show, too: the certificate counts K.

    Args:
      work: such as `fp.epochs(5, batch_size=10)`, or `fp.LocalSteps(...)`.
      rate: share of the clients that are late.

    Raises:
      ValueError: a rate outside [0, 1], or `work` of another kind.
    """
    rate = checked("rate", rate, Fraction)
    if isinstance(work, LocalSteps):
        return work._replace(stragglers=rate)
    check_parts(work=work)

    def plan(key: Key, size: jax.Array, capacity: int) -> Plan:
        full = work(key, size, capacity)
        return full._replace(steps=steps_taken(key, full.steps, rate))

    return plan
