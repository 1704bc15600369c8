"""What a round releases, read off its program; and that nothing else leaves the clients.

The round is traced with a cohort in which one client stands for all. Marks in the program say where private data come
from and where a mechanism has perturbed them. Labels of private data are followed (`information_flow`); one that
reaches the state or the metrics past all releases is a leak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.information_flow import NONE, Labels, propagate, trace_program, where
from fedpriv.certification.known_operations import lines_that_print
from fedpriv.certification.marked_cohort import FederationShape, MarkedCohort
from fedpriv.certification.marks import Marks, Mean, Stored, Sum
from fedpriv.certification.privacy_labels import ClientState, Hidden, Protected, leak, of_kind
from fedpriv.certification.rules import Rules
from fedpriv.compression.codecs import Wire
from fedpriv.core.jaxprs import constant_outputs
from fedpriv.core.trees import same_structure
from fedpriv.core.types import Key, Metrics, State
from fedpriv.core.user_functions import line_of
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.models.example_checks import ExampleError
from fedpriv.rounds.algorithm import Algorithm, ModelState, after_round
from fedpriv.rounds.noise_stream import THREEFRY, NoiseStream
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler, answers_drawn


class TracedProgram(NamedTuple):
    """A round with one sampler, traced.

    Attributes:
      program: (hidden key of the round, key, state, rounds done) -> (state, metrics, what of the state is released),
        its leaves.
      out: shapes of these.
      rules: by which labels pass, with the marks in the program.
      calls: of the cohort, in plain values.
      prints: lines that print something of a round.
      answer: what the sampler's draws say of members' answers, in shapes.
    """

    program: ClosedJaxpr
    out: tuple[State, Metrics, ModelState]
    rules: Rules
    calls: tuple[Any, ...]
    prints: tuple[str, ...]
    answer: Answer

    def propagate(self, kept: Sequence[Labels]) -> list[Labels]:
        """The labels of its outputs, for those that leaves of the state have of what clients keep."""
        return propagate(self.program.jaxpr, [frozenset({Hidden()}), NONE, *kept, NONE], self.rules)


class Stage(NamedTuple):
    """What a round with one sampler releases.

    Attributes:
      sums, means: the cohort's sums, and the private means of a client's records.
      program, calls, prints, answer: as `TracedProgram`.
      remembers: whether clients keep something for themselves.
      uplink: bits of a client's messages, as the round reports them; None where it computes them from something that is
        given to it, infinity where it reports none.
    """

    sums: tuple[Sum, ...]
    means: tuple[Mean, ...]
    program: ClosedJaxpr
    calls: tuple[Any, ...]
    prints: tuple[str, ...]
    answer: Answer
    remembers: bool
    uplink: float | None

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
      ValueError: operations that are not known; records that the model cannot take; calls of the cohort that could be
        repeated; and whatever the round itself raises.
    """
    marks: Marks = []
    calls: list[Any] = []

    def run(hidden: Key, key: Key, state: State, t: jax.Array) -> tuple[State, Metrics, ModelState]:
        stream = NoiseStream(hidden)
        cohort = MarkedCohort(t, shape, sampler, stream, marks)
        after, metrics = after_round(algorithm, key, state, cohort)
        stream.end()
        calls[:] = stream.told
        if not same_structure(after, state):
            remedy = f"{line_of(algorithm.round)}; return the structure that `init` gave"
            raise ValueError(f"round: the state's structure changes{remedy}")
        # Asked for as the engine asks: they may be no leaves of their own, or leaves without a name.
        return after, metrics, ModelState(after.params, after.round)

    hidden = jax.eval_shape(lambda: jax.random.key(0, impl=THREEFRY))
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        program, out = trace_program(run, hidden, key, state, jnp.int32(0))
    except ExampleError as error:
        raise ValueError(f"federation: {error}") from None
    rules = Rules(marks, Protected(algorithm.unit, _secret(marks, sampler, algorithm.unit)))
    prints = lines_that_print(program, "round")
    return TracedProgram(program, out, rules, tuple(calls), prints, answers_drawn(sampler))


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
    program, rules = traced.program.jaxpr, traced.rules
    outputs = zip(followed, program.outvars, strict=True)
    leaves = jax.tree_util.tree_leaves_with_path(traced.out)
    for (path, _), (labels, var) in zip(leaves, outputs, strict=True):
        if path[0].idx == 1 and getattr(path[1], "key", None) == "diagnostics":
            continue
        leaked = rules.protected.private(labels) | of_kind(Hidden, labels)
        if path[0].idx != 0:  # what clients keep is in the state
            leaked |= of_kind(ClientState, labels)
        if leaked:
            places = (f" ({where(e)})" for e in program.eqns if var in e.outvars)
            raise leak(_name(path) + "".join(places), leaked)
    sums = tuple(mark for mark in rules.marks if isinstance(mark, Sum) and mark.happens)
    means = tuple(mark for mark in rules.marks if isinstance(mark, Mean) and mark.happens)
    remembers = any(isinstance(mark, Stored) for mark in rules.marks)
    uplink = _uplink(traced)
    told = traced.program, traced.calls, traced.prints, traced.answer
    return Stage(sums, means, *told, remembers, uplink)


def _uplink(traced: TracedProgram) -> float | None:
    """As `Stage.uplink`."""
    if not isinstance(traced.out[1].get("uplink"), Wire):
        return math.inf
    paths = (path for path, _ in jax.tree.leaves_with_path(traced.out))
    asked = [p[0].idx == 1 and getattr(p[1], "key", None) == "uplink" for p in paths]
    found = constant_outputs(traced.program, asked)
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


def _name(path: Any) -> str:
    root = ("state", "metrics", "state")[path[0].idx]
    return root + jax.tree_util.keystr(path[1:])
