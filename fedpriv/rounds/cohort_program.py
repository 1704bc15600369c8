"""The round of an algorithm, traced with the cohorts of a sampler."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.core.program_text import digest
from fedpriv.core.types import Key, State
from fedpriv.proof.given import Given
from fedpriv.proof.marks import Marks, Released
from fedpriv.proof.program import Arguments, Results, RoundProgram, program_of
from fedpriv.proof.stream import THREEFRY
from fedpriv.rounds.algorithm import Algorithm, ModelState, after_round, check_state
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.cohort_calls import CohortCalls
from fedpriv.rounds.played import Played
from fedpriv.rounds.private_step import told
from fedpriv.rounds.round_arguments import FederationShape, answer_like
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler


@dataclass(frozen=True, eq=False)
class CohortProgram(RoundProgram):
    """A round with one sampler, traced.

    Attributes:
      sampler: draws its cohorts.
      answer: what its draws say of a member's answer, in shapes.
    """

    sampler: AnySampler
    answer: Answer

    @property
    def calls(self) -> tuple[Any, ...]:
        """What it releases, in plain values that do not depend on the version of JAX."""
        return tuple(told(mark) for mark in self.marks if isinstance(mark, Released))

    @cached_property
    def digest(self) -> str:
        """What tells it from other programs of this version of JAX, and what it releases from others."""
        said = f"{digest(self.program)} {self.calls}"
        return hashlib.sha256(said.encode()).hexdigest()[:16]


def program_of_round(
    algorithm: Algorithm, sampler: AnySampler, shape: FederationShape, state: State
) -> CohortProgram:
    """Traces the round with cohorts of `sampler`.

    Args:
      state: shapes.

    Raises:
      ValueError: as `fedpriv.proof.program.program_of`.
    """
    answer = answer_like(sampler)
    if isinstance(algorithm.round, Played):
        algorithm = algorithm._replace(round=algorithm.round.certified)

    def make(given: Given, marks: Marks) -> CohortCalls:
        return CohortCalls(given, shape, sampler, answer, marks)

    def round(calls: Any, key: Key, state: State) -> Results:
        cohort = Cohort(calls)
        after, metrics = after_round(algorithm, key, state, cohort)
        check_state("round", algorithm.round, after)
        return Results(
            after, metrics, ModelState(after.params, after.round), cohort._gathers.not_finite
        )

    hidden = jax.eval_shape(lambda: jax.random.key(0, impl=THREEFRY))
    key = jax.eval_shape(lambda: jax.random.key(0))
    number: Any = jax.ShapeDtypeStruct((), jnp.int32)
    public = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct((shape.public, *s.shape[1:]), s.dtype), shape.like
    )
    like = Arguments(Given(hidden, number, number, public), key, state)
    traced = program_of(make, round, like)
    return CohortProgram(traced.program, traced.marks, like, traced.out, sampler, answer)
