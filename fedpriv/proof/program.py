"""A round, traced once: the program that is certified, and that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr

from fedpriv.core.jaxprs import trace_program
from fedpriv.core.types import Key, Metrics, State
from fedpriv.proof.calls import Calls, may_make
from fedpriv.proof.given import Given
from fedpriv.proof.marks import Marks


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
    released: Any
    not_finite: Any


@dataclass(frozen=True, eq=False)
class RoundProgram:
    """A round, traced.

    Attributes:
      program: `Arguments` -> `Results`, their leaves.
      marks: in it, by their numbers.
      like: the arguments, in shapes.
      out: the results, in shapes.
    """

    program: ClosedJaxpr
    marks: Marks
    like: Arguments
    out: Results


def program_of(
    make: Callable[[Given, Marks], Calls],
    round: Callable[[Calls, Key, State], Results],
    like: Arguments,
) -> RoundProgram:
    """Traces a round.

    Args:
      make: makes the calls by which the round reaches clients, its only way to them.
      round: what it does, given these.

    Raises:
      ValueError: calls of the cohort that could be repeated; and whatever the round itself raises.
    """
    marks = Marks()

    def run(given: Given, key: Key, state: State) -> Results:
        with may_make():
            calls = make(given, marks)
        results = round(calls, key, state)
        calls.end()
        return results

    program, out = trace_program(run, *like)
    return RoundProgram(program, marks, like, out)
