"""What a round with one sampler releases, and what goes with it: what it prints, keeps and reports to have sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.views import tells_who
from fedpriv.compression.codecs import Wire
from fedpriv.core.complaints import require
from fedpriv.core.interpreted import constant_outputs
from fedpriv.core.trees import same_structure
from fedpriv.core.types import State
from fedpriv.core.user_functions import line_of
from fedpriv.models.example_checks import ExampleError
from fedpriv.proof.labels import Protected
from fedpriv.proof.marks import Sum
from fedpriv.proof.trace import Shown, shown
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.cohort_program import CohortProgram, program_of_round
from fedpriv.rounds.own_state import Stored
from fedpriv.rounds.record_marks import Mean, ProtectedRecords
from fedpriv.rounds.round_arguments import FederationShape
from fedpriv.rounds.scheduled_samplers import AnySampler


class Stage(NamedTuple):
    """What a round with one sampler releases.

    Attributes:
      sums, means: the cohort's sums, and the private means of a client's records.
      of: its program, with the marks in it.
      protected: what it protects.
      prints: lines that print something of a round.
      remembers: whether clients keep something for themselves.
      doors: as `Shown.doors`.
      uplink: bits of a client's messages, as the round reports them; None where it computes them from something that is
        given to it, infinity where it reports none.
    """

    sums: tuple[Sum, ...]
    means: tuple[Mean, ...]
    of: CohortProgram
    protected: Protected
    prints: tuple[str, ...]
    remembers: bool
    uplink: float | None
    doors: tuple[str, ...]

    @property
    def program(self) -> ClosedJaxpr:
        """Of the round."""
        return self.of.program

    @property
    def releases(self) -> tuple[Sum | Mean, ...]:
        """The sums, then the means."""
        return (*self.sums, *self.means)

    @property
    def is_fedprivs(self) -> bool:
        """Whether all that says how labels pass is of fedpriv, and nothing is somebody's word."""
        return all(door.split(": ")[1].startswith("fedpriv.") for door in self.doors)


@dataclass(frozen=True)
class KnownCohorts(Protected):
    """Whole clients are protected, and no certificate counts on nobody's knowing who takes part."""

    @property
    def secret(self) -> bool:
        """As `Protected`."""
        return False


def stages_of(
    algorithm: Algorithm, samplers: Sequence[AnySampler], shape: FederationShape, state: State
) -> tuple[Stage, ...]:
    """The releases of the round with each of the samplers.

    Args:
      state: shapes.

    Raises:
      ValueError: operations that are not known; records that the model cannot take; another structure of the state; as
        `program_of_round`.
      LeakError: as `shown`.
    """
    rounds = [_traced(algorithm, sampler, shape, state) for sampler in samplers]
    return tuple(map(_stage, rounds, shown(rounds)))


def _traced(
    algorithm: Algorithm, sampler: AnySampler, shape: FederationShape, state: State
) -> tuple[CohortProgram, Protected]:
    try:
        of = program_of_round(algorithm, sampler, shape, state)
    except ExampleError as error:
        raise ValueError(f"federation: {error}") from None
    if not same_structure(of.out.state, state):
        remedy = f"{line_of(algorithm.round)}; return the structure that `init` gave"
        raise ValueError(f"round: the state's structure changes{remedy}")
    return of, _protected(of, sampler, algorithm.unit)


def _stage(traced: tuple[CohortProgram, Protected], of_it: Shown) -> Stage:
    of, protected = traced
    releases, prints, doors = of_it
    sums = tuple(each for each in releases if isinstance(each, Sum))
    means = tuple(each for each in releases if isinstance(each, Mean))
    known = len(sums) + len(means) == len(releases)
    remedy = "of its kind of release nothing is certified; give one of a sum, or of a private mean"
    require(known, "round", releases, remedy)
    remembers = any(isinstance(mark, Stored) for mark in of.marks)
    return Stage(sums, means, of, protected, prints, remembers, _uplink(of), doors)


def _uplink(of: CohortProgram) -> float | None:
    """As `Stage.uplink`."""
    if not isinstance(of.out.metrics.get("uplink"), Wire):
        return math.inf
    paths = (path for path, _ in jax.tree.leaves_with_path(of.out))
    asked = [_is_uplink(path) for path in paths]
    found = constant_outputs(of.program, asked)
    return None if found is None else Wire(*map(int, found)).bits()


def _is_uplink(path: Any) -> bool:
    return path[0].name == "metrics" and getattr(path[1], "key", None) == "uplink"


def _protected(of: CohortProgram, sampler: AnySampler, unit: str) -> Protected:
    """What the certificate protects: who takes part, too, where it counts on that."""
    drawn = sampler.accounting
    if unit == "record":
        return ProtectedRecords(drawn)
    sums = [mark for mark in of.marks if isinstance(mark, Sum)]
    if noisy := [each for each in sums if each.step.is_noisy]:
        own = (each.step.adder == "own" and tells_who(drawn.of_a_round, each) for each in noisy)
        known = all(own)
    else:  # of bare sums nothing is certified
        bare = any(not each.step.passes_on for each in sums)
        known = bare or any(isinstance(mark, Mean) and mark.step.is_noisy for mark in of.marks)
    return KnownCohorts(drawn) if drawn.secret and known else Protected(drawn)
