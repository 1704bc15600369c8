"""Audit of a whole training run by canaries with random directions.

G. Andrew, P. Kairouz, S. Oh, A. Oprea, H. B. McMahan, V. Suriyakumar, "One-shot Empirical Privacy Estimation for
Federated Learning", ICLR 2024, arXiv:2302.03098: canaries contribute updates at the clip norm in random directions,
which in many dimensions are nearly orthogonal to each other and to all else; the cosine with what was released tells
whether one was there. With a fair coin for each (T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1)
Training Run", NeurIPS 2023, arXiv:2305.08846) a single run bounds epsilon from below.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.compression.codecs import UNCODED, Codec, Coded
from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, CountOrZero, Positive, Seed, checked, require
from fedpriv.core.random_losses import GradientFunction, Keyed, needs_keys
from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.core.types import Key, Metrics, Params, PyTree, State
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.per_example import Gradients, PerExample
from fedpriv.rounds.algorithm import Algorithm, after_round, initial_state, require_algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort, Summed
from fedpriv.rounds.record_samplers import RecordSampler
from fedpriv.rounds.sent import Client, Sent, sent_by

VIEWS = ("third_party", "server_secagg")
"""Whose scores are kept: of whom sees the models alone, and of whom also knows the cohorts."""


class NoPlaceError(ValueError):
    """The algorithm lets nobody take the place of a client, or of a record."""


class CanaryState(NamedTuple):
    """State of the algorithm under audit, and what was seen of the canaries.

    Attributes:
      params, round: as the algorithm's.
      inner: its own state.
      present: bool[k], by fair coins that are thrown in the first round.
      scores: f32[2, k], for each of `VIEWS` the sum over the rounds (that the canary's client took part in) of the
        cosine between its direction and the move of the model.
    """

    params: Params
    round: jax.Array
    inner: State
    present: jax.Array
    scores: jax.Array


def with_canaries(
    algorithm: Algorithm,
    count: Count,
    *,
    per_client: CountOrZero = 0,
    clip_norm: Positive = 1.0,
    seed: Seed = 0,
) -> Algorithm:
    """`algorithm` in which `count` canaries take the places of clients or of records (Andrew et al. 2024).

    Canary j takes the place of client j; or, with `per_client` = q > 0, of the record at position j mod q of client j
    div q. Tossed heads, it sends an update (has a gradient) far beyond the clip norm in its own random direction, which
    the algorithm bounds, codes and perturbs as any other; tossed tails, it does not contribute, or sends no more than
    its own noise where clients add that themselves. So the runs differ by a unit that becomes zero.

    Args:
      clip_norm: about the clip norm C; canaries are 100 times as long.
      seed: of the directions, which are those of all runs.

    Raises:
      ValueError: at `init`, more canaries than places; in a round, more of a client than it has records.
      NoPlaceError: in a round, an algorithm that protects no client in a cohort's sum, or no record in a private
        mean.
    """
    require_algorithm(algorithm)
    count = checked("count", count, Count)
    per_client = checked("per_client", per_client, CountOrZero)
    clip_norm = checked("clip_norm", clip_norm, Positive)
    seed = checked("seed", seed, Seed)

    def init(params: Params, federation: Federation) -> CanaryState:
        places = federation.num_clients * max(per_client, 1)
        require(count <= places, "count", count, f"give 1 to {places}, as there are so many places")
        inner = initial_state(algorithm, params, federation)
        absent = jnp.zeros(count, bool)
        return CanaryState(inner.params, inner.round, inner, absent, jnp.zeros((2, count)))

    def round(key: Key, state: CanaryState, cohort: Cohort) -> tuple[CanaryState, Metrics]:
        coins = jax.random.bernoulli(
            jax.random.fold_in(key, random_streams.CANARIES), 0.5, (count,)
        )
        present = jnp.where(state.round == 0, coins, state.present)
        canaries = Canaries(jax.random.key(seed), present, 100 * clip_norm, per_client)

        def run(added: list[PyTree], places: list[PyTree]) -> tuple[Params, tuple[State, Metrics]]:
            among = _AmongRecords if per_client else _AmongClients
            played: Any = among(copy(cohort), canaries, added, places)
            inner, metrics = after_round(algorithm, key, state.inner, played)
            return inner.params, (inner, metrics)

        places: list[PyTree] = []
        jax.eval_shape(lambda: run([], places))
        if not places:
            what = "records with shard.private_mean" if per_client else "clients with cohort.sum"
            raise NoPlaceError(f"algorithm: canaries find no place in it; protect {what}")
        zeros = [] if per_client else jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), places)
        params, moves, (inner, metrics) = jax.linearize(
            lambda added: run(added, []), zeros, has_aux=True
        )
        step = _unit(flatten(jax.tree.map(jnp.subtract, params, state.params)))

        def move(j: jax.Array) -> jax.Array:
            """The direction, f32[d], in which canary j moves the model."""
            if per_client:  # a descent along its gradient
                return -flatten(canaries.direction(j, params))
            return _unit(flatten(moves([canaries.direction(j, like) for like in zeros])))

        cosines = lax.map(lambda j: jnp.vdot(move(j), step), jnp.arange(count))
        clients = jnp.arange(count) // max(per_client, 1)
        drawn = cohort._draw_for_audits()
        members = jnp.zeros(cohort.num_clients, bool).at[drawn.ids].max(drawn.mask, mode="drop")
        scores = state.scores + jnp.stack([cosines, jnp.where(members[clients], cosines, 0.0)])
        return CanaryState(inner.params, inner.round, inner, present, scores), metrics

    def personal(state: CanaryState, i: jax.Array) -> Any:
        assert algorithm.personal is not None
        return algorithm.personal(state.inner, i)

    own = personal if algorithm.personal else None
    return algorithm._replace(init=init, round=round, personal=own)


class Canaries(NamedTuple):
    """Who takes the places of clients, or of records.

    Attributes:
      key: of their directions, which are drawn when they are needed: all together would be far larger than the model.
      present: bool[k].
      length: of what they contribute before it is clipped.
      per_client: records of a client that are canaries; 0 where clients are.
    """

    key: Key
    present: jax.Array
    length: float
    per_client: int

    def direction(self, j: jax.Array, like: PyTree) -> PyTree:
        """That of canary j (i32[]), of length 1, in the shapes of `like`."""
        z = jax.random.normal(jax.random.fold_in(self.key, j), (dimension(like),))
        return unflatten(_unit(z), like)

    def contribution(self, j: jax.Array, like: PyTree) -> PyTree:
        """What canary j (i32[]) sends, or has for a gradient: a tree as `like`, zeros where it is not there."""
        length = self.present[self.last(j)] * self.length
        return jax.tree.map(lambda leaf: length * leaf, self.direction(j, like))

    def last(self, j: jax.Array) -> jax.Array:
        """i32[]: j (i32[]), or the last canary where j is none."""
        return jnp.minimum(j, len(self.present) - 1)

    def gradients(self, of_records: Gradients, i: jax.Array) -> Gradients:
        """Those of client i, whose first records are canaries; a batch is (examples, their positions i32[B])."""
        first = i * self.per_client

        def of_batch(params: Params, batch: tuple) -> PerExample:
            examples, positions, *keys = (
                (*batch[0], batch[1]) if isinstance(batch, Keyed) else batch
            )
            examples = Keyed(examples, *keys) if keys else examples
            norms, weighted, each = of_records(params, examples)
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
                    return total + jnp.tensordot(w, canary, 1)

                return jax.tree.map(add, total, weights, canaries)

            lengths = jax.tree.map(
                lambda leaf: jnp.linalg.norm(leaf.reshape(len(leaf), -1), axis=1), canaries
            )
            return PerExample(replaced(norms, lengths), summed, lambda: replaced(each(), canaries))

        return GradientFunction(of_batch, needs_keys(of_records))


class _Played:
    """A cohort with canaries in it.

    `added` is added to its sums, one after the other; of each place that canaries find the shapes go to `places`.
    """

    def __init__(
        self, cohort: Cohort, canaries: Canaries, added: list[PyTree], places: list[PyTree]
    ):
        self._cohort, self._canaries, self._added, self._places = cohort, canaries, added, places

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cohort, name)


class _AmongClients(_Played):
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
        if mechanism is ALREADY_PRIVATE:
            return self._cohort.sum(client, key, mechanism=mechanism, codec=codec, **how)
        if isinstance(mechanism, Mechanism) and is_correlated(mechanism):
            raise NoPlaceError(
                "mechanism: its noise is correlated over rounds, which canaries cannot follow; audit the mechanism"
            )
        canaries, count = self._canaries, len(self._canaries.present)

        def played(key: Key, shard: Shard, *mine: PyTree) -> Sent:
            i, sent = jnp.asarray(shard.client_id), sent_by(client, key, shard, *mine)
            canary = canaries.contribution(i, sent.message)
            message = jax.tree.map(lambda u, c: jnp.where(i < count, c, u), sent.message, canary)
            away = (i < count) & ~canaries.present[canaries.last(i)]
            return sent._replace(message=message if local else (~away, message))

        # Where clients add the noise themselves, who is away sends that; else nothing at all.
        codec = codec if local else _of_those_there(codec)
        summed = self._cohort.sum(played, key, mechanism=mechanism, codec=codec, local=local, **how)
        total, call = summed.total, len(self._places)
        self._places.append(jax.eval_shape(lambda: total))
        if self._added:
            total = jax.tree.map(jnp.add, total, self._added[call])
        return summed._replace(total=total)


def _of_those_there(codec: Codec) -> Codec:
    """`codec` of (whether the client is there, message): the message, or zeros."""

    def code(key: Key, given: tuple) -> Coded:
        there, message = given
        coded = codec.code(key, message)
        return coded._replace(
            message=jax.tree.map(lambda leaf: jnp.where(there, leaf, 0.0), coded.message)
        )

    return codec._replace(code=code)


class _AmongRecords(_Played):
    def sum(self, client: Client, *given: Any, **how: Any) -> Summed:
        return self._cohort.sum(self._played(client), *given, **how)

    def unprotected(self, client: Client, *given: Any, **how: Any) -> Summed:
        return self._cohort.unprotected(self._played(client), *given, **how)

    def _played(self, client: Client) -> Client:
        def played(key: Key, shard: Shard, *mine: PyTree) -> Any:
            return client(key, _with_canaries(self._canaries, shard, self._places), *mine)

        return played


def _with_canaries(canaries: Canaries, shard: Shard, places: list[PyTree]) -> Shard:
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
            **how: Any,
        ) -> Params:
            if canaries.per_client > (held := records.accounting.population):
                raise ValueError(
                    f"per_client: a client has {held} records, not {canaries.per_client} to give up"
                )
            places.append(())
            played = canaries.gradients(gradients, jnp.asarray(shard.client_id))
            return numbered.private_mean(key, played, params, records=records, **how)

    return CanaryShard(shard.examples, shard.size, shard.round, shard.client_id)


def _unit(v: jax.Array) -> jax.Array:
    return v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(jnp.float32).tiny)
