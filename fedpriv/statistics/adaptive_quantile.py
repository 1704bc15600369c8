"""A quantile without bins, by the rule that adaptive clipping follows.

G. Andrew, O. Thakkar, B. McMahan, S. Ramaswamy, "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021,
arXiv:1905.03871, Section 3: geometric updates.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.compression.codecs import Wire
from fedpriv.core.arguments import Count, Positive, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, Key, Metrics, Params
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import gaussian
from fedpriv.mechanisms.per_example import per_example
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.samplers import everyone
from fedpriv.statistics.statistic import Asked, Crowd, Statistic
from fedpriv.statistics.values import Values, check_values, name_of, shape_of, value_of


class QuantileState(NamedTuple):
    """State of the adaptive quantile's algorithm.

    Attributes:
      params: the model that it was given, which stays as it is.
      round: i32[], rounds done.
      estimate: f32[], the quantile so far.
    """

    params: Params
    round: jax.Array
    estimate: jax.Array


def adaptive_quantile(
    values: Values, q: Probability, *, start: Positive, rounds: Count, rate: Positive = 0.2
) -> Statistic:
    """A quantile of positive numbers in several rounds, without bins: C <- C exp(-rate (b - q)).

    b is the noisy share of values up to C; a client that is zeroed out counts as half below, half above. From k times
    too high or low it takes about log(k) / (rate min(q, 1 - q)) rounds; at record level longer, by how many of the
    places for records are empty.

    The standard error bounds what the noise of all rounds does: C rate sqrt(rounds) times the deviation of b's noise,
    as the rule itself only brings estimates together (rate times the density of log values at most 2). How far it has
    still to go is not in it.

    Args:
      q: such as 0.5.
      start: the first C, which says nothing of the data.
      rounds: how many there are; the noise multiplier is that of each.
      rate: eta.

    Raises:
      ValueError: an argument out of range; when asked, values that are not one number a record.
    """
    check_values(values)
    q, start = checked("q", q, Probability), checked("start", start, Positive)
    rounds, rate = checked("rounds", rounds, Count), checked("rate", rate, Positive)

    def below(record: Example, estimate: jax.Array) -> jax.Array:
        return (value_of(values, record) <= estimate).astype(jnp.float32)

    def gradient(estimate: jax.Array, record: Example) -> jax.Array:
        """Whose derivative is what a record adds: that of the quantile loss."""
        return estimate * jax.lax.stop_gradient(below(record, estimate) - q)

    def ask(crowd: Crowd) -> Asked:
        shape = shape_of(values, crowd.record)
        require(shape == (), "values", name_of(values), f"let it be one number, not {list(shape)}")
        of_records = crowd.unit == "record"
        radius = max(q, 1 - q) if of_records else 0.5
        mechanism = gaussian(radius, crowd.noise_multiplier)
        noise = radius * crowd.noise_multiplier / crowd.clients
        if of_records:
            noise *= math.sqrt(crowd.clients) / crowd.per_client

        def init(params: Params, federation: Federation) -> QuantileState:
            return QuantileState(params, jnp.int32(0), jnp.float32(start))

        def round(key: Key, state: QuantileState, cohort: Cohort) -> tuple[QuantileState, Metrics]:
            now = state.estimate

            def client(key: Key, shard: Shard) -> jax.Array:
                bits = jax.vmap(lambda record: below(record, now))(shard.examples)
                return jnp.sum(bits * shard.mask) / shard.size - 0.5

            if of_records:
                error, metrics = cohort.private_mean(
                    per_example(gradient),
                    now,
                    records=everyone(crowd.per_client),
                    mechanism=mechanism,
                )
            else:
                total, metrics, _ = cohort.sum(client, key, mechanism=mechanism)
                error = total / cohort.expected_size + 0.5 - q
            moved = QuantileState(state.params, state.round + 1, now * jnp.exp(-rate * error))
            return moved, metrics | {"downlink": Wire(1)}

        def read(state: Any) -> tuple[np.ndarray, np.ndarray]:
            value = np.asarray(state.estimate, np.float64)
            return value, value * rate * math.sqrt(rounds) * noise

        return Asked(Algorithm(init, round, everyone(crowd.clients), crowd.unit), read)

    shown = f"adaptive_quantile({name_of(values)}, {q}, start={start:g}, rounds={rounds}, rate={rate:g})"
    return Statistic(shown, values, ask, rounds)
