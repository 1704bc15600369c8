"""Canaries in the places of clients or of records, and what of a round an adversary does not know who knows the others.

A round is run with a number `unknown` that is 0: its derivative by it is how far the model moves because of what such
an adversary does not know, the noise and the canaries' contributions, through whatever the round does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.compression.codecs import UNCODED, Codec, Coded
from fedpriv.core.random_losses import GradientFunction, Keyed, needs_keys
from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.core.types import Key, Params, PyTree
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.per_example import Gradients, PerExample, RecordMechanism
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort, Summed
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.sent import Client, Sent, sent_by

FAR = 100.0
"""Clip norms that a canary contributes before it is clipped."""


class Place(NamedTuple):
    """Where canaries can be: a call of `cohort.sum`, or of `shard.private_mean`.

    Attributes:
      like: the shapes of what is summed.
      mechanism: that of the round; a heuristic of which nothing is certified has none.
    """

    like: PyTree
    mechanism: Mechanism | None


class Injected(NamedTuple):
    """Numbers that are 0, by which a round is differentiated.

    Attributes:
      unknown: f32[], multiplies what is random or a canary's.
      added: to the noisy sum of each place; with records to that of every step of every client. Empty: nothing.
    """

    unknown: jax.Array
    added: list[PyTree]

    def noise(self, noisy: PyTree, total: PyTree) -> PyTree:
        """The noisy sum, in which the noise is unknown."""
        return jax.tree.map(lambda n, s: self.part(n, n - s), noisy, total)

    def part(self, value: jax.Array, unknown: jax.Array) -> jax.Array:
        """`value`, of which a part is unknown."""
        return value + self.unknown.astype(value.dtype) * lax.stop_gradient(unknown)

    def at(self, place: int, total: PyTree) -> PyTree:
        """The noisy sum of a place, with what is added there."""
        return jax.tree.map(jnp.add, total, self.added[place]) if self.added else total


class Canaries(NamedTuple):
    """Who takes the places of clients, or of records.

    Attributes:
      key: of their directions, which are drawn when they are needed: all together would be far larger than the model.
      present: bool[k].
      length: of what they contribute before it is clipped.
      per_client: records of a client that are canaries; 0 where clients are.
      worst: (d) -> the direction of a single canary, as `Mechanism.worst`.
    """

    key: Key
    present: jax.Array
    length: float
    per_client: int
    worst: Callable[[int], PyTree] | None = None

    def direction(self, j: jax.Array, like: PyTree) -> PyTree:
        """That of canary j (i32[]), of length 1, in the shapes of `like`.

        Random signs on coordinates of its own, so that all are orthogonal; more canaries than coordinates have random
        directions, a single one the worst.
        """
        count, d = len(self.present), dimension(like)
        if count == 1 and self.worst:
            z = flatten(self.worst(d))
            if len(z) > d:  # that of a joint mechanism, whose other parts come on top
                z = flatten(self.worst(2 * d - len(z)))
        elif count > d:
            z = jax.random.normal(jax.random.fold_in(self.key, j), (d,))
        else:
            order_key, sign_key = jax.random.split(self.key)
            own = jax.random.permutation(order_key, d) % count == j
            z = jnp.where(own, jax.random.rademacher(sign_key, (d,), jnp.float32), 0.0)
        return unflatten(_unit(z), like)

    def contribution(self, j: jax.Array, like: PyTree) -> PyTree:
        """What canary j (i32[]) sends, or has for a gradient: a tree as `like`, zeros where it is not there."""
        length = self.present[self.last(j)] * self.length
        return jax.tree.map(lambda leaf: length * leaf, self.direction(j, like))

    def last(self, j: jax.Array) -> jax.Array:
        """i32[]: j (i32[]), or the last canary where j is none."""
        return jnp.minimum(j, len(self.present) - 1)

    def gradients(
        self, of_records: Gradients, i: jax.Array, injected: Injected | None = None
    ) -> Gradients:
        """Those of client i, whose first records are canaries; a batch is (examples, their positions i32[B])."""
        first = i * self.per_client

        def of_batch(params: Params, batch: tuple) -> PerExample:
            examples, positions, *keys = (
                (*batch[0], batch[1]) if isinstance(batch, Keyed) else batch
            )
            examples = Keyed(examples, *keys) if keys else examples
            at_model = lax.stop_gradient(params) if injected else params
            norms, weighted, each = of_records(at_model, examples)
            places = jnp.arange(self.per_client)
            canaries = jax.vmap(lambda p: self.contribution(first + p, params))(places)
            at = jnp.minimum(positions, self.per_client - 1)
            theirs = (positions < self.per_client) & (first + positions < len(self.present))

            def replaced(own: PyTree, of_canaries: PyTree) -> PyTree:
                def chosen(leaf: jax.Array, canary: jax.Array) -> jax.Array:
                    rows = theirs.reshape(-1, *[1] * (leaf.ndim - 1))
                    return jnp.where(rows, canary[at], leaf)

                return jax.tree.map(chosen, own, of_canaries)

            def summed(weights: PyTree) -> Params:
                total = weighted(jax.tree.map(lambda w: jnp.where(theirs, 0.0, w), weights))

                def add(total: jax.Array, w: jax.Array, canary: jax.Array) -> jax.Array:
                    w = jnp.zeros(self.per_client).at[at].add(jnp.where(theirs, w, 0.0))
                    own = jnp.tensordot(w, canary, 1)
                    return injected.part(total + own, own) if injected else total + own

                return jax.tree.map(add, total, weights, canaries)

            lengths = jax.tree.map(
                lambda leaf: jnp.linalg.norm(leaf.reshape(len(leaf), -1), axis=1), canaries
            )
            return PerExample(replaced(norms, lengths), summed, lambda: replaced(each(), canaries))

        return GradientFunction(of_batch, needs_keys(of_records))


class _Played:
    """A cohort with canaries in it; of each place that they find, a `Place` goes to `places`."""

    def __init__(
        self, cohort: Cohort, canaries: Canaries, injected: Injected | None, places: list[Place]
    ):
        self._cohort, self._canaries = copy(cohort), canaries
        self._injected, self._places = injected, places

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cohort, name)


class AmongClients(_Played):
    """Canary j takes the place of client j."""

    def sum(
        self,
        client: Client,
        key: Key,
        *,
        mechanism: Any,
        codec: Codec = UNCODED,
        local: bool = False,
        **how: Any,
    ) -> Summed:
        """As `Cohort.sum`."""
        if mechanism is ALREADY_PRIVATE:
            return self._cohort.sum(client, key, mechanism=mechanism, codec=codec, **how)
        canaries, count = self._canaries, len(self._canaries.present)

        def played(key: Key, shard: Shard, *mine: PyTree) -> Sent:
            i, sent = jnp.asarray(shard.client_id), sent_by(client, key, shard, *mine)
            canary = canaries.contribution(i, sent.message)
            message = jax.tree.map(lambda u, c: jnp.where(i < count, c, u), sent.message, canary)
            away = (i < count) & ~canaries.present[canaries.last(i)]
            return sent._replace(message=message if local else (~away, message))

        # Where clients add the noise themselves, who is away sends that; else nothing at all.
        codec = codec if local else _of_those_there(codec)
        cohort = _listening(self._cohort, self._injected, count, local)
        summed = cohort.sum(played, key, mechanism=mechanism, codec=codec, local=local, **how)
        self._cohort._calls = cohort._calls
        total, call = summed.total, len(self._places)
        like = jax.eval_shape(lambda: total)
        self._places.append(Place(like, mechanism.in_round(self._cohort.round)))
        return summed._replace(total=self._injected.at(call, total)) if self._injected else summed


def _listening(cohort: Cohort, injected: Injected | None, count: int, local: bool) -> Cohort:
    """The cohort, in whose sums the noise and what canaries send are unknown; messages that carry noise are, too."""
    if injected is None:
        return cohort
    heard = copy(cohort)

    def over(fn: Callable[..., tuple], key: Key, own: PyTree) -> tuple[PyTree, PyTree]:
        def one(key: Key, shard: Shard, *mine: PyTree) -> tuple:
            message, kept = fn(key, shard, *mine)
            hidden = jnp.asarray(local) | (jnp.asarray(shard.client_id) < count)
            parts = jax.tree.map(lambda u: jnp.where(hidden, u, jnp.zeros_like(u)), message)
            return jax.tree.map(injected.part, message, parts), kept

        return cohort._over(one, key, own)

    def noisy(used: Mechanism, key: Key, total: PyTree, options: Any) -> PyTree:
        return injected.noise(cohort._noisy(used, key, total, options), total)

    heard._over, heard._noisy = over, noisy  # type: ignore[method-assign]
    return heard


def _of_those_there(codec: Codec) -> Codec:
    """`codec` of (whether the client is there, message): the message, or zeros."""

    def code(key: Key, given: tuple) -> Coded:
        there, message = given
        coded = codec.code(key, message)
        return coded._replace(
            message=jax.tree.map(lambda leaf: jnp.where(there, leaf, 0.0), coded.message)
        )

    return codec._replace(code=code)


class AmongRecords(_Played):
    """Canary j takes the place of the record at position j mod q of client j div q."""

    def sum(self, client: Client, *given: Any, **how: Any) -> Summed:
        """As `Cohort.sum`."""
        return self._cohort.sum(self._played(client), *given, **how)

    def unprotected(self, client: Client, *given: Any, **how: Any) -> Summed:
        """As `Cohort.unprotected`."""
        return self._cohort.unprotected(self._played(client), *given, **how)

    def _played(self, client: Client) -> Client:
        def played(key: Key, shard: Shard, *mine: PyTree) -> Any:
            of_both = _with_canaries(self._canaries, shard, self._injected, self._places)
            return client(key, of_both, *mine)

        return played


def _with_canaries(
    canaries: Canaries, shard: Shard, injected: Injected | None, places: list[Place]
) -> Shard:
    """The shard of a client, some of whose records are canaries."""
    room = len(jax.tree.leaves(shard.examples)[0])
    numbered = replace(shard, examples=(shard.examples, jnp.arange(room)))

    class CanaryShard(Shard):
        def private_mean(
            self,
            key: Key,
            gradients: Gradients,
            params: Params,
            *,
            records: RecordSampler,
            mechanism: Any,
        ) -> Params:
            if canaries.per_client > (held := records.accounting.population):
                raise ValueError(
                    f"per_client: a client has {held} records, not {canaries.per_client} to give up"
                )
            used = mechanism.in_round(shard.round)
            like = jax.eval_shape(lambda: params)
            places.append(Place(like, used if isinstance(used, Mechanism) else None))
            played = canaries.gradients(gradients, jnp.asarray(shard.client_id), injected)
            heard: Any = _Heard(mechanism, injected) if injected else mechanism
            return numbered.private_mean(key, played, params, records=records, mechanism=heard)

    return CanaryShard(shard.examples, shard.size, shard.round, shard.client_id)


class _Heard(NamedTuple):
    """A mechanism for records in whose sums the noise is unknown.

    Where clipping does more than scale, all that is summed is: canaries are not told from others there.
    """

    mechanism: RecordMechanism
    injected: Injected

    def in_round(self, t: Any) -> _Heard:
        """That of round t."""
        return self._replace(mechanism=self.mechanism.in_round(t))

    def for_batch(self, norms: PyTree, mask: jax.Array) -> Mechanism:
        """For contributions of these norms."""
        used = self.mechanism.for_batch(norms, mask)  # type: ignore[union-attr]

        def perturb(key: Key, total: PyTree) -> PyTree:
            noisy = used.perturb(key, total)
            known = total if used.scales else jax.tree.map(jnp.zeros_like, total)
            return self.injected.at(0, self.injected.noise(noisy, known))

        return used._replace(perturb=perturb)


def _unit(v: jax.Array) -> jax.Array:
    return v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(jnp.float32).tiny)


def clipped_direction(canaries: Canaries, j: jax.Array, place: Place) -> PyTree:
    """What canary j adds to a place's sum when it is there."""
    u = canaries.direction(j, place.like)
    if place.mechanism is None:
        return u
    return place.mechanism.clip(jax.tree.map(lambda leaf: canaries.length * leaf, u))[0]


def reach(place: Place, contribution: PyTree) -> jax.Array:
    """f32[]: its length in units of the noise, of the z_t of correlated noise; without noise 1."""
    used = place.mechanism
    if used is not None and used.correlation is not None:
        used = used.correlation.mechanism
    if used is None or used.whiten is None:
        return jnp.float32(1)
    return jnp.linalg.norm(flatten(used.whiten(contribution)))
