"""The messages of a call of the cohort: what clients send, coded, and what is seen of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.core.leaves import is_finite
from fedpriv.core.places import tap
from fedpriv.core.trees import dimension, real
from fedpriv.core.types import Metrics, PyTree
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.not_finite_counts import counted_records
from fedpriv.proof.given import Member
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.client_stream import ClientStream
from fedpriv.rounds.cohort_calls import CohortCalls
from fedpriv.rounds.cohort_metrics import NORM, CohortMetrics
from fedpriv.rounds.messages import coded
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.sent import Client, sent_by
from fedpriv.rounds.weighting import ByPublicSizes


class ClientMessages:
    """Those that `client` sends in a call, as `fedpriv.proof.call.Messages`.

    Args:
      used: the mechanism of the round.
      gathers: what is seen of them.

    Attributes:
      used: the mechanism.
      stream: of the client that is traced.
      size: the number of its records, by which its message is weighted.
      of_codec: what its codec tells.
      weight, weights: of its message, and of all.
      like: its message in shapes, where it travels as integers.
      own: what the cohort's clients keep.
      metrics: of the call, as a round returns them.
    """

    def __init__(
        self,
        calls: CohortCalls,
        client: Client,
        step: PrivateStep,
        used: Mechanism,
        gathers: CohortMetrics,
    ):
        self._calls, self._client, self._step, self.used = calls, client, step, used
        self._gathers = gathers
        self.weight: PyTree = ()
        self.like: PyTree | None = None
        self.stream: ClientStream
        self.metrics: Metrics
        self.own: PyTree

    def message(self, member: Member, *mine: PyTree) -> PyTree:
        """Of a client, as it is decoded; without a code where its own noise comes first."""
        shard, self.stream = self._calls.shard_of(member)
        self.size = tap("size", self._size_of(shard))
        with counted_records() as records:
            sent = sent_by(self._client, member.key, shard, *mine)
        self._sent = sent._replace(message=real(tap("message", sent.message)))
        self._records = records
        if self._step.adder == "own":
            return self._sent.message
        decoded, self.of_codec = coded(self._step.codec, member.key, self._sent.message)
        return tap("coded", decoded)

    def _size_of(self, shard: Shard) -> jax.Array:
        public = isinstance(self._step.weighting, ByPublicSizes)
        return self._calls.counted(shard.size) if public else shard.size

    def report(self, norm: jax.Array) -> PyTree:
        """What is seen of a client whose message had this norm before it was clipped."""
        norms = {} if self.used is ALREADY_PRIVATE else {NORM: norm}
        lost = ~jnp.isfinite(norm) if norms else jnp.bool_(False)
        if self._step.codec.lossy:  # what is decoded may be finite all the same
            lost |= ~is_finite(self._sent.message)
        counts = lost, self._records.total()
        self.stream.end()
        seen = {**norms, **self.of_codec, **self._sent.diagnostics}
        return self._sent.own, seen, self.weight, counts

    def hear(self, reports: PyTree) -> None:
        """Of all clients."""
        self.own, self._seen, self.weights, counts = reports
        self._gathers.count(*counts)

    def hear_of_sum(self, like: PyTree, told: Any) -> None:
        """Of the noisy sum."""
        wire = self._step.wire(dimension(like))
        self.metrics = self._gathers.of_call(wire, self._seen, dict(told))
