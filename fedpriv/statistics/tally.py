"""One round in which everyone adds up bounded numbers: what all statistics but the adaptive quantile are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.compression.codecs import Wire
from fedpriv.core.types import Example, Key, Metrics, Params, PyTree
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import gaussian, joint
from fedpriv.mechanisms.per_example import per_example
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.samplers import everyone
from fedpriv.statistics.statistic import Asked, Crowd


def _as_it_is(total: jax.Array) -> jax.Array:
    return total


class Part(NamedTuple):
    """One of the sums of a round.

    Attributes:
      each: record -> f32[...], what a record adds.
      radius: bound on the l2 norm of what a unit adds; it is clipped to it.
      adds: whether a client adds the sum over its records, else their mean.
      bounded: what a unit adds -> the same within its bounds; by default as it is.
    """

    each: Callable[[Example], jax.Array]
    radius: float
    adds: bool = False
    bounded: Callable[[jax.Array], jax.Array] = _as_it_is


class TallyState(NamedTuple):
    """State of a statistic's algorithm.

    Attributes:
      params: the model that it was given, which stays as it is.
      round: i32[], rounds done.
      means: of each part, f32[...], its noisy sum over the number of units that there are room for.
    """

    params: Params
    round: jax.Array
    means: tuple[jax.Array, ...]


class Total(NamedTuple):
    """A released sum over all units.

    Attributes:
      sum: f64[...].
      error: standard deviation of the noise of each of its numbers.
    """

    sum: np.ndarray
    error: float


def ratio(total: Total, units: Total) -> tuple[np.ndarray, np.ndarray]:
    """(The mean over so many units, its standard error by the delta method), f64[...]."""
    n = np.maximum(units.sum, 1.0)
    mean = total.sum / n
    return mean, np.hypot(total.error, mean * units.error) / n


def tallied(
    crowd: Crowd,
    parts: Sequence[Part],
    read: Callable[[list[Total]], tuple[PyTree, PyTree]],
    span: PyTree,
) -> Asked:
    """The round that releases these sums, jointly, and what is read off them.

    Formal guarantees: those of `joint`, for a client through `Cohort.sum`, for a record through `Cohort.private_mean`.
    There each client perturbs the sum of its own records, so that a total has sqrt(clients) times the noise of one. All
    of it hides a record from whoever sees totals alone, which costs nothing; a server that sees messages sees each with
    its own noise only.

    Args:
      read: the totals, in order -> (value, standard error).
      span: as of `Asked`.
    """
    # Each has the same share of the budget: multipliers of sqrt(K) sigma make sigma together.
    own = math.sqrt(len(parts)) * crowd.noise_multiplier
    mechanism = joint(*(gaussian(part.radius, own) for part in parts))
    places = crowd.per_client if crowd.unit == "record" else 1

    def of_record(part: Part, record: Example) -> jax.Array:
        return jnp.asarray(part.each(record), jnp.float32)

    zeros = tuple(
        np.zeros(jax.eval_shape(lambda one, part=part: of_record(part, one), crowd.record).shape)
        for part in parts
    )
    zeros = jax.tree.map(np.float32, zeros)

    def client(key: Key, shard: Shard) -> tuple:
        def of_client(part: Part) -> jax.Array:
            each = jax.vmap(lambda record: of_record(part, record))(shard.examples)
            there = shard.mask.reshape(-1, *[1] * (each.ndim - 1))
            total = jnp.sum(jnp.where(there, each, 0.0), 0)
            return part.bounded(total if part.adds else total / shard.size)

        return tuple(map(of_client, parts))

    def linear(params: Params, record: Example) -> jax.Array:
        """Whose gradient is what the record adds, whatever the parameters are."""
        added = [part.bounded(of_record(part, record)) for part in parts]
        products = [jnp.sum(p * a) for p, a in zip(params, added, strict=True)]
        return jnp.sum(jnp.stack(products))

    gradients = per_example(linear)

    def init(params: Params, federation: Federation) -> TallyState:
        return TallyState(params, jnp.int32(0), jax.tree.map(jnp.asarray, zeros))

    def round(key: Key, state: TallyState, cohort: Cohort) -> tuple[TallyState, Metrics]:
        if crowd.unit == "record":
            mean, metrics = cohort.private_mean(
                gradients, state.means, records=everyone(places), mechanism=mechanism
            )
        else:
            total, metrics, _ = cohort.sum(client, key, mechanism=mechanism)
            mean = jax.tree.map(lambda s: s / cohort.expected_size, total)
        after = TallyState(state.params, state.round + 1, mean)
        return after, metrics | {"downlink": Wire(0)}  # clients need no model

    def of_state(state: Any) -> tuple[PyTree, PyTree]:
        drawn = math.sqrt(crowd.clients) if crowd.unit == "record" else 1.0
        means = [np.asarray(mean, np.float64) for mean in state.means]
        return read(
            [
                Total(crowd.units * mean, part.radius * own * drawn)
                for part, mean in zip(parts, means, strict=True)
            ]
        )

    algorithm = Algorithm(init, round, everyone(crowd.clients), crowd.unit)
    return Asked(algorithm, of_state, span)
