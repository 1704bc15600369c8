"""A round as the engine runs it: draws the cohort, hands it to the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.compression.codecs import Wire
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, Metrics, State
from fedpriv.core.user_code import names_user_code
from fedpriv.rounds.algorithm import Algorithm, after_round, require_algorithm
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.samplers import Draw, Opening, Sampler, drawn_from


def one_round(algorithm: Algorithm) -> Callable[..., tuple[State, Metrics]]:
    """(key, state, federation) -> (state, metrics), to be jitted: a round with a cohort of its own.

    `metrics` also has `cohort_size` (i32[], clients that took part), `downlink`, and `not_finite`, see
    `Cohort.not_finite`. A fourth argument is the number of rounds done, i32[], by default the state's.

    Raises:
      ValueError: no algorithm.
    """
    require_algorithm(algorithm)

    @names_user_code
    def run(key: Key, state: State, federation: Any, t: Any = None) -> tuple[State, Metrics]:
        t = state.round if t is None else t

        def with_cohort(sampler: Sampler) -> Callable[[Key, State], tuple[State, Metrics]]:
            def once(key: Key, state: State) -> tuple[State, Metrics]:
                draw_key, own_key = keys_of(key)
                drawn = drawn_from(sampler, draw_key)
                cohort = Cohort(t, federation, drawn, sampler)
                state, metrics = after_round(algorithm, own_key, state, cohort)
                return state, _counted(metrics, drawn, state) | {"not_finite": cohort.not_finite}

            return once

        used = algorithm.sampler
        if isinstance(used, Opening):
            opening, usual = with_cohort(used.first), with_cohort(used.then)
            return lax.cond(t < used.rounds, opening, usual, key, state)
        return with_cohort(used)(key, state)

    return run


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
