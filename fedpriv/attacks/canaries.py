"""Audit of a whole training run by canaries with random directions.

G. Andrew, P. Kairouz, S. Oh, A. Oprea, H. B. McMahan, V. Suriyakumar, "One-shot Empirical Privacy Estimation for
Federated Learning", ICLR 2024, arXiv:2302.03098: canaries contribute updates at the clip norm in random directions,
which in many dimensions are nearly orthogonal to each other and to all else; the cosine with what was released tells
whether one was there. With a fair coin for each (T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1)
Training Run", NeurIPS 2023, arXiv:2305.08846) a single run bounds epsilon from below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv import streams
from fedpriv.cohort import Client, Cohort, Sent, Summed, as_sent
from fedpriv.federation import Federation
from fedpriv.samplers import Draw, Sampler
from fedpriv.shard import Shard
from fedpriv.types import Algorithm, Key, Metrics, Params, PyTree, State
from fedpriv.vectors import dimension, flatten, unflatten

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
    algorithm: Algorithm, count: int, *, per_client: int = 0, clip_norm: float = 1.0, seed: int = 0
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
      ValueError: at `init`, more canaries than clients or records.
      NoPlaceError: when it is traced, an algorithm that protects no client in a cohort's sum, or no record in a private
        mean.
    """

    def init(params: Params, federation: Federation) -> CanaryState:
        if per_client > (least := int(jnp.min(federation.size))):
            raise ValueError(
                f"per_client: a client has {least} records, not {per_client} to give up"
            )
        places = federation.num_clients * max(per_client, 1)
        if not 1 <= count <= places:
            raise ValueError(
                f"canaries: {count} do not fit into {places} places; give 1 to {places}"
            )
        inner = algorithm.init(params, federation)
        absent = jnp.zeros(count, bool)
        return CanaryState(inner.params, inner.round, inner, absent, jnp.zeros((2, count)))

    def round(key: Key, state: CanaryState, cohort: Cohort) -> tuple[CanaryState, Metrics]:
        coins = jax.random.bernoulli(jax.random.fold_in(key, streams.CANARIES), 0.5, (count,))
        present = jnp.where(state.round == 0, coins, state.present)
        played = Played(jax.random.key(seed), present, 100 * clip_norm, per_client)

        def run(extra: PyTree) -> tuple[Params, tuple]:
            inner, metrics = algorithm.round(key, state.inner, played.cohort(cohort, extra))
            return inner.params, (inner, metrics)

        like = played.message(run)
        params, pull, (inner, metrics) = jax.vjp(run, like, has_aux=True)
        moved = jax.tree.map(jnp.subtract, state.params, params)
        if not per_client:  # how the sum of messages must have been for the model to move so
            moved = jax.tree.map(jnp.negative, pull(moved)[0])
        seen = flatten(moved)
        cosines = Directions(played.key, len(seen)).cosines(seen, count)
        clients = jnp.arange(count) // max(per_client, 1)
        drawn = _drawn(cohort._drawn, cohort.num_clients)[clients]
        scores = state.scores + jnp.stack([cosines, jnp.where(drawn, cosines, 0.0)])
        return CanaryState(inner.params, inner.round, inner, present, scores), metrics

    return algorithm._replace(init=init, round=round)


class Played(NamedTuple):
    """Canaries in the places of clients, or of records.

    Attributes:
      key: of their directions.
      present: bool[k].
      length: of what they contribute before it is clipped.
      per_client: records of a client that are canaries; 0 where clients are.
    """

    key: Key
    present: jax.Array
    length: float
    per_client: int

    def cohort(self, cohort: Cohort, extra: PyTree) -> Cohort:
        """`cohort` with the canaries in it; `extra` is added to the sum of messages."""
        given = cohort.round, cohort._federation, cohort._drawn, cohort._sampler
        if self.per_client:
            return _OfRecords(self, *given)
        return _OfClients(self, extra, *given)

    def message(self, run: Callable[[PyTree], Any]) -> PyTree:
        """Zeros like a client's message; nothing where records are canaries.

        Raises:
          NoPlaceError: there is nobody whose place a canary could take.
        """
        found: list = []
        _FOUND.append(found)
        try:
            jax.eval_shape(run, None)
        finally:
            _FOUND.pop()
        if not found:
            what = "records with shard.private_mean" if self.per_client else "clients' sums"
            raise NoPlaceError(f"algorithm: canaries find no place in it; protect {what}")
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), found[0])


_FOUND: list[list] = []


