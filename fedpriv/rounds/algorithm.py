"""What a federated algorithm is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.core.types import Key, Metrics, Params, State
from fedpriv.data.federation import Federation
from fedpriv.privacy.release import Claim, Release
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.samplers import Opening, Sampler


class ModelState(NamedTuple):
    """State of an algorithm that remembers nothing but the model. Richer states also have these two fields.

    Attributes:
      params: the model.
      round: i32[], number of rounds done, for schedules.
    """

    params: Params
    round: jax.Array


def start(params: Params, federation: Federation) -> ModelState:
    """`Algorithm.init` of what remembers nothing but the model."""
    return ModelState(params, jnp.int32(0))


def unclaimed(rounds: int, delta: float) -> None:
    """`Algorithm.claim` of what no paper claims anything of, whatever the rounds and the probability delta."""


class Algorithm(NamedTuple):
    """A federated algorithm; everything the laboratory offers needs no more than this.

    Attributes:
      init: (params, federation) -> state, a pytree with fields `params` and `round`.
      round: (key, state, cohort) -> (state, metrics); pure and jittable. The `Cohort` alone reaches clients.
        `metrics` are those of the cohort's call: `uplink` (`Wire` of one client's message), where it is not the model
        once in 32 bits per value `downlink` (of what a client receives), and, under `diagnostics`, numbers that are not
        private and never part of what is released.
      sampler: draws the cohorts, or an `Opening`.
      unit: what is protected, "client" (all data of one client) or "record" (one example).
      claim: (rounds, delta) -> the paper's own epsilon, or None; by default None.
      releases: (rounds) -> what each view sees in that many rounds, declared by hand; by default it is read off the
        round.
    """

    init: Callable[[Params, Federation], State]
    round: Callable[[Key, State, Cohort], tuple[State, Metrics]]
    sampler: Sampler | Opening
    unit: Literal["client", "record"] = "client"
    claim: Callable[[int, float], Claim | None] = unclaimed
    releases: Callable[[int], tuple[Release, ...]] | None = None

    def __repr__(self) -> str:
        """What made the round, who takes part and what is protected: `Algorithm(round=fed_avg, ...)`."""
        made = getattr(self.round, "__qualname__", type(self.round).__name__)
        name = made.partition(".<locals>")[0]
        sampler = getattr(self.sampler, "accounting", self.sampler)
        return f"Algorithm(round={name}, sampler={sampler}, unit={self.unit!r})"
