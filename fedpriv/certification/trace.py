"""What a round releases, read off its program; and that nothing else leaves the clients.

The round is traced with a cohort in which one client stands for all. Marks in the program say where private data come
from and where a mechanism has perturbed them. Labels of private data are followed (`information_flow`); one that
reaches the state or the metrics past all releases is a leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from fedpriv.certification import key_labels
from fedpriv.certification.host_calls import lines_that_print
from fedpriv.certification.information_flow import (
    MARK,
    NONE,
    Labels,
    follow,
    trace_program,
    where,
)
from fedpriv.certification.leaks import Rules, leak
from fedpriv.certification.marked_cohort import FederationShape, MarkedCohort
from fedpriv.certification.marks import Capacity, Marks, Mean, Stored, Sum, is_noisy
from fedpriv.certification.privacy_labels import ClientState, LeakError, of
from fedpriv.core.trees import same_structure
from fedpriv.core.types import Key, Metrics, State
from fedpriv.core.user_functions import line_of
from fedpriv.models.example_checks import ExampleError
from fedpriv.privacy.participation_schemas import MinimumSeparation, RandomAllocation
from fedpriv.privacy.sampling import Everyone, Poisson, WithReplacement
from fedpriv.rounds.algorithm import Algorithm, ModelState, after_round
from fedpriv.rounds.scheduled_samplers import AnySampler


class TracedProgram(NamedTuple):
    """A round with one sampler, traced.

    Attributes:
      program: (key, state, rounds done) -> (state, metrics, what of the state is released), its leaves.
      out: shapes of these.
      marks: in the program.
      rules: by which labels pass.
      prints: lines that print something of a round.
    """

    program: ClosedJaxpr
    out: tuple[State, Metrics, ModelState]
    marks: Marks
    rules: Rules
    prints: tuple[str, ...]

    def follow(self, kept: Sequence[Labels]) -> list[Labels]:
        """The labels of its outputs, for those that leaves of the state have of what clients keep."""
        for mark in self.marks:
            if isinstance(mark, Sum | Mean):
                mark.times = 0
        return follow(
            self.program.jaxpr, [frozenset({key_labels.ROUNDS_KEY}), *kept, NONE], self.rules
        )


class Stage(NamedTuple):
    """What a round with one sampler releases.

    Attributes:
      sums, means: the cohort's sums, and the private means of a client's records.
      alone: whether a noisy mean shows nowhere but in the cohort's sum, which is a fixed multiple of all of them.
      program: as `TracedProgram`.
      prints: lines that print something of a round.
      capacities: lines that read how much room there is for a client's records.
      remembers: whether clients keep something for themselves.
    """

    sums: tuple[Sum, ...]
    means: tuple[Mean, ...]
    alone: bool
    program: ClosedJaxpr
    prints: tuple[str, ...]
    capacities: tuple[str, ...]
    remembers: bool

    @property
    def releases(self) -> tuple[Sum | Mean, ...]:
        """The sums, then the means."""
        return (*self.sums, *self.means)


def traced_program(
    algorithm: Algorithm, sampler: AnySampler, shape: FederationShape, state: State
) -> TracedProgram:
    """Traces the round with cohorts of `sampler`.

    Args:
      state: shapes.

    Raises:
      ValueError: calls of the cohort under jax.vmap, or of the host; records that the model cannot take; and whatever
        the round itself raises.
    """
    marks: Marks = []

    def run(key: Key, state: State, t: jax.Array) -> tuple[State, Metrics, ModelState]:
        cohort = MarkedCohort(t, shape, sampler, marks)
        after, metrics = after_round(algorithm, key, state, cohort)
        if not same_structure(after, state):
            remedy = f"{line_of(algorithm.round)}; return the structure that `init` gave"
            raise ValueError(f"round: the state's structure changes{remedy}")
        # Asked for as the engine asks: they may be no leaves of their own, or leaves without a name.
        return after, metrics, ModelState(after.params, after.round)

    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        program, out = trace_program(run, key, state, jnp.int32(0))
    except ExampleError as error:
        raise ValueError(f"federation: {error}") from None
    except NotImplementedError as error:
        if MARK.name not in str(error):
            raise
        raise ValueError(
            "round: it calls the cohort, or a private mean, under jax.vmap, where releases cannot be counted; use a "
            "loop"
        ) from error
    rules = Rules(marks, algorithm.unit, _secret(marks, sampler, algorithm.unit))
    return TracedProgram(program, out, marks, rules, lines_that_print(program.jaxpr))


def kept_by_clients(before: Sequence[Labels], after: Sequence[Labels]) -> list[Labels]:
    """The labels that leaves of the state have of what clients keep, before a round or after it."""
    return [one | of(ClientState, other) for one, other in zip(before, after, strict=False)]


def stage_of(traced: TracedProgram, followed: Sequence[Labels]) -> Stage:
    """What the round releases, once nothing else of the clients leaves it.

    Args:
      followed: labels of the round's outputs, as its last `follow` gave them, for what clients keep in any round.

    Raises:
      LeakError: something private reaches the state, or the metrics outside `diagnostics`, in another way.
    """
    program, rules = traced.program.jaxpr, traced.rules
    outputs = zip(followed, program.outvars, strict=True)
    leaves, left = jax.tree_util.tree_leaves_with_path(traced.out), NONE
    for (path, _), (labels, var) in zip(leaves, outputs, strict=True):
        name = _name(path)
        if rules.private(labels) | of(ClientState, labels) | of(key_labels.KeyLabel, labels):
            name += "".join(f" ({where(e)})" for e in program.eqns if var in e.outvars)
        rules.keep_keys(name, labels)
        if path[0].idx == 1 and getattr(path[1], "key", None) == "diagnostics":
            continue
        left |= labels
        theirs = path[0].idx == 0  # what they keep is there
        leaked = rules.private(labels) | (NONE if theirs else of(ClientState, labels))
        if leaked:
            raise LeakError(leak(name, leaked))
        rules.keep_random(name, labels, reserved=True)
    for mark in traced.marks:
        if isinstance(mark, Sum | Mean | Stored):
            name = f"{_OF_CLIENTS[type(mark)]} ({mark.line})"
            rules.keep_random(name, mark.labels, reserved=False)
    sums = tuple(mark for mark in traced.marks if isinstance(mark, Sum) and mark.times)
    means = tuple(mark for mark in traced.marks if isinstance(mark, Mean) and mark.times)
    capacities = tuple(mark.line for mark in traced.marks if isinstance(mark, Capacity))
    alone = rules.alone(sums, means, left)
    remembers = any(isinstance(mark, Stored) for mark in traced.marks)
    return Stage(sums, means, alone, traced.program, traced.prints, capacities, remembers)


_OF_CLIENTS = {
    Sum: "a client's message",
    Mean: "a private mean",
    Stored: "what a client keeps for itself",
}


def _secret(marks: Marks, sampler: AnySampler, unit: str) -> bool:
    """Whether the certificate counts on nobody's knowing who takes part."""
    drawn = sampler.accounting
    if unit == "record" or isinstance(drawn, Everyone | WithReplacement | MinimumSeparation):
        return False
    sums = [mark for mark in marks if isinstance(mark, Sum) and is_noisy(mark)]
    return any(
        not (release.local and isinstance(drawn, Poisson | RandomAllocation)) for release in sums
    )


def _name(path: Any) -> str:
    root = ("state", "metrics", "state")[path[0].idx]
    return root + jax.tree_util.keystr(path[1:])
