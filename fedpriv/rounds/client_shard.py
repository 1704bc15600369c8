"""The records of one client, and the one way to learn from them in private."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from fedpriv.core import random_streams
from fedpriv.core.arguments import require
from fedpriv.core.array_arguments import check_key
from fedpriv.core.random_losses import needs_keys, with_keys
from fedpriv.core.types import Example, Key, Params
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.per_example import Gradients, RecordMechanism, private_mean
from fedpriv.mechanisms.schedules import MECHANISM, is_mechanism
from fedpriv.rounds.record_samplers import RecordSampler, draw_records


@dataclass
class Shard:
    """The records of one client.

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
    _calls: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def capacity(self) -> int:
        """The largest number of records that fit."""
        return int(jax.tree.leaves(self.examples)[0].shape[0])

    @property
    def mask(self) -> jax.Array:
        """bool[capacity], True for real records."""
        return jnp.arange(self.capacity) < self.size

    def private_mean(
        self,
        key: Key,
        gradients: Gradients,
        params: Params,
        *,
        records: RecordSampler,
        mechanism: RecordMechanism,
    ) -> Params:
        """The mean gradient of records drawn by `records`; `mechanism` clips each and perturbs their sum.

        Formal guarantees: those of the mechanism, for one record of a freshly drawn batch; see
        `fedpriv.mechanisms.per_example.private_mean`. Every call is a separate release and needs its own key.

        Args:
          key: it must differ between clients, rounds, and the turns of a loop.
          gradients: gradients of single records, taken at `params`.
          records: draws a batch of the client's records, as in `LocalSteps`. The sum is divided by the batch's expected
              size.
        """
        require(is_mechanism(mechanism), "mechanism", mechanism, f"give {MECHANISM}")
        fresh = not (isinstance(mechanism, Mechanism) and is_correlated(mechanism))
        remedy = (
            "its noise is correlated over rounds, but nobody remembers the noise of a client's steps; give "
            "fp.gaussian"
        )
        require(fresh, "mechanism", mechanism, remedy)
        check_key("key", key, "give a random key, before the gradients")
        of_call = self._of_call(key)
        draw_key, noise_key = jax.random.split(of_call)
        drawn, divisor = draw_records(records, draw_key, self.size)
        batch = jax.tree.map(lambda leaf: leaf.at[drawn.ids].get(mode="clip"), self.examples)
        if needs_keys(gradients):
            batch = with_keys(jax.random.fold_in(of_call, random_streams.DROPOUT), batch)
        mean = private_mean(gradients, mechanism.in_round(self.round), divisor)
        return mean(noise_key, params, batch, drawn.mask)

    def _of_call(self, key: Key) -> Key:
        """For the next private mean alone."""
        return jax.random.fold_in(key, random_streams.RECORDS + next(self._calls))
