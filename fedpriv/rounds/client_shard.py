"""The records of one client, and the one way to learn from them in private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, checked
from fedpriv.core.code_places import user_line
from fedpriv.core.complaints import require
from fedpriv.core.leaves import sizes
from fedpriv.core.places import tap
from fedpriv.core.random_losses import needs_keys, with_keys
from fedpriv.core.trees import dimension
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
from fedpriv.proof.labels import Private
from fedpriv.proof.marks import Marks, mark_tree
from fedpriv.proof.primitives import in_shapes
from fedpriv.rounds.client_stream import ClientStream
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.record_marks import Batch, Mean
from fedpriv.rounds.record_samplers import RecordSampler, draw_records
from fedpriv.rounds.samplers import ALIKE, Answer

Carry = TypeVar("Carry")


class InCall(NamedTuple):
    """What a shard has of the cohort's call that gave it.

    Attributes:
      stream: of the client's noise.
      call: number of its mark.
      marks: of the round.
      given: the shard as it was given, alone.
      unperturbed: sums of integers, which the cohort perturbs.
    """

    stream: ClientStream
    call: int
    marks: Marks
    given: list[Shard]
    unperturbed: list[Mean]


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
    _in_call: InCall | None = field(default=None, repr=False)

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
        stream = self._told("shard.private_steps").stream
        key = stream.begin("shard.private_steps")

        def turn(k: jax.Array, carried: tuple) -> tuple:
            now, lost = carried
            turn_key = jax.random.fold_in(key, k)
            with stream.turns(turn_key, steps), counted_records() as seen:
                now = step(k, now)
                return now, lost + seen.total()

        carry, lost = lax.fori_loop(0, steps, turn, (carry, jnp.zeros(2, jnp.int32)))
        add_records(lost)
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
        of = self._told("shard.private_mean")
        key = of.stream.begin("shard.private_mean")
        draw_key, noise_key, loss_key = (
            jax.random.fold_in(key, number)
            for number in (random_streams.RECORDS, random_streams.NOISE, random_streams.DROPOUT)
        )
        examples, size, client_id, label = self._drawn_among(of)
        examples = tap("records", examples)
        drawn, divisor = draw_records(step.sampling, draw_key, size, client_id)
        batch = jax.tree.map(lambda leaf: leaf.at[drawn.ids].get(mode="clip"), examples)
        if needs_keys(step.gradients):
            batch = with_keys(loss_key, batch)
        used: Any = mechanism.in_round(self.round)
        integers = step.integer_sum(dimension(params))
        if integers is None or rotation is None:
            noisy_mean = private_mean(step.gradients, used, divisor)
            mean = noisy_mean(noise_key, params, batch, drawn.mask, drawn.ids)
        else:
            rounding_key = jax.random.fold_in(key, random_streams.ROUNDING)
            total = integer_total(step.gradients, used, integers)
            mean = total(rotation, rounding_key, params, batch, drawn.mask)
        times = of.stream.times
        release = Mean(user_line(), of.call, step, in_shapes(params), label, times=times)
        if rotation is None:
            mean = mark_tree(of.marks, release, (mean, bounds_of(step, self.round)))[0]
        else:
            of.unperturbed.append(release)  # the cohort adds the noise
        return mean if step.adder == "own_summed" else jax.tree.map(rounded, mean, params)

    def _drawn_among(self, of: InCall) -> tuple[Example, jax.Array, jax.Array, Private]:
        """The records, size and number of the client, of a batch from here on; and its label.

        Raises:
          ValueError: they are not what the cohort gave.
        """
        line, (given,) = user_line(), of.given
        for name in ("size", "round", "client_id"):
            if getattr(self, name) is not getattr(given, name):
                raise ValueError(
                    f"shard: its {name} was changed ({line}); leave it as the cohort gives it"
                )
        held = {id(leaf) for leaf in jax.tree.leaves(given.examples)}
        own = tuple(id(leaf) in held for leaf in jax.tree.leaves(self.examples))
        label = Private("records of a batch", len(of.marks), line)
        of_client = self.examples, self.client_id, self.size
        examples, client_id, size = mark_tree(of.marks, Batch(line, label, own), of_client)
        return examples, size, client_id, label

    def _told(self, what: str) -> InCall:
        if self._in_call is None:
            raise ValueError(
                f"{what}: this shard has no noise of its own (cohort.public, or made by hand); use the one that the "
                "cohort gives to a client"
            )
        return self._in_call


def shard_in_call(
    of: InCall,
    examples: PyTree,
    size: jax.Array,
    round: jax.Array | int,
    i: jax.Array,
    answer: Answer = ALIKE,
) -> Shard:
    """That of client i (i32[]), whose noise comes from the stream of a call."""
    shard = Shard(examples, size, round, i, answer, of)
    of.given[:] = [shard]
    return shard


def bounds_of(step: PrivateStep, t: jax.Array | int) -> jax.Array:
    """f32[...], the clip norms of the mechanism in round t."""
    used = step.mechanism.in_round(t)
    bounds = jax.tree.leaves(getattr(used, "clip_norm", ()))
    return jnp.stack([jnp.float32(c) for c in bounds] or [jnp.float32(0)])
