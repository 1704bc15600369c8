"""A round as the engine runs it: draws the cohort, hands it to the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.compression.codecs import Wire
from fedpriv.core import random_streams
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, Metrics, PyTree, State
from fedpriv.core.user_code import names_user_code
from fedpriv.mechanisms.noise_memory import NoiseMemory
from fedpriv.rounds.algorithm import Algorithm, after_round, require_algorithm
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.samplers import Draw, Opening
from fedpriv.rounds.scheduled_samplers import AnySampler, cohort_drawn, first_memories


def one_round(algorithm: Algorithm) -> Callable[..., tuple[State, Metrics]]:
    """(key, state, federation) -> (state, metrics): a single round with its own cohort, to be jitted.

    It is for single rounds. Only `fp.simulate` remembers noise that is correlated over rounds. A sampler with a
    schedule takes the key as that of the run. One that remembers who took part begins anew, so that no client has to
    rest; only `fp.simulate` keeps its bounds.

    `metrics` also has `cohort_size` (i32[], clients that took part), `downlink`, and `not_finite`, see
    `Cohort.not_finite`. A fourth argument is the number of rounds done, i32[], by default the state's.

    Raises:
      ValueError: not an algorithm; noise that is correlated over rounds.
    """
    require_algorithm(algorithm)

    @names_user_code
    def run(key: Key, state: State, federation: Any, t: Any = None) -> tuple[State, Metrics]:
        t = state.round if t is None else t
        carried = Carried(state, None, first_memories(algorithm.sampler))
        run_alone = round_in_run(algorithm)
        carried, metrics = run_alone(key, schedule_key(key), carried, federation, t)
        return carried.state, metrics

    return run


class Carried(NamedTuple):
    """What a run carries from round to round.

    Attributes:
      state: the algorithm's.
      memory: of the noise of its correlated mechanisms, see `NoiseMemory`; no round sees it, and no model holds it.
      participation: what its sampler remembers of who took part, for both sides of an `Opening`; likewise.
    """

    state: State
    memory: tuple[PyTree, ...] | None
    participation: tuple[PyTree, ...]


def round_in_run(algorithm: Algorithm) -> Callable[..., tuple[Carried, Metrics]]:
    """(key, key of the run's schedule, carried, federation, rounds done: i32[]) -> (carried, metrics)."""

    def run(key: Key, schedule: Key, carried: Carried, federation: Any, t: Any) -> tuple:
        def with_cohort(
            part: int, sampler: AnySampler
        ) -> Callable[[Key, Carried], tuple[Carried, Metrics]]:
            def once(key: Key, carried: Carried) -> tuple[Carried, Metrics]:
                draw_key, own_key = keys_of(key)
                participation = list(carried.participation)
                own_schedule = schedule_of_part(part, schedule)
                drawn, participation[part] = cohort_drawn(
                    sampler, draw_key, own_schedule, t, participation[part]
                )
                memory = NoiseMemory(carried.memory)
                cohort = Cohort(t, federation, drawn, sampler, memory)
                state, metrics = after_round(algorithm, own_key, carried.state, cohort)
                metrics = _counted(metrics, drawn, state) | {"not_finite": cohort.not_finite}
                return Carried(state, memory.after, tuple(participation)), metrics

            return once

        used = algorithm.sampler
        if isinstance(used, Opening):
            opening, usual = with_cohort(0, used.first), with_cohort(1, used.then)
            return lax.cond(t < used.rounds, opening, usual, key, carried)
        return with_cohort(0, used)(key, carried)

    return run


def schedule_key(root: Key) -> Key:
    """Of who takes part when, for samplers that go by the round."""
    return jax.random.fold_in(root, random_streams.SCHEDULE)


def schedule_of_part(part: int, schedule: Key) -> Key:
    """Of the part of an `Opening`, 0 or 1: they are certified as drawn independently, whatever their blocks are."""
    return jax.random.fold_in(schedule, random_streams.AFTER_OPENING) if part else schedule


def keys_of(key: Key) -> tuple[Key, Key]:
    """(for the draw of the cohort, for the algorithm)."""
    draw_key, own_key = jax.random.split(key)
    return draw_key, own_key


def _counted(metrics: Metrics, drawn: Draw, state: State) -> Metrics:
    wires = {"downlink": Wire(dimension(state.params))}
    wires |= {way: wire for way, wire in metrics.items() if way != "diagnostics"}
    return {
        "cohort_size": jnp.sum(drawn.mask).astype(jnp.int32),
        "diagnostics": metrics.get("diagnostics", {}),
    } | jax.tree.map(jnp.int32, wires)
