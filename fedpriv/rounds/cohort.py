"""What a round sees of its clients: the cohort, whose calls are the only ways to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import UNCODED, Codec, Wire
from fedpriv.core import random_streams
from fedpriv.core.arguments import checked, require
from fedpriv.core.array_arguments import check_key, check_leaves
from fedpriv.core.trees import dimension, is_finite, real, shapes
from fedpriv.core.types import Key, Metrics, Params, PyTree
from fedpriv.core.user_functions import asked, both
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import sum_over
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.noise_memory import NoiseMemory
from fedpriv.mechanisms.not_finite_counts import Tally, counted_records
from fedpriv.mechanisms.per_example import Gradients, RecordMechanism, rounded
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.client_shard import Shard, shard_of
from fedpriv.rounds.noise_stream import ROUNDS, NoiseStream
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.private_step import PrivateStep, SumAdder, adder_of_sum
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.samplers import Answer, Draw
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.sent import Client, sent_by
from fedpriv.rounds.weighting import EQUALLY, Weighting

Protocol: TypeAlias = Callable[[Key, PyTree], tuple[PyTree, PyTree]]
"""(key, messages, leaves [slots, ...]) -> (what comes of them, what travels meanwhile)."""


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
    """The clients of one round, drawn by the engine.

    Its properties are read-only.
    """

    _round: jax.Array
    _federation: Any
    _drawn: Draw
    _sampler: AnySampler
    _stream: NoiseStream
    _memory: NoiseMemory = field(default_factory=lambda: NoiseMemory(None), repr=False)
    _sent: list[Wire] = field(default_factory=list, repr=False)
    _messages: Tally = field(default_factory=Tally, repr=False)
    _records: Tally = field(default_factory=Tally, repr=False)

    def __repr__(self) -> str:
        """Without who takes part."""
        return f"Cohort(of {self.num_clients} clients)"

    @property
    def round(self) -> jax.Array:
        """i32[], number of rounds done."""
        return self._round

    @property
    def num_clients(self) -> int:
        """How many clients there are, in the cohort or not."""
        return self._federation.num_clients

    @property
    def expected_size(self) -> float:
        """What a mean over the cohort divides by."""
        return self._sampler.expected_size

    @property
    def size(self) -> jax.Array:
        """i32[], how many take part. In a Poisson cohort it is private, so means do not divide by it."""
        return jnp.sum(self._drawn.mask).astype(jnp.int32)

    @property
    def public(self) -> Shard:
        """The server's public examples."""
        rows = self._federation.public
        examples = jax.tree.map(lambda leaf: leaf[rows], self._federation.examples)
        return Shard(examples, jnp.int32(len(rows)), self.round)

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
        divided = weighting.adder == "server" and not self._sampler.accounting.counts_equally
        remedy = "it divides by what clients weigh, so that weights of groups are not counted; give 'fixed'"
        require(not divided, "weighting: estimator", "clipped", remedy)
        used = mechanism.in_round(self.round)
        who = adder_of_sum(used, codec, weighting, adder)
        step = PrivateStep(mechanism, self._sampler, who, codec, weighting)
        hidden, clients_key, rotation_key = self._keys("cohort.sum", key, own)
        if getattr(used, "integers", None) is not None:  # else a program stays what it was
            rotation_key = jax.random.fold_in(rotation_key, random_streams.ROTATION)
        like: list[PyTree] = []  # a message that travels as integers, in shapes
        wrapped: Metrics = {}

        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple[PyTree, tuple]:
            size, answer = self._size_for(weighting, shard), shard._answer
            with counted_records() as records:
                sent = sent_by(client, key, shard, *mine)
            sent = sent._replace(message=real(sent.message))
            if step.adder == "own":
                bounded, norm = _clipped(used, sent.message, answer.clip_scale)
                noisy = self._perturbed_by_client(used, shard, bounded, step)
                message, of_codec = _coded(codec, key, noisy)
            else:
                coded, of_codec = _coded(codec, key, sent.message)
                message, norm = _clipped(used, coded, answer.clip_scale)
            message, weight = weighting.weigh(message, size)
            message = _times(answer.weight, message)
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

        (total, (new, seen, weights, counts)), means = self._over(one, hidden, clients_key, own)
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
        total = self._observe(total, hidden, step)
        told = shapes(total), shapes(own), step.told(dimension(total)), means
        self._stream.tell(("sum", *told))
        return Summed(weighting.shown(total), metrics, self._stored(own, new))

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
            mechanism, records, "own_summed", gradients=gradients, cohort=self._sampler
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
        hidden, key, _ = self._keys("cohort.private_mean", jax.random.key(0), ())
        rotation_key, noise_key = (
            jax.random.fold_in(hidden, number)
            for number in (random_streams.ROTATION, random_streams.NOISE)
        )

        def one(key: Key, shard: Shard) -> tuple[jax.Array, jax.Array]:
            remedy = "integers of records cannot be weighed; leave weights of answers out"
            require(shard._answer.weight is None, "sampler", self._sampler, remedy)
            with counted_records() as records:
                integers = shard._noisy_mean(step, params, rotation_key)
            return integers, records.total()

        (total, records), means = self._over(one, hidden, key, ())
        self._count(jnp.zeros(records.shape[:1], bool), records)
        total, wrapped = self._noisy_integers((noise_key, rotation_key), total, step, params)
        metrics = self._metrics(step.wire(dimension(params)), {}, wrapped)
        summed = PrivateStep(ALREADY_PRIVATE, self._sampler, "shares")
        total = self._observe(total, hidden, summed)
        self._stream.tell(("sum of integers", shapes(total), step.told(dimension(params)), means))
        return total, metrics

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
        hidden, clients_key, protocol_key = self._keys("cohort.unprotected", key, own)

        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple[tuple, tuple]:
            with counted_records() as records:
                message, diagnostics, kept = sent_by(client, key, shard, *mine)
            return (), (message, kept, dict(diagnostics), records.total())

        (_, (messages, new, seen, records)), means = self._over(one, hidden, clients_key, own)
        self._count(~jax.vmap(is_finite)(messages), records)
        outcome = self._agreed(protocol, protocol_key, messages, reason)
        self._stream.tell(("unprotected", shapes(outcome), shapes(own), means))
        size = sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(messages))
        return Summed(outcome, self._metrics(Wire(size), seen), self._stored(own, new))

    def _keys(self, what: str, key: Key, own: PyTree) -> tuple[Key, Key, Key]:
        """(hidden, for the clients, for a protocol), of this call alone."""
        swapped = "give the client first, cohort.sum(client, key, ...)"
        require(not callable(key), "key", key, swapped)
        check_key("key", key, "give a random key")
        check_leaves("own", own)
        for leaf in jax.tree.leaves(own):
            if jnp.shape(leaf)[:1] != (self.num_clients,):
                raise ValueError(
                    f"own: a leaf {list(jnp.shape(leaf))} has no row for each of {self.num_clients} clients"
                )
        number = len(self._stream.told)
        hidden = self._stream.begin(what, ROUNDS)
        of_call = jax.random.fold_in(key, random_streams.COHORT + number)
        return hidden, *jax.random.split(of_call)

    def _over(
        self, fn: Callable[..., tuple], hidden: Key, key: Key, own: PyTree
    ) -> tuple[tuple[PyTree, PyTree], tuple]:
        """((The sum of what `fn` returns first, what it returns second, stacked), the private means of a client)."""
        means: list[tuple] = []

        def client(key: Key, shard: Shard, *mine: PyTree) -> tuple[PyTree, PyTree]:
            returned = fn(key, shard, *mine)
            means[:] = shard._end()
            return returned

        with self._stream.closed():
            return self._of_all(client, hidden, key, own), tuple(means)

    def _of_all(
        self, fn: Callable[..., tuple], hidden: Key, key: Key, own: PyTree
    ) -> tuple[PyTree, PyTree]:
        """`over_clients` for the clients drawn, each with its row of `own` (leaves [clients, ...])."""
        rows = jax.tree.map(lambda leaf: leaf.at[self._drawn.ids].get(mode="clip"), own)
        own_rows = (rows,) if jax.tree.leaves(own) else ()
        given = self._drawn, self._federation, *own_rows
        return over_clients(fn, key, *given, round=self.round, hidden=hidden)

    def _draw_for_audits(self) -> Draw | None:
        """Who takes part, for attacks, whose scores are not released; None in a trace for a certificate."""
        return self._drawn

    @property
    def _shares(self) -> jax.Array | int:
        """Of how many shares the noise of the sum consists, if they are all there."""
        drawn = self._sampler.accounting
        return drawn.most if drawn.of_a_round.lossy else jnp.maximum(self.size, 1)

    def _noise_left(self) -> jax.Array:
        """f32[], deviation of the noise that is left over that of all of it; counted by the release."""
        return jnp.sqrt(self.size / self._shares).astype(jnp.float32)

    def _staying(self) -> jax.Array:
        """i32[], whose shares of integer noise are not lost; counted by the release."""
        return self.size

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
        lost = self._sampler.accounting.of_a_round.lossy
        noisy, wrapped = integers.perturb(noise_key, total, self._staying() if lost else None)
        return integers.decode(rotation_key, noisy, like), {WRAPPED: wrapped}

    def _noisy(self, used: Mechanism, key: Key, total: PyTree, step: PrivateStep) -> PyTree:
        """The sum with the noise that is there: of the shares of those who stay, if others are lost."""
        if is_correlated(used):
            return self._memory.perturb(used, key, total, self.round)
        if step.adder == "server" or not step.sampling.accounting.of_a_round.lossy:
            return _perturbed(used, key, total)
        if used.noise == "laplace" and used.certified_multiplier > 0:
            raise ValueError(
                "mechanism: Laplace noise that has lost shares is no longer Laplace; give Gaussian noise, or "
                'fp.dropping(..., noise="whole")'
            )
        left = self._noise_left()
        noise = _perturbed(used, key, jax.tree.map(jnp.zeros_like, real(total)))
        return jax.tree.map(lambda s, z: s + left.astype(z.dtype) * z, real(total), noise)

    def _perturbed_by_client(
        self, used: Mechanism, shard: Shard, message: PyTree, step: PrivateStep
    ) -> PyTree:
        """A clipped message with noise of the client's own."""
        assert shard._stream is not None
        return _perturbed(used, shard._stream.own_noise_key, message)

    def _size_for(self, weighting: Weighting, shard: Shard) -> jax.Array:
        """The number of a client's records, by which its message is weighted."""
        return shard.size

    def _observe(self, total: PyTree, hidden: Key, step: PrivateStep) -> PyTree:
        """What the round gets of a noisy sum, of a call with this hidden key."""
        return total

    def _agreed(self, protocol: Protocol, key: Key, messages: PyTree, reason: str) -> PyTree:
        return agreed(protocol, key, messages)[0]

    def _stored(self, own: PyTree, new: PyTree) -> PyTree:
        ids = self._drawn.ids
        return jax.tree.map(lambda leaf, row: leaf.at[ids].set(row, mode="drop"), own, new)

    def _metrics(
        self,
        wire: Wire,
        seen: Mapping[str, jax.Array],
        of_sum: Mapping[str, jax.Array] | None = None,
    ) -> Metrics:
        """Those of a call whose messages are of this size: means of what was seen of members, and of the sum."""
        self._sent[:] = [wire if not self._sent else self._sent[0].beside(wire)]
        most = jnp.maximum(self.size, 1)
        means = {
            name: jnp.sum(values, 0) / most.astype(values.dtype) for name, values in seen.items()
        }
        if NORM in means:  # of those that are finite, NaN if none is
            lost = ~jnp.isfinite(seen[NORM])
            some = (self.size - jnp.sum(lost)).astype(means[NORM].dtype)
            of_finite = jnp.sum(jnp.where(lost, 0.0, seen[NORM])) / some
            means[NORM] = jnp.where(jnp.any(lost), of_finite, means[NORM])
        means |= of_sum or {}
        return {"uplink": jax.tree.map(jnp.int32, self._sent[0]), "diagnostics": means}

    def _count(self, lost: jax.Array, records: jax.Array) -> None:
        """Counts which messages are not finite, bool[slots], and how many records' gradients of each, i32[slots, 2]."""
        self._messages.add(jnp.stack([jnp.sum(lost).astype(jnp.int32), self.size]))
        self._records.add(jnp.sum(records, 0))

    @property
    def not_finite(self) -> dict[str, jax.Array]:
        """Diagnostic: the shares f32[] of messages, and of records' gradients, that were NaN or infinite."""
        return {"messages": self._messages.share(), "records": self._records.share()}