class _OfClients(Cohort):
    def __init__(self, played: Played, extra: PyTree, *given: Any):
        super().__init__(*given)
        self._played, self._extra = played, extra

    def sum(
        self, client: Client, key: Key, *, mechanism: Any, own: PyTree = (), **more: Any
    ) -> Summed:
        if not mechanism.in_round(0).multiplier > 0:
            return super().sum(client, key, mechanism=mechanism, own=own, **more)
        present = self._played.present
        count, everyone = len(present), jnp.arange(self.num_clients)

        def played(key: Key, shard: Shard, mine: tuple) -> Sent:
            own_row, i = mine
            sent = as_sent(client(key, shard, *((own_row,) if jax.tree.leaves(own) else ())))
            j = jnp.minimum(i, count - 1)
            directions = Directions(self._played.key, dimension(sent.message))
            canary = unflatten(present[j] * self._played.length * directions.at(j), sent.message)
            message = jax.tree.map(lambda u, c: jnp.where(i < count, c, u), sent.message, canary)
            return sent._replace(message=message, own=(sent.own, i))

        drawn = self._drawn
        if not more.get(
            "local"
        ):  # noise is added to the sum, so that who stays away takes none along
            ids = jnp.minimum(drawn.ids, count - 1)
            self._drawn = drawn._replace(mask=drawn.mask & ~((drawn.ids < count) & ~present[ids]))
        summed = super().sum(played, key, mechanism=mechanism, own=(own, everyone), **more)
        self._drawn = drawn
        return summed._replace(own=summed.own[0])

    def _shown(self, total: PyTree, key: Key, mechanism: Any, *more: Any) -> PyTree:
        if not mechanism.in_round(0).multiplier > 0:
            return total
        if self._extra is None:
            _FOUND[-1].append(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), total))
            return total
        extra, self._extra = self._extra, jax.tree.map(jnp.zeros_like, self._extra)
        return jax.tree.map(jnp.add, total, extra)


class _OfRecords(Cohort):
    def __init__(self, played: Played, *given: Any):
        super().__init__(*given)
        self._played = played

    def _over(self, fn: Callable[..., tuple], key: Key, own: PyTree) -> tuple[PyTree, PyTree]:
        def played(key: Key, shard: Shard, mine: tuple) -> tuple:
            own_row, i = mine
            rows = (own_row,) if jax.tree.leaves(own) else ()
            total, (kept, seen) = fn(key, _shard_of(self._played, i)(*shard), *rows)
            return total, ((kept, i), seen)

        total, ((kept, _), seen) = super()._over(played, key, (own, jnp.arange(self.num_clients)))
        return total, (kept, seen)


def _shard_of(played: Played, i: jax.Array) -> type[Shard]:
    """The shard of client i (i32[]), some of whose records are canaries."""

    class CanaryShard(Shard):
        def _mean(
            self, key: Key, drawn: Draw, gradients: Any, params: Params, records: Sampler, used: Any
        ) -> Params:
            if _FOUND:
                _FOUND[-1].append(())
            first, count = i * played.per_client, len(played.present)
            mechanism = used.in_round(self.round)
            directions = Directions(played.key, dimension(params))

            def add(p: jax.Array, total: Params) -> Params:
                j = jnp.minimum(first + p, count - 1)
                times = jnp.sum(drawn.mask & (drawn.ids == p))
                times *= played.present[j] & (first + p < count)
                canary = unflatten(played.length * directions.at(j), params)
                bounded = mechanism.clip(canary)[0]
                return jax.tree.map(lambda t, u: t + times * u, total, bounded)

            zeros = jax.tree.map(jnp.zeros_like, params)
            added = lax.fori_loop(0, played.per_client, add, zeros)
            taken = (drawn.ids < played.per_client) & (first + drawn.ids < count)
            others = drawn._replace(mask=drawn.mask & ~taken)
            mean = super()._mean(key, others, gradients, params, records, used)
            return jax.tree.map(lambda h, u: h + u / records.expected_size, mean, added)

    return CanaryShard


class Directions(NamedTuple):
    """Random directions, drawn when they are needed: all together would be far larger than the model.

    Attributes:
      key: all directions follow from it.
      d: number of coordinates.
    """

    key: Key
    d: int

    def at(self, j: jax.Array) -> jax.Array:
        """f32[d]: direction j (i32[]), of length 1."""
        z = jax.random.normal(jax.random.fold_in(self.key, j), (self.d,))
        return z / jnp.linalg.norm(z)

    def cosines(self, u: jax.Array, count: int) -> jax.Array:
        """f32[count]: of u (f32[d]) with the first `count` directions."""
        length = jnp.maximum(jnp.linalg.norm(u), jnp.finfo(jnp.float32).tiny)
        return lax.map(lambda j: jnp.vdot(self.at(j), u), jnp.arange(count)) / length


def _drawn(drawn: Draw, clients: int) -> jax.Array:
    """bool[clients]: who is in a cohort."""
    return jnp.zeros(clients, bool).at[drawn.ids].max(drawn.mask, mode="drop")
