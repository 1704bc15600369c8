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
from fedpriv.statistics.values import Values, check_values, name_of, numbers_of, shape_of


class QuantileState(NamedTuple):
    """State of the adaptive quantile's algorithm.

    Attributes:
      params: the model that it was given, which stays as it is.
      round: i32[], rounds done.
      estimates: f32[rounds + 1], the quantile before each round and after the last; 0 for rounds to come.
    """

    params: Params
    round: jax.Array
    estimates: jax.Array


def adaptive_quantile(
    values: Values, q: Probability, *, start: Positive, rounds: Count, rate: Positive = 0.2
) -> Statistic:
    """A quantile of positive numbers in several rounds, without bins: C <- C exp(-rate (b - q)).

    b is the noisy share of values up to C; a client that is zeroed out counts as half below, half above, and a value
    that is missing (NaN) does not count. From k times too high or low it takes about log(k) / (rate min(q, 1 - q))
    rounds; at record level longer, by how many of the places for records are empty.

    The standard error is how far estimates ranged over the last third of the rounds, beside what noise does in these.
    So it contains how far C has still to go, but no gap between neighbouring values. Of an extreme q, with much noise
    and few rounds, it covers fewer than 90 of 100. It takes C to move as fast as it would if no value were missing and
    all places for records were taken: where most are not, it is too small, and `quantile` is the one to ask.

    It is infinite where how far C has to go cannot be told: where C moved more than a third as far as in the third
    before, unless noise alone does so and there are at least 12 / rate rounds; where it has never moved; or where noise
    would hide that it moves. Then take more rounds, a start that is nearer, or less noise.

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
        """b of one record; q where its value is missing, so that it moves nothing."""
        value = numbers_of(values, record)
        return jnp.where(jnp.isnan(value), q, (value <= estimate).astype(jnp.float32))

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
            estimates = jnp.zeros(rounds + 1, jnp.float32).at[0].set(start)
            return QuantileState(params, jnp.int32(0), estimates)

        def round(key: Key, state: QuantileState, cohort: Cohort) -> tuple[QuantileState, Metrics]:
            now = state.estimates[state.round]

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
            after = state.round + 1
            estimates = state.estimates.at[after].set(now * jnp.exp(-rate * error))
            moved = QuantileState(state.params, after, estimates)
            return moved, metrics | {"downlink": Wire(1)}

        def read(state: Any) -> tuple[np.ndarray, np.ndarray]:
            path = np.asarray(state.estimates, np.float64)
            error = _error(path, q, rate, noise)
            return path[-1], np.asarray(path[-1] * error if error < math.inf else math.inf)

        return Asked(Algorithm(init, round, everyone(crowd.clients), crowd.unit), read)

    shown = f"adaptive_quantile({name_of(values)}, {q}, start={start:g}, rounds={rounds}, rate={rate:g})"
    return Statistic(shown, values, ask, rounds)


def _error(path: np.ndarray, q: float, rate: float, noise: float) -> float:
    """The standard error of the logarithm of the last of f64[rounds + 1] estimates.

    Where the density of log values is f, a third of the rounds shrinks the distance by exp(-rate f rounds / 3). If that
    is at most a half, the distance that is left is no more than what C moved in the last third.

    Args:
      noise: the deviation of b's noise in one round.
    """
    told = np.isfinite(path).all() and (path > 0).all() and np.ptp(path) > 0
    if not told:  # lost in noise, or it has never moved
        return math.inf
    path, rounds = np.log(path), len(path) - 1
    third = max(rounds // 3, 1)
    last, one_before, two_before = path[-1], path[-1 - third], path[max(-1 - 2 * third, -len(path))]
    moved, before = abs(last - one_before), abs(one_before - two_before)
    walk = rate * noise * math.sqrt(third)  # the deviation of what noise moves in a third
    by_noise = 3 * walk
    slows_down = moved <= before / 3
    is_long = rate * rounds > 12 - 1e-9  # f of 1 / 4 shrinks the distance by 1 / e in a third
    is_hidden = by_noise > rate * min(q, 1 - q) * third
    at_rest = slows_down or (moved <= by_noise and is_long)
    if is_hidden or not at_rest:
        return math.inf
    return math.hypot(float(np.ptp(path[-1 - third :])), walk)
