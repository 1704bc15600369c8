"""What a round releases, read off its program; and that nothing else leaves the clients.

The program is the one that runs. Marks in it say where private data come from and where a mechanism has perturbed them;
one client stands for all. Labels of private data are followed (`information_flow`); one that
reaches the state or the metrics past all releases is a leak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.information_flow import propagate, where
from fedpriv.certification.known_operations import lines_that_print
from fedpriv.certification.rules import Rules
from fedpriv.compression.codecs import Wire
from fedpriv.core.jaxprs import constant_outputs
from fedpriv.core.trees import same_structure
from fedpriv.core.types import State
from fedpriv.core.user_functions import line_of
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.models.example_checks import ExampleError
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.marks import Marks, Mean, Stored, Sum
from fedpriv.rounds.privacy_labels import (
    NONE,
    TAKING_PART,
    ClientState,
    Hidden,
    Labels,
    Private,
    Protected,
    leak,
    of_kind,
)
from fedpriv.rounds.round_arguments import FederationShape
from fedpriv.rounds.round_program import Arguments, RoundProgram, program_of_round
from fedpriv.rounds.scheduled_samplers import AnySampler


class TracedProgram(NamedTuple):
    """A round with one sampler, traced.

    Attributes:
      of: its program, with the marks in it.
      rules: by which labels pass.
      prints: lines that print something of a round.
    """

    of: RoundProgram
    rules: Rules
    prints: tuple[str, ...]

    def propagate(self, kept: Sequence[Labels]) -> list[Labels]:
        """The labels of its outputs, for those that leaves of the state have of what clients keep."""
        given = jax.tree.map(lambda _: NONE, self.of.like.given)
        hidden: Any = frozenset({Hidden()})
        members: Any = frozenset({Private(TAKING_PART, -1, "the engine")})
        key: Any = NONE
        arguments = Arguments(given._replace(hidden=hidden, members=members), key, list(kept))
        return propagate(self.of.program.jaxpr, jax.tree.leaves(arguments), self.rules)


class Stage(NamedTuple):
    """What a round with one sampler releases.

    Attributes:
      sums, means: the cohort's sums, and the private means of a client's records.
      of, prints: as `TracedProgram`.
      remembers: whether clients keep something for themselves.
      uplink: bits of a client's messages, as the round reports them; None where it computes them from something that is
        given to it, infinity where it reports none.
    """

    sums: tuple[Sum, ...]
    means: tuple[Mean, ...]
    of: RoundProgram
    prints: tuple[str, ...]
    remembers: bool
    uplink: float | None

    @property
    def program(self) -> ClosedJaxpr:
        """Of the round."""
        return self.of.program

    @property
    def releases(self) -> tuple[Sum | Mean, ...]:
        """The sums, then the means."""
        return (*self.sums, *self.means)


def traced_program(
    algorithm: Algorithm, sampler: AnySampler, shape: FederationShape, state: State
) -> TracedProgram:
    """Traces the round with cohorts of `sampler`, as one program.

    Args:
      state: shapes.

    Raises:
      ValueError: operations that are not known; records that the model cannot take; another structure of the state; as
        `program_of_round`.
    """
    try:
        of = program_of_round(algorithm, sampler, shape, state)
    except ExampleError as error:
        raise ValueError(f"federation: {error}") from None
    if not same_structure(of.out.state, state):
        remedy = f"{line_of(algorithm.round)}; return the structure that `init` gave"
        raise ValueError(f"round: the state's structure changes{remedy}")
    rules = Rules(of.marks, Protected(algorithm.unit, _secret(of.marks, sampler, algorithm.unit)))
    return TracedProgram(of, rules, lines_that_print(of.program, "round"))


def kept_by_clients(before: Sequence[Labels], after: Sequence[Labels]) -> list[Labels]:
    """The labels that leaves of the state have of what clients keep, before a round or after it."""
    return [one | of_kind(ClientState, other) for one, other in zip(before, after, strict=False)]


def stage_of(traced: TracedProgram, followed: Sequence[Labels]) -> Stage:
    """What the round releases, once nothing else of the clients leaves it.

    Args:
      followed: labels of the round's outputs, as its last `propagate` gave them, for what clients keep in any round.

    Raises:
      LeakError: something private reaches the state, or the metrics outside `diagnostics`, in another way.
    """
    program, rules = traced.of.program.jaxpr, traced.rules
    outputs = zip(followed, program.outvars, strict=True)
    leaves = jax.tree_util.tree_leaves_with_path(traced.of.out)
    for (path, _), (labels, var) in zip(leaves, outputs, strict=True):
        if path[0].name == "not_finite" or _is_metric(path, "diagnostics"):
            continue
        leaked = rules.protected.private(labels) | of_kind(Hidden, labels)
        if path[0].name != "state":  # what clients keep is there
            leaked |= of_kind(ClientState, labels)
        if leaked:
            places = (f" ({where(e)})" for e in program.eqns if var in e.outvars)
            raise leak(_name(path) + "".join(places), leaked)
    sums = tuple(mark for mark in rules.marks if isinstance(mark, Sum) and mark.happens)
    means = tuple(mark for mark in rules.marks if isinstance(mark, Mean) and mark.happens)
    remembers = any(isinstance(mark, Stored) for mark in rules.marks)
    uplink = _uplink(traced)
    return Stage(sums, means, traced.of, traced.prints, remembers, uplink)


def _uplink(traced: TracedProgram) -> float | None:
    """As `Stage.uplink`."""
    if not isinstance(traced.of.out.metrics.get("uplink"), Wire):
        return math.inf
    paths = (path for path, _ in jax.tree.leaves_with_path(traced.of.out))
    asked = [_is_metric(path, "uplink") for path in paths]
    found = constant_outputs(traced.of.program, asked)
    return None if found is None else Wire(*map(int, found)).bits()


def _secret(marks: Marks, sampler: AnySampler, unit: str) -> bool:
    """Whether the certificate counts on nobody's knowing who takes part."""
    drawn = sampler.accounting
    if unit == "record" or not drawn.secret:
        return False
    sums = [mark for mark in marks if isinstance(mark, Sum)]
    if noisy := [each.step for each in sums if each.step.is_noisy]:
        own_is_known = drawn.of_a_round.known_by_noise
        return any(not (step.adder == "own" and own_is_known) for step in noisy)
    bare = any(each.step.mechanism is not ALREADY_PRIVATE for each in sums)  # nothing is certified
    known = any(isinstance(mark, Mean) and mark.step.is_noisy for mark in marks)
    return not (bare or known)


def _is_metric(path: Any, name: str) -> bool:
    return path[0].name == "metrics" and getattr(path[1], "key", None) == name


def _name(path: Any) -> str:
    root = "metrics" if path[0].name == "metrics" else "state"
    return root + jax.tree_util.keystr(path[1:])
