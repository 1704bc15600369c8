"""What a round sees of its clients: the cohort, whose calls are the only ways to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import UNCODED, Codec, Wire
from fedpriv.core import random_streams
from fedpriv.core.arguments import checked, require
from fedpriv.core.places import region, tap
from fedpriv.core.trees import dimension, is_finite, real
from fedpriv.core.types import Key, Metrics, Params, PyTree
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism, unprotected
from fedpriv.mechanisms.not_finite_counts import Tally, counted_records
from fedpriv.mechanisms.per_example import Gradients, RecordMechanism, rounded
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.calls import Calls
from fedpriv.rounds.client_shard import Shard, bounds_of
from fedpriv.rounds.marks import (
    Mean,
    mark_tree,
)
from fedpriv.rounds.messages import Protocol, agreed, clipped, coded, perturbed, shares_of, times
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.privacy_labels import TAKING_PART
from fedpriv.rounds.private_step import PrivateStep, SumAdder, adder_of_sum
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.sent import Client, sent_by
from fedpriv.rounds.weighting import EQUALLY, ByPublicSizes, Weighting


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


NORM = "mean_update_norm"
WRAPPED = "wrapped"
"""The fraction of the coordinates of a sum of integers that wrapped."""


@dataclass(match_args=False)
class Cohort:
    """The clients of one round, whoever they are: a round is traced with it, and its program runs with those drawn.

    Its properties are read-only.
    """

    _calls: Calls
    _sent: list[Wire] = field(default_factory=list, repr=False)
    _messages: Tally = field(default_factory=Tally, repr=False)
    _records: Tally = field(default_factory=Tally, repr=False)

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
            return self._members
        return self._calls.private(TAKING_PART, self._calls.given.members)

    @property
    def _members(self) -> jax.Array:
        """i32[], how many take part, for the engine's own noise, which the release counts."""
        return self._calls.counted(self._calls.given.members)

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
        divided = weighting.adder == "server" and not self._calls.sampler.accounting.counts_equally
        remedy = "it divides by what clients weigh, so that weights of groups are not counted; give 'fixed'"
        require(not divided, "weighting: estimator", "clipped", remedy)
        used = mechanism.in_round(self.round)
        who = adder_of_sum(used, codec, weighting, adder)
        step = PrivateStep(mechanism, self._calls.sampler, who, codec, weighting)
        hidden, clients_key, rotation_key = self._calls.begin("cohort.sum", key, own)
        if getattr(used, "integers", None) is not None:  # else a program stays what it was
            rotation_key = jax.random.fold_in(rotation_key, random_streams.ROTATION)
        like: list[PyTree] = []  # a message that travels as integers, in shapes
        wrapped: Metrics = {}

        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple[PyTree, tuple]:
            size = tap("size", self._size_for(weighting, shard))
            answer = shard._answer
            with counted_records() as records:
                sent = sent_by(client, key, shard, *mine)
            sent = sent._replace(message=real(tap("message", sent.message)))
            if step.adder == "own":
                bounded, norm = clipped(used, sent.message, answer.clip_scale)
                noisy = self._perturbed_by_client(used, shard, bounded, step)
                message, of_codec = coded(codec, key, noisy)
            else:
                decoded, of_codec = coded(codec, key, sent.message)
                message, norm = clipped(used, tap("coded", decoded), answer.clip_scale)
            message, weight = weighting.weigh(message, size)
            message = times(answer.weight, message)
            if (integers := step.integer_sum(dimension(message))) is not None:
                like[:] = [jax.eval_shape(lambda: message)]
                rounding_key = jax.random.fold_in(key, random_streams.ROUNDING)
                message = integers.encode(rotation_key, rounding_key, message)
            norms = {} if used is ALREADY_PRIVATE else {NORM: norm}
            lost = ~jnp.isfinite(norm) if norms else jnp.bool_(False)
            if codec.lossy:  # what is decoded may be finite all the same
                lost |= ~is_finite(sent.message)
            counts = lost, records.total()
            return message, (sent.own, {**norms, **of_codec, **sent.diagnostics}, weight, counts)

        total, (new, seen, weights, counts) = self._calls.over_all(one, hidden, clients_key, own)
        self._count(*counts)
        total = weighting.bounded(total, weights, self.expected_size)
        if step.adder != "own":
            noise_key = jax.random.fold_in(hidden, random_streams.NOISE)
            if like:
                keys = noise_key, rotation_key
                total, wrapped = self._noisy_integers(keys, total, step, *like)
            else:
                total = self._noisy(used, noise_key, total, step)
        metrics = self._metrics(step.wire(dimension(total)), seen, wrapped)
        own_noise = step.adder == "own"  # marked where each client adds its noise
        total = self._calls.collected(total) if own_noise else self._calls.released(total, step)
        return Summed(weighting.shown(total), metrics, self._calls.stored(own, new))

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
        hidden, key, _ = self._calls.begin("cohort.private_mean", jax.random.key(0), ())
        rotation_key, noise_key = (
            jax.random.fold_in(hidden, number)
            for number in (random_streams.ROTATION, random_streams.NOISE)
        )
        releases: list[Mean] = []

        def one(key: Key, shard: Shard) -> tuple[jax.Array, jax.Array]:
            remedy = "integers of records cannot be weighed; leave weights of answers out"
            require(shard._answer.weight is None, "sampler", self._calls.sampler, remedy)
            with counted_records() as records:
                integers = shard._noisy_mean(step, params, rotation_key)
            releases[:] = shard._told("shard.private_mean").unperturbed
            return integers, records.total()

        total, records = self._calls.over_all(one, hidden, key, ())
        self._count(jnp.zeros(records.shape[:1], bool), records)
        total, wrapped = self._noisy_integers((noise_key, rotation_key), total, step, params)
        (release,) = releases
        total = mark_tree(self._calls.marks, release, (total, bounds_of(step, self.round)))[0]
        metrics = self._metrics(step.wire(dimension(params)), {}, wrapped)
        summed = PrivateStep(ALREADY_PRIVATE, self._calls.sampler, "shares")
        return self._calls.released(total, summed), metrics

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
        hidden, clients_key, protocol_key = self._calls.begin("cohort.unprotected", key, own)

        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple[tuple, tuple]:
            with counted_records() as records:
                message, diagnostics, kept = sent_by(client, key, shard, *mine)
            return (), (message, kept, dict(diagnostics), records.total())

        _, (messages, new, seen, records) = self._calls.over_all(one, hidden, clients_key, own)
        self._count(~jax.vmap(is_finite)(messages), records)
        outcome, _ = tap("protocol", agreed(protocol, protocol_key, messages))
        step = PrivateStep(unprotected(reason), self._calls.sampler, "shares")
        outcome = self._calls.released(outcome, step)
        size = sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(messages))
        return Summed(outcome, self._metrics(Wire(size), seen), self._calls.stored(own, new))

    def _noisy_integers(
        self, keys: tuple[Key, Key], total: jax.Array, step: PrivateStep, like: PyTree
    ) -> tuple[PyTree, Metrics]:
        """The sum of messages like this one, of the sum of what they are as integers, and how much of it wrapped.

        Args:
          keys: of the noise and of the rotation.
        """
        integers = step.integer_sum(dimension(like))
        assert integers is not None
        noise_key, rotation_key = keys
        lost = self._calls.sampler.accounting.of_a_round.lossy
        members = self._members if lost else None

        def perturb(noise_key: Key, rotation_key: Key, total: jax.Array) -> tuple[PyTree, Metrics]:
            noisy, wrapped = integers.perturb(noise_key, total, members)
            return integers.decode(rotation_key, noisy, like), {WRAPPED: wrapped}

        return region("integer_noise", perturb, noise_key, rotation_key, total)

    def _noisy(self, used: Mechanism, key: Key, total: PyTree, step: PrivateStep) -> PyTree:
        """The sum with the noise that is there: of the shares of those who stay, if others are lost."""
        if is_correlated(used):
            return self._calls.remembered(used, key, total)
        if step.adder == "server" or not step.sampling.accounting.of_a_round.lossy:
            return perturbed("noise", used, key, total)
        if used.noise == "laplace" and used.certified_multiplier > 0:
            raise ValueError(
                "mechanism: Laplace noise that has lost shares is no longer Laplace; give Gaussian noise, or "
                'fp.dropping(..., noise="whole")'
            )
        members = self._members
        left = jnp.sqrt(members / shares_of(self._calls.sampler, members)).astype(jnp.float32)
        noise = perturbed("noise", used, key, jax.tree.map(jnp.zeros_like, real(total)))
        return jax.tree.map(lambda s, z: s + left.astype(z.dtype) * z, real(total), noise)

    def _perturbed_by_client(
        self, used: Mechanism, shard: Shard, message: PyTree, step: PrivateStep
    ) -> PyTree:
        """A clipped message with noise of the client's own."""
        own_key = shard._told("cohort.sum").stream.own_noise_key
        return self._calls.released(perturbed("own_noise", used, own_key, message), step)

    def _size_for(self, weighting: Weighting, shard: Shard) -> jax.Array:
        """The number of a client's records, by which its message is weighted."""
        public = isinstance(weighting, ByPublicSizes)
        return self._calls.counted(shard.size) if public else shard.size

    def _metrics(
        self,
        wire: Wire,
        seen: Mapping[str, jax.Array],
        of_sum: Mapping[str, jax.Array] | None = None,
    ) -> Metrics:
        """Those of a call whose messages are of this size: means of what was seen of members, and of the sum."""
        self._sent[:] = [wire if not self._sent else self._sent[0].beside(wire)]
        seen, of_sum = self._calls.of_all((dict(seen), dict(of_sum or {})))
        size = self._calls.given.members
        most = jnp.maximum(size, 1)
        means = {
            name: jnp.sum(values, 0) / most.astype(values.dtype) for name, values in seen.items()
        }
        if NORM in means:  # of those that are finite, NaN if none is
            lost = ~jnp.isfinite(seen[NORM])
            some = (size - jnp.sum(lost)).astype(means[NORM].dtype)
            of_finite = jnp.sum(jnp.where(lost, 0.0, seen[NORM])) / some
            means[NORM] = jnp.where(jnp.any(lost), of_finite, means[NORM])
        means |= of_sum
        return {"uplink": jax.tree.map(jnp.int32, self._sent[0]), "diagnostics": means}

    def _count(self, lost: jax.Array, records: jax.Array) -> None:
        """Counts which messages are not finite, bool[slots], and how many records' gradients of each, i32[slots, 2]."""
        self._messages.add(jnp.stack([jnp.sum(lost).astype(jnp.int32), self._calls.given.members]))
        self._records.add(jnp.sum(records, 0))

    @property
    def not_finite(self) -> dict[str, jax.Array]:
        """Diagnostic: the shares f32[] of messages, and of records' gradients, that were NaN or infinite."""
        what = "how many messages or gradients are not finite"
        return self._calls.private(what, self._not_finite)

    @property
    def _not_finite(self) -> dict[str, jax.Array]:
        return {"messages": self._messages.share(), "records": self._records.share()}
