"""A round, traced once: the program that is certified, and that runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from fedpriv.core.jaxprs import trace_program
from fedpriv.core.program_text import digest
from fedpriv.core.types import Key, Metrics, State
from fedpriv.rounds.algorithm import Algorithm, ModelState, after_round, check_state
from fedpriv.rounds.calls import Calls, may_make
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.marks import Marks, Released
from fedpriv.rounds.noise_stream import THREEFRY
from fedpriv.rounds.round_arguments import FederationShape, Given, answer_like
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler


class Arguments(NamedTuple):
    """Of a round's program: of the engine, and of the algorithm."""

    given: Given
    key: Key
    state: State


class Results(NamedTuple):
    """Of a round's program.

    Attributes:
      state, metrics: the algorithm's.
      released: what of the state is released. Asked for as the engine asks: it may be no leaves of its own, or leaves
        without a name.
      not_finite: the shares of what was not finite, for the engine alone.
    """

    state: State
    metrics: Metrics
    released: ModelState
    not_finite: dict[str, jax.Array]


@dataclass(frozen=True)
class Played:
    """A round that attacks play otherwise than it is certified.

    Attributes:
      certified: the round.
      play: what takes its place in a run, given its program.
    """

    certified: Callable[..., tuple[State, Metrics]]
    play: Callable[[RoundProgram, Any], Any]

    def __call__(self, *_: Any) -> NoReturn:
        """Raises ValueError: another round calls it, and would not be played."""
        raise ValueError(
            "round: it is that of fp.attacks.with_canaries, which the engine plays; change the algorithm before, and "
            "give the changed one to with_canaries"
        )


@dataclass(frozen=True, eq=False)
class RoundProgram:
    """A round with one sampler, traced.

    Attributes:
      program: `Arguments` -> `Results`, their leaves.
      marks: in it, by their numbers.
      like: the arguments, in shapes.
      out: the results, in shapes.
      sampler: draws its cohorts.
      answer: what its draws say of a member's answer, in shapes.
    """

    program: ClosedJaxpr
    marks: Marks
    like: Arguments
    out: Results
    sampler: AnySampler
    answer: Answer

    @property
    def calls(self) -> tuple[Any, ...]:
        """What it releases, in plain values that do not depend on the version of JAX."""
        return tuple(mark.told for mark in self.marks if isinstance(mark, Released))

    @cached_property
    def digest(self) -> str:
        """What tells it from other programs of this version of JAX, and what it releases from others."""
        told = f"{digest(self.program)} {self.calls}"
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def program_of_round(
    algorithm: Algorithm, sampler: AnySampler, shape: FederationShape, state: State
) -> RoundProgram:
    """Traces the round with cohorts of `sampler`.

    Args:
      state: shapes.

    Raises:
      ValueError: calls of the cohort that could be repeated; and whatever the round itself raises.
    """
    marks, answer = Marks(), answer_like(sampler)
    if isinstance(algorithm.round, Played):
        algorithm = algorithm._replace(round=algorithm.round.certified)

    def run(given: Given, key: Key, state: State) -> Results:
        with may_make():
            calls = Calls(given, shape, sampler, answer, marks)
        cohort = Cohort(calls)
        after, metrics = after_round(algorithm, key, state, cohort)
        calls.end()
        check_state("round", algorithm.round, after)
        return Results(after, metrics, ModelState(after.params, after.round), cohort._not_finite)

    hidden = jax.eval_shape(lambda: jax.random.key(0, impl=THREEFRY))
    key = jax.eval_shape(lambda: jax.random.key(0))
    number: Any = jax.ShapeDtypeStruct((), jnp.int32)
    public = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct((shape.public, *s.shape[1:]), s.dtype), shape.like
    )
    like = Arguments(Given(hidden, number, number, public), key, state)
    program, out = trace_program(run, *like)
    return RoundProgram(program, marks, like, out, sampler, answer)
