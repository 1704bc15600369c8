"""What a round sees of its clients: the cohort, whose calls are the only ways to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import UNCODED, Codec, Wire
from fedpriv.core import random_streams
from fedpriv.core.arguments import checked
from fedpriv.core.complaints import require
from fedpriv.core.leaves import is_finite
from fedpriv.core.places import tap
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, Metrics, Params, PyTree
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism, unprotected
from fedpriv.mechanisms.not_finite_counts import counted_records
from fedpriv.mechanisms.per_example import Gradients, RecordMechanism, rounded
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.proof.call import OfCall
from fedpriv.proof.labels import TAKING_PART
from fedpriv.proof.marks import mark_tree
from fedpriv.rounds.client_shard import Shard, bounds_of
from fedpriv.rounds.cohort_calls import CohortCalls
from fedpriv.rounds.cohort_messages import ClientMessages
from fedpriv.rounds.cohort_metrics import CohortMetrics
from fedpriv.rounds.cohort_sums import noisy_integers, plainest, step_of_sum
from fedpriv.rounds.messages import Protocol, agreed
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.private_step import PrivateStep, SumAdder
from fedpriv.rounds.record_marks import Mean
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.sent import Client, sent_by
from fedpriv.rounds.weighting import EQUALLY, Weighting


class Summed(NamedTuple):
    """The result of a call of the cohort.

    Attributes:
      total: the noisy sum of the clients' messages, a tree like one of them, or the result of a protocol.
      metrics: `uplink` (`Wire` of all that one client has sent so far in the round) and `diagnostics` (means over the
        cohort; of a sum of integers also `wrapped`, the fraction of its coordinates beyond its bits), as a round
        returns them: those of its last call.
      own: what all clients keep, leaves [clients, ...], with the cohort's rows replaced.
    """

    total: PyTree
    metrics: Metrics
    own: PyTree


@dataclass(match_args=False)
class Cohort:
    """The clients of one round, whoever they are: a round is traced with it, and its program runs with those drawn.

    Its properties are read-only.
    """

    _calls: CohortCalls
    _gathers: CohortMetrics = field(default=None, repr=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._gathers = self._gathers or CohortMetrics(self._calls)  # copies share it

    def __repr__(self) -> str:
        """Without who takes part."""
        return f"Cohort(of {self.num_clients} clients)"

    @property
    def round(self) -> jax.Array:
        """i32[], number of rounds done."""
        return self._calls.given.round

    @property
    def num_clients(self) -> int:
        """How many clients there are, in the cohort or not."""
        return self._calls.shape.num_clients

    @property
    def expected_size(self) -> float:
        """What a mean over the cohort divides by."""
        return self._calls.sampler.expected_size

    @property
    def size(self) -> jax.Array:
        """i32[], how many take part. In a Poisson cohort it is private, so means do not divide by it."""
        drawn = self._calls.sampler.accounting
        if not drawn.secret or (drawn.full and drawn.of_a_round.vanish == 0):
            return self._calls.counted(self._calls.given.members)
        return self._calls.private(TAKING_PART, self._calls.given.members)

    @property
    def public(self) -> Shard:
        """The server's public examples."""
        return Shard(self._calls.given.public, jnp.int32(self._calls.shape.public), self.round)

    def sum(
        self,
        client: Client,
        key: Key,
        *,
        mechanism: Mechanism | Dynamic,
        codec: Codec = UNCODED,
        own: PyTree = (),
        adder: SumAdder = "shares",
        weighting: Weighting = EQUALLY,
        local: None = None,
    ) -> Summed:
        """Runs `client` for every member; codes, clips and sums the messages, and perturbs the sum.

        Formal guarantees: those of `mechanism`, for one client, whatever `client` does. Each of the s members adds 1 /
        s of the noise's variance; the simulation draws the total once. With a lossy codec, messages carry no noise: the
        server adds it. If members vanish and their shares are lost (`fp.dropping`), the noise is that of the k members
        that are left.

        Args:
          client: what a member does. Its key is made of `key`, the number of the call and its id.
          key: what clients and codecs draw comes from it. It is public: it may be kept, sent or printed, so nothing
            drawn from it is secret. The engine draws the noise from a stream of its own.
          mechanism: bounds a message and perturbs the sum; `unprotected(reason)` if nothing does.
          codec: codes the messages; they are clipped after decoding.
          own: what clients keep for themselves, leaves [clients, ...]; each client gets its row.
          adder: who adds the noise: "shares", the members together, or the server where messages have no room for it;
              "own", each member all of it, to its own clipped message before coding it (local differential privacy).
          weighting: how much each clipped message counts; the mean is always the total divided by `expected_size`.
          local: now `adder="own"`; it goes with 1.0.

        Raises:
          ValueError: `own` without a row for each client; no mechanism; no weighting, or one for messages that already
            carry noise; Laplace noise with lost shares; a call in a loop, a branch or a transformed function, or by a
            client.
        """
        check_parts(mechanism=mechanism, codec=codec, weighting=weighting)
        require(
            local is None, "local", local, 'give adder="own" where it was True, else leave it out'
        )
        adder = checked("adder", adder, SumAdder)
        used, calls = mechanism.in_round(self.round), self._calls
        step = step_of_sum(mechanism, used, calls.sampler, codec, weighting, adder)
        keys = calls.begin_with("cohort.sum", key, own)
        if getattr(used, "integers", None) is not None:  # else a program stays what it was
            rotation_key = jax.random.fold_in(keys.common, random_streams.ROTATION)
            keys = keys._replace(common=rotation_key)
        messages = ClientMessages(calls, client, step, used, self._gathers)
        summed = plainest(step, used, calls.answer)
        total = summed.released(OfCall(calls, keys, messages), own)
        kept = calls.stored(own, messages.own)
        return Summed(weighting.shown(total), messages.metrics, kept)

    def private_mean(
        self,
        gradients: Gradients,
        params: Params,
        *,
        records: RecordSampler,
        mechanism: RecordMechanism,
    ) -> tuple[Params, Metrics]:
        """The mean of one `Shard.private_mean` of each member, at the same `params`: one noisy step of the cohort.

        Formal guarantees: each member perturbs the sum of its own records, and nothing but the mean over the cohort is
        seen by third parties and servers behind secure aggregation. There the noises of all members count together if
        the noise is Gaussian, the unit is a record, all cohorts have one size, nobody vanishes, and all divide by the
        same number. Elsewhere, and towards a server that sees messages, a member's own noise counts.

        Args:
          gradients, params, records, mechanism: as `Shard.private_mean`.

        Returns:
          (the mean, in the types of `params`; the metrics of the call).

        Raises:
          ValueError: as `Shard.private_mean` and `sum`; integer noise where the noises of members do not count
            together.
        """
        step = PrivateStep(
            mechanism, records, "own_summed", gradients=gradients, cohort=self._calls.sampler
        )
        if step.integer_sum(dimension(params)) is not None:
            total, metrics = self._sum_of_records(step, params)
            divisor = self.expected_size * records.expected_size
            mean = jax.tree.map(lambda s: s / divisor, total)
            return jax.tree.map(rounded, mean, params), metrics

        def client(key: Key, shard: Shard) -> Params:
            return shard._noisy_mean(step, params)

        unused = jax.random.key(0)
        total, metrics, _ = self.sum(client, unused, mechanism=ALREADY_PRIVATE)
        mean = jax.tree.map(lambda s: s / self.expected_size, total)
        return jax.tree.map(rounded, mean, params), metrics

    def _sum_of_records(self, step: PrivateStep, params: Params) -> tuple[PyTree, Metrics]:
        """(The noisy sum of the gradients of all records that members draw, which add up as integers, metrics).

        All keys are hidden ones, though the rotation's and the rounding's hide nothing.
        """
        calls = self._calls
        keys = calls.begin("cohort.private_mean", jax.random.key(0))
        rotation_key, noise_key = (
            jax.random.fold_in(keys.hidden, number)
            for number in (random_streams.ROTATION, random_streams.NOISE)
        )
        releases: list[Mean] = []

        def one(key: Key, shard: Shard) -> tuple[jax.Array, jax.Array]:
            remedy = "integers of records cannot be weighed; leave weights of answers out"
            require(shard._answer.weight is None, "sampler", calls.sampler, remedy)
            with counted_records() as records:
                integers = shard._noisy_mean(step, params, rotation_key)
            releases[:] = shard._told("shard.private_mean").unperturbed
            return integers, records.total()

        total, records = calls.over_shards(one, keys, ())
        self._gathers.count(jnp.zeros(records.shape[:1], bool), records)
        integers = step.integer_sum(dimension(params))
        assert integers is not None
        total, wrapped = noisy_integers(
            calls, step, integers, (noise_key, rotation_key), total, params
        )
        (release,) = releases
        total = mark_tree(calls.marks, release, (total, bounds_of(step, self.round)))[0]
        metrics = self._gathers.of_call(step.wire(dimension(params)), {}, wrapped)
        summed = PrivateStep(ALREADY_PRIVATE, calls.sampler, "shares")
        return calls.released(total, summed), metrics

    def unprotected(
        self,
        client: Client,
        key: Key,
        protocol: Protocol,
        *,
        reason: str,
        own: PyTree = (),
    ) -> Summed:
        """Runs `client` for every member and passes all messages (leaves [slots, ...]) unchanged to `protocol`.

        Formal guarantees: none.

        Args:
          protocol: (key, messages) -> (the result, what travels meanwhile); the latter is for attacks.
          reason: why nothing is hidden, in words, for the certificate.
          client, key, own: as `sum`.

        Raises:
          ValueError: as `sum`.
        """
        require(isinstance(reason, str), "reason", reason, "say why nothing is hidden")
        calls = self._calls
        keys = calls.begin_with("cohort.unprotected", key, own)

        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple[tuple, tuple]:
            with counted_records() as records:
                message, diagnostics, kept = sent_by(client, key, shard, *mine)
            return (), (message, kept, dict(diagnostics), records.total())

        _, (messages, new, seen, records) = calls.over_shards(one, keys, own)
        self._gathers.count(~jax.vmap(is_finite)(messages), records)
        outcome, _ = tap("protocol", agreed(protocol, keys.common, messages))
        step = PrivateStep(unprotected(reason), calls.sampler, "shares")
        outcome = calls.released(outcome, step)
        size = sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(messages))
        metrics = self._gathers.of_call(Wire(size), seen, {})
        return Summed(outcome, metrics, calls.stored(own, new))

    @property
    def not_finite(self) -> dict[str, jax.Array]:
        """Diagnostic: the shares f32[] of messages, and of records' gradients, that were NaN or infinite."""
        what = "how many messages or gradients are not finite"
        return self._calls.private(what, self._gathers.not_finite)
