"""The few types everything else is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax

if TYPE_CHECKING:
    from fedpriv.federation import Federation
    from fedpriv.privacy.release import Claim, Release

Key: TypeAlias = jax.Array
PyTree: TypeAlias = Any
Params: TypeAlias = PyTree
Example: TypeAlias = PyTree
State: TypeAlias = Any
Metrics: TypeAlias = dict[str, Any]
LossFn: TypeAlias = Callable[[Params, Example], jax.Array]
"""Loss of ONE example; batching is `vmap`."""


class ModelState(NamedTuple):
    """State of an algorithm that remembers nothing but the model. Richer states also have these two fields.

    Attributes:
      params: the model.
      round: i32[], number of rounds done, for schedules.
    """

    params: Params
    round: jax.Array


def unclaimed(rounds: int, delta: float) -> None:
    """`Algorithm.claim` of what no paper claims anything of, whatever the rounds and the probability delta."""


class Algorithm(NamedTuple):
    """A federated algorithm; everything the laboratory offers needs no more than these functions.

    Attributes:
      init: (params, federation) -> state, a pytree with a field `params`.
      round: (key, state, federation) -> (state, metrics); pure and jittable. `metrics` holds `cohort_size` (i32[],
        clients that took part), `uplink` (`Wire` of one client's message), where it is not the model once in 32 bits
        per value `downlink` (of what a client receives), and, under `diagnostics`, numbers that are not private and
        never part of what is released.
      releases: (rounds) -> what each view sees in that many rounds; host side, independent of the data.
      claim: (rounds, delta) -> the paper's own epsilon, or None; by default None.
    """

    init: Callable[[Params, Federation], State]
    round: Callable[[Key, State, Federation], tuple[State, Metrics]]
    releases: Callable[[int], tuple[Release, ...]]
    claim: Callable[[int, float], Claim | None] = unclaimed
