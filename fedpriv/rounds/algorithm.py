"""What a federated algorithm is."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.callers import callers_line
from fedpriv.core.cards import Card, in_a_line
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, Metrics, Params, State
from fedpriv.core.user_functions import asked, both, gives
from fedpriv.data.federation import Federation
from fedpriv.privacy.certificate import Claim
from fedpriv.proof.seen import ClippedUnit
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.samplers import Opening, Sampler
from fedpriv.rounds.scheduled_samplers import AnySampler, ScheduledSampler
from fedpriv.rounds.sent import check_diagnostics


class ModelState(NamedTuple):
    """State of an algorithm that remembers only the model. Richer states also have these two fields.

    Attributes:
      params: the model.
      round: i32[], number of rounds done, for schedules.
    """

    params: Params
    round: jax.Array


def start(params: Params, federation: Federation) -> ModelState:
    """`Algorithm.init` of an algorithm that remembers only the model."""
    return ModelState(params, jnp.int32(0))


def unclaimed(rounds: int, delta: float) -> None:
    """`Algorithm.claim` of what no paper claims anything of, whatever the rounds and the probability delta."""


def claim_if_sampled(
    sampler: AnySampler, claim_of: Callable[[Sampler], Callable[[int, float], Claim | None]]
) -> Callable[[int, float], Claim | None]:
    """`claim_of` the sampler, by a formula for cohorts that are drawn in every round.

    None where a schedule decides, or where groups are drawn each in its own way.
    """
    if isinstance(sampler, ScheduledSampler) or sampler.accounting.group_names:
        return unclaimed
    return claim_of(sampler)


@checking_fields
class Algorithm(NamedTuple):
    """A federated algorithm. Everything that fedpriv offers needs no more than this.

    Attributes:
      init: (params, federation) -> state, a pytree with fields `params` and `round`.
      round: (key, state, cohort) -> (state, metrics); pure and jittable. It reaches clients through the `Cohort` alone.
        `metrics` are those of the cohort's call: `uplink` (the `Wire` of one client's message) and `diagnostics`
        (numbers that are not private and never released). Add `downlink` (the `Wire` of what a client receives) unless
        that is the model once, in 32 bits per value.
      sampler: draws the cohorts, or an `Opening`.
      unit: the privacy unit: "client" (all data of one client) or "record" (one example).
      claim: (rounds, delta) -> the paper's own epsilon, or None (the default).
      personal: (state, client i: i32[]) -> that client's own model; by default the shared one, `state.params`. A field
        `trained`, bool[clients], of the state tells evaluations who has trained its own.
    """

    init: Callable[[Params, Federation], State]
    round: Callable[[Key, State, Cohort], tuple[State, Metrics]]
    sampler: AnySampler | Opening
    unit: ClippedUnit = "client"
    claim: Callable[[int, float], Claim | None] = unclaimed
    personal: Callable[[State, jax.Array], Params] | None = None

    def __repr__(self) -> str:
        """What made the round, who takes part and what is protected: `Algorithm(round=fed_avg, ...)`."""
        said = f"round={made_by(self)}, sampler={_cohorts(self)}, unit={self.unit!r}"
        return in_a_line(f"Algorithm({said})")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = [("cohorts", str(_cohorts(self))), ("unit", self.unit)]
        rows += [("personal", "each client has a model of its own")] * (self.personal is not None)
        rows += [("made in", line)] if (line := made_at(self)) else []
        note = "It has no epsilon by itself: fp.certify(algorithm, params, federation, rounds, delta) proves one."
        return Card("Algorithm", made_by(self), rows, notes=[note]).html()


def _cohorts(algorithm: Algorithm) -> Any:
    """What is said of an algorithm's sampler."""
    return getattr(algorithm.sampler, "accounting", algorithm.sampler)


_MADE: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""By its round, the user's line that made an algorithm."""


def _with_the_line(make: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    @functools.wraps(make)
    def new(*args: Any, **fields: Any) -> Algorithm:
        algorithm = make(*args, **fields)
        if line := callers_line():
            with contextlib.suppress(TypeError):  # a round that cannot be a key
                _MADE.setdefault(algorithm.round, line)
        return algorithm

    return new


Algorithm.__new__ = _with_the_line(Algorithm.__new__)  # type: ignore[method-assign, assignment]


def made_at(algorithm: Algorithm) -> str | None:
    """The user's line that made the algorithm, or the first one of its round; None where it is not known."""
    with contextlib.suppress(TypeError):
        return _MADE.get(algorithm.round)
    return None


def made_by(algorithm: Algorithm) -> str:
    """The function that made the algorithm's round, such as `fed_avg`."""
    round: Any = algorithm.round
    return getattr(round, "__qualname__", type(round).__name__).partition(".<locals>")[0]


def require_algorithm(algorithm: Any) -> None:
    """Raises ValueError: it is no algorithm."""
    fits = isinstance(algorithm, Algorithm)
    require(fits, "algorithm", algorithm, "give one such as fp.fed_avg(...)")


def initial_state(algorithm: Algorithm, params: Params, federation: Federation) -> State:
    """What an algorithm's `init` gives back.

    Raises:
      ValueError: it is no function of these arguments, or does not return a state of arrays.
    """
    state = asked("init", algorithm.init, "(params, federation)", params, federation)
    check_state("init", algorithm.init, state)
    check_leaves("init: state", state)
    return state


def check_state(name: str, fn: Callable[..., Any], state: Any) -> None:
    """Raises ValueError: what a function gave back lacks a field of every state."""
    for field in ModelState._fields:
        gives(hasattr(state, field), name, fn, state, f"return a state with a field `{field}`")


def after_round(
    algorithm: Algorithm, key: Key, state: State, cohort: Cohort
) -> tuple[State, Metrics]:
    """What an algorithm's `round` gives back.

    Raises:
      ValueError: it is no function of these arguments, or does not return a state of arrays, and metrics.
    """
    fn = algorithm.round
    wants, returns = "(key, state, cohort)", "(state, metrics)"
    after, metrics = both("round", fn, wants, returns, key, state, cohort)
    # A state of two fields would unpack as well.
    gives(isinstance(metrics, dict), "metrics", fn, metrics, "return (state, metrics), a dict")
    check_leaves("round: state", after)
    check_diagnostics("metrics['diagnostics']", metrics.get("diagnostics", {}))
    check_leaves("metrics", metrics)
    return after, metrics