def agreed(protocol: Protocol, key: Key, messages: PyTree) -> tuple[PyTree, PyTree]:
    """What a protocol among the cohort's clients makes of messages, and what travels meanwhile.

    Raises:
      ValueError: the protocol is no function of (key, messages), or does not return both.
    """
    returns = "(what comes of them, what travels)"
    return both("protocol", protocol, "(key, messages)", returns, key, messages)


def _clipped(
    mechanism: Mechanism, message: PyTree, scale: jax.Array | None
) -> tuple[PyTree, jax.Array]:
    """The message clipped to `scale` times the clip norm, and its norm."""
    if scale is not None:
        message = _times(1 / scale, message)
    message, norm = both("clip", mechanism.clip, "(message)", "(clipped message, norm)", message)
    return (message, norm) if scale is None else (_times(scale, message), scale * norm)


def _times(factor: jax.Array | None, tree: PyTree) -> PyTree:
    if factor is None:
        return tree
    return jax.tree.map(lambda u: (factor * u).astype(u.dtype), tree)


def _perturbed(mechanism: Mechanism, key: Key, total: PyTree) -> PyTree:
    return asked("perturb", mechanism.perturb, "(key, total)", key, total)


def _coded(codec: Codec, key: Key, message: PyTree) -> tuple[PyTree, Mapping[str, jax.Array]]:
    return both("code", codec.code, "(key, message)", "(decoded, diagnostics)", key, message)


def over_clients(
    fn: Callable[..., tuple[PyTree, PyTree]],
    key: Key,
    drawn: Draw,
    federation: Federation,
    *per_client: PyTree,
    round: jax.Array | int = 0,
    hidden: Key | None = None,
) -> tuple[PyTree, PyTree]:
    """Runs `fn(key, shard, *own)` for each client drawn; `own` is its slice of `per_client` ([slots, ...]).

    Args:
      hidden: the branch of a call in the stream of noise; None: shards have no noise.

    Returns:
      (the sum over the clients of the first thing `fn` returns, the second thing stacked ([slots, ...], zeros in empty
      slots)).
    """
    records = federation.records(drawn.ids, drawn.mask)

    def client(i: jax.Array, answer: Answer, *own: PyTree) -> tuple[PyTree, PyTree]:
        branch = None if hidden is None else jax.random.fold_in(hidden, i)
        shard = shard_of(branch, records(i), federation.size[i], round, i, answer)
        return fn(jax.random.fold_in(key, i), shard, *own)

    return sum_over(client, drawn.mask, drawn.ids, drawn.answer, *per_client)
