"""Audit of a whole training run by canaries with random directions.

G. Andrew, P. Kairouz, S. Oh, A. Oprea, H. B. McMahan, V. Suriyakumar, "One-shot Empirical Privacy Estimation for
Federated Learning", ICLR 2024, arXiv:2302.03098: canaries contribute updates at the clip norm in random directions,
which in many dimensions are nearly orthogonal to each other and to all else; the cosine with what was released tells
whether one was there. With a fair coin for each (T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1)
Training Run", NeurIPS 2023, arXiv:2305.08846) a single run bounds epsilon from below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv import streams
from fedpriv.cohort import Cohort
from fedpriv.federation import Federation
from fedpriv.mechanisms import Mechanism
from fedpriv.probe import Impostors, probed
from fedpriv.types import Algorithm, Key, Metrics, Params, State
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
      NoPlaceError: when it is traced, an algorithm that trains clients without `fedpriv.train`, or records without
        `LocalSteps`, or that draws its cohorts inside a loop or a condition.
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

    def round(key: Key, state: CanaryState, federation: Federation) -> tuple[CanaryState, Metrics]:
        coins = jax.random.bernoulli(jax.random.fold_in(key, streams.CANARIES), 0.5, (count,))
        present = jnp.where(state.round == 0, coins, state.present)
        directions = Directions(jax.random.key(seed), dimension(state.params))
        summed = "perturb" in _shown(algorithm, key, state.inner, federation)
        played = _impostors(present, directions, 100 * clip_norm, per_client, summed)
        (inner, metrics), seen = probed(algorithm.round, played)(key, state.inner, federation)
        if ("impostor records" if per_client else "impostor clients") not in seen:
            by = "records with LocalSteps" if per_client else "clients with fedpriv.train"
            raise NoPlaceError(
                f"algorithm: canaries find no place in it; train {by}, not inside a lax.cond of rounds"
            )
        clients = jnp.arange(count) // max(per_client, 1)
        cosines = directions.cosines(_moved(state.params, inner.params), count)
        drawn = _drawn(seen["cohort"], federation.num_clients)[clients]
        scores = state.scores + jnp.stack([cosines, jnp.where(drawn, cosines, 0.0)])
        return CanaryState(inner.params, inner.round, inner, present, scores), metrics

    return algorithm._replace(init=init, round=round)


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


def _shown(algorithm: Algorithm, key: Key, state: State, federation: Federation) -> set[str]:
    names: set[str] = set()

    def look(*args: Any) -> None:
        names.update(probed(algorithm.round)(*args)[1])

    jax.eval_shape(look, key, state, federation)
    return names


def _impostors(
    present: jax.Array, directions: Directions, length: float, per_client: int, summed: bool
) -> Impostors:
    """`summed`: noise is added to the sum, so that who does not contribute takes none away."""
    count = len(present)

    def keep_out(ids: jax.Array) -> jax.Array:
        if per_client or not summed:
            return jnp.zeros(ids.shape, bool)
        return (ids < count) & ~present[jnp.minimum(ids, count - 1)]

    def train(i: jax.Array, received: Params, model: Params) -> Params:
        if per_client:
            return model
        there = present[jnp.minimum(i, count - 1)]
        away = unflatten(there * length * directions.at(i), received)  # the update is this
        return jax.tree.map(lambda x, u, y: jnp.where(i < count, x - u, y), received, away, model)

    def records(
        i: jax.Array, positions: jax.Array, mask: jax.Array, used: Mechanism, like: Params
    ) -> tuple[jax.Array, Params]:
        first = i * per_client

        def add(p: jax.Array, total: Params) -> Params:
            j = jnp.minimum(first + p, count - 1)
            times = jnp.sum(mask & (positions == p)) * (present[j] & (first + p < count))
            bounded = used.clip(unflatten(length * directions.at(j), like))[0]
            return jax.tree.map(lambda t, u: t + times * u, total, bounded)

        added = lax.fori_loop(0, per_client, add, jax.tree.map(jnp.zeros_like, like))
        taken = (positions < per_client) & (first + positions < count)
        return mask & ~taken, added

    return Impostors(keep_out, train, records)


def _moved(before: Params, after: Params) -> jax.Array:
    return flatten(jax.tree.map(jnp.subtract, before, after))


def _drawn(cohort: Cohort, clients: int) -> jax.Array:
    """bool[clients]: who is in a cohort."""
    return jnp.zeros(clients, bool).at[cohort.ids].max(cohort.mask, mode="drop")
