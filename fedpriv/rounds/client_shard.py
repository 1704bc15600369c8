"""The records of one client, and the one way to learn from them in private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, checked, require
from fedpriv.core.random_losses import needs_keys, with_keys
from fedpriv.core.trees import dimension, shapes, sizes
from fedpriv.core.types import Example, Key, Params, PyTree
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.not_finite_counts import add_records, counted_records
from fedpriv.mechanisms.per_example import (
    Gradients,
    RecordMechanism,
    integer_total,
    private_mean,
    rounded,
)
from fedpriv.mechanisms.schedules import MECHANISM, is_mechanism
from fedpriv.rounds.noise_stream import NoiseStream
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.record_samplers import RecordSampler, draw_records
from fedpriv.rounds.samplers import ALIKE, Answer

Carry = TypeVar("Carry")


@dataclass(frozen=True, eq=False, match_args=False)
class Shard:
    """The records of one client; `dataclasses.replace` makes one with others.

    If the unit is a record, what a client sends may depend on the records through `private_mean` alone.

    Attributes:
      examples: leaves [capacity, ...].
      size: i32[], how many of them are real; these come first.
      round: i32[], number of rounds done, for mechanisms that change over the rounds.
      client_id: i32[], whose records they are, for audits; as private as the records.
    """

    examples: Example
    size: jax.Array
    round: jax.Array | int = 0
    client_id: jax.Array | int = 0
    _answer: Answer = field(default=ALIKE, repr=False)
    _stream: NoiseStream | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Without a record."""
        return f"Shard({sizes(self.examples)})"

    @property
    def capacity(self) -> int:
        """The largest number of records that fit; it is public."""
        return int(jax.tree.leaves(self.examples)[0].shape[0])

    @property
    def delay(self) -> jax.Array | int:
        """i32[], how many rounds ago the client was given what it answers for; as private as the records."""
        return 0 if self._answer.delay is None else self._answer.delay

    @property
    def mask(self) -> jax.Array:
        """bool[capacity], True for real records."""
        return jnp.arange(self.capacity) < self.size

    def private_mean(
        self,
        gradients: Gradients,
        params: Params,
        *,
        records: RecordSampler,
        mechanism: RecordMechanism,
    ) -> Params:
        """The mean gradient of records drawn by `records`; `mechanism` clips each and perturbs their sum.

        Formal guarantees: those of the mechanism, for one record of a freshly drawn batch; see
        `fedpriv.mechanisms.per_example.private_mean`. Every call is a separate release, with noise of its own.

        Args:
          gradients: gradients of single records, taken at `params`.
          records: draws a batch of the client's records, as in `LocalSteps`. The sum is divided by the batch's expected
              size.

        Raises:
          ValueError: no mechanism, or one whose noise is correlated over rounds; a shard that no cohort gave; a call in
              a loop, a branch or a transformed function other than `private_steps`.
        """
        step = PrivateStep(mechanism, records, "own", gradients=gradients)
        return self._noisy_mean(step, params)

    def private_steps(
        self, step: Callable[[jax.Array, Carry], Carry], carry: Carry, *, steps: Count
    ) -> Carry:
        """What is carried after `step(k, carry)` for k = 0, .., `steps` - 1, as by `lax.fori_loop`.

        `step` returns the next carry, of the same shapes and types. Each draws batches and noise of its own where it
        calls `private_mean`, or `private_steps` again.

        Raises:
          ValueError: steps below 1; as `private_mean`.
        """
        steps = checked("steps", steps, Count)
        stream = self._told("shard.private_steps")
        key = stream.begin("shard.private_steps")
        told: list[Any] = []

        def turn(k: jax.Array, carried: tuple) -> tuple:
            now, lost = carried
            turn_key = jax.random.fold_in(key, k)
            with stream.turns(turn_key, steps) as inside, counted_records() as seen:
                now = step(k, now)
                told[:] = inside
                return now, lost + seen.total()

        carry, lost = lax.fori_loop(0, steps, turn, (carry, jnp.zeros(2, jnp.int32)))
        add_records(lost)
        stream.tell(("steps", steps, tuple(told)))
        return carry

    def _noisy_mean(self, step: PrivateStep, params: Params, rotation: Key | None = None) -> Params:
        """As `private_mean`. A part of the mean over the whole cohort alone is rounded afterwards.

        With an integer mechanism: i32[length], its records' sum, which the cohort perturbs, rotated by this key.
        """
        mechanism = step.mechanism
        require(is_mechanism(mechanism), "mechanism", mechanism, f"give {MECHANISM}")
        fresh = not (isinstance(mechanism, Mechanism) and is_correlated(mechanism))
        remedy = (
            "its noise is correlated over rounds, but nobody remembers the noise of a client's steps; give "
            "fp.gaussian"
        )
        require(fresh, "mechanism", mechanism, remedy)
        stream = self._told("shard.private_mean")
        key = stream.begin("shard.private_mean")
        draw_key, noise_key, loss_key = (
            jax.random.fold_in(key, number)
            for number in (random_streams.RECORDS, random_streams.NOISE, random_streams.DROPOUT)
        )
        drawn, divisor = draw_records(step.sampling, draw_key, self.size, self.client_id)
        batch = jax.tree.map(lambda leaf: leaf.at[drawn.ids].get(mode="clip"), self.examples)
        if needs_keys(step.gradients):
            batch = with_keys(loss_key, batch)
        used: Any = mechanism.in_round(self.round)
        integers = step.integer_sum(dimension(params))
        if integers is None or rotation is None:
            noisy_mean = private_mean(step.gradients, used, divisor)
            mean = noisy_mean(noise_key, params, batch, drawn.mask)
        else:
            rounding_key = jax.random.fold_in(key, random_streams.ROUNDING)
            total = integer_total(step.gradients, used, integers)
            mean = total(rotation, rounding_key, params, batch, drawn.mask)
        stream.tell(("mean", shapes(params), step.told(dimension(params))))
        return mean if step.adder == "own_summed" else jax.tree.map(rounded, mean, params)

    def _told(self, what: str) -> NoiseStream:
        if self._stream is None:
            raise ValueError(
                f"{what}: this shard has no noise of its own (cohort.public, or made by hand); use the one that the "
                "cohort gives to a client"
            )
        return self._stream

    def _end(self) -> tuple:
        """Its private means, once the client has returned: none can come after it."""
        if self._stream is None:
            return ()
        self._stream.end()
        return self._stream.told


def shard_of(
    branch: Key | None,
    examples: PyTree,
    size: jax.Array,
    round: jax.Array | int,
    i: jax.Array,
    answer: Answer = ALIKE,
) -> Shard:
    """Of client i (i32[]), whose noise comes from a branch of the stream; without one it has none."""
    stream = None if branch is None else NoiseStream(branch)
    return Shard(examples, size, round, i, answer, stream)
