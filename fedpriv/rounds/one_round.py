"""A round as the engine runs it: draws the cohort, hands it to the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.compression.codecs import Wire
from fedpriv.core.arguments import CountOrZero, checked
from fedpriv.core.trees import dimension
from fedpriv.core.types import Key, Metrics, PyTree, State
from fedpriv.core.user_code import names_user_code
from fedpriv.proof.primitives import in_shapes
from fedpriv.proof.program import RoundProgram
from fedpriv.proof.stream import (
    participation_key,
    public_key,
    root_of,
    round_of,
    schedule_key,
)
from fedpriv.rounds.algorithm import Algorithm, require_algorithm
from fedpriv.rounds.cohort_program import program_of_round
from fedpriv.rounds.played import Played
from fedpriv.rounds.round_arguments import shape_of
from fedpriv.rounds.running import Ran, RoundToRun, run_round
from fedpriv.rounds.samplers import Draw, Opening
from fedpriv.rounds.scheduled_samplers import AnySampler, cohort_drawn, first_memories


def one_round(algorithm: Algorithm) -> Callable[..., tuple[State, Metrics]]:
    """(root key, state, federation) -> (state, metrics): a single round with its own cohort, to be jitted.

    It runs a single round of the run that has this root. The same root and the same number of rounds done give the same
    noise. Only `fp.simulate` remembers noise that is correlated over rounds. A sampler that remembers who
    took part begins anew, so that no client has to rest; only `fp.simulate` keeps its bounds.

    `metrics` also has `cohort_size` (i32[], clients that took part), `downlink`, and `not_finite`, see
    `Cohort.not_finite`. A fourth argument is the number of rounds done, i32[], by default the state's.

    Raises:
      ValueError: not an algorithm; noise that is correlated over rounds.
    """
    require_algorithm(algorithm)

    @names_user_code
    def run(root: Key, state: State, federation: Any, t: Any = None) -> tuple[State, Metrics]:
        t = state.round if t is None else checked("t", t, jax.Array | CountOrZero)
        carried = Carried(jax.tree.map(jnp.asarray, state), None, first_memories(algorithm.sampler))
        carried, metrics = round_in_run(algorithm)(root_of(root), carried, federation, t)
        return carried.state, metrics

    return run


class Carried(NamedTuple):
    """What a run carries from round to round.

    Attributes:
      state: the algorithm's.
      memory: of the noise of its correlated mechanisms; no round sees it, and no model holds it.
      participation: what its sampler remembers of who took part, for both sides of an `Opening`; likewise.
    """

    state: State
    memory: tuple[PyTree, ...] | None
    participation: tuple[PyTree, ...]


def round_in_run(
    algorithm: Algorithm, programs: Sequence[RoundProgram] | None = None
) -> Callable[..., tuple[Carried, Metrics]]:
    """(root key of the run, carried, federation, rounds done: i32[]) -> (carried, metrics).

    Args:
      programs: of the round with each part of the sampler, that were certified; None: it is traced for what is given.
    """

    def run(part: int, of: RoundToRun) -> Ran:
        if programs:
            program = programs[part]
        else:
            like = shape_of(of.federation), in_shapes(of.state)
            program = program_of_round(algorithm, of.sampler, *like)
        if isinstance(algorithm.round, Played):
            return algorithm.round.play(program, of)
        return run_round(program, of)

    def after(root: Key, carried: Carried, federation: Any, t: Any) -> tuple:
        def with_cohort(part: int, sampler: AnySampler) -> Callable[[Carried], tuple]:
            def once(carried: Carried) -> tuple[Carried, Metrics]:
                participation = list(carried.participation)
                drawn, participation[part] = who_takes_part(
                    sampler, part, root, t, participation[part]
                )
                hidden, key = round_of(root, t), public_key(root, t + 1)
                of = RoundToRun(
                    hidden, key, carried.state, t, sampler, drawn, federation, carried.memory
                )
                ran = run(part, of)
                metrics = _counted(ran.metrics, drawn, ran.state) | {"not_finite": ran.not_finite}
                return Carried(ran.state, ran.memory, tuple(participation)), metrics

            return once

        used = algorithm.sampler
        if isinstance(used, Opening):
            opening, usual = with_cohort(0, used.first), with_cohort(1, used.then)
            return lax.cond(t < used.rounds, opening, usual, carried)
        return with_cohort(0, used)(carried)

    return after


def who_takes_part(
    sampler: AnySampler, part: int, root: Key, t: jax.Array, memory: PyTree
) -> tuple[Draw, PyTree]:
    """(Who takes part in the round after t others, what the sampler remembers then).

    Args:
      part: of an `Opening`, 0 or 1; else 0.
    """
    drawing, schedule = participation_key(root, t), schedule_key(root, part)
    return cohort_drawn(sampler, drawing, schedule, t, memory)


def _counted(metrics: Metrics, drawn: Draw, state: State) -> Metrics:
    wires = {"downlink": Wire(dimension(state.params))}
    wires |= {way: wire for way, wire in metrics.items() if way != "diagnostics"}
    return {
        "cohort_size": jnp.sum(drawn.mask).astype(jnp.int32),
        "diagnostics": metrics.get("diagnostics", {}),
    } | jax.tree.map(jnp.int32, wires)
