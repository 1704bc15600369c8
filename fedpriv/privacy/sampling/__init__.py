"""How units are drawn: samplings, and schedules that decide by the round, each a value that gives its own cases."""

from fedpriv.privacy.sampling.across_groups import AcrossGroups
from fedpriv.privacy.sampling.allocation import Allocation, RandomAllocation
from fedpriv.privacy.sampling.by_persons import ByPersons
from fedpriv.privacy.sampling.draw import (
    ADJACENCIES,
    NOT_REMEMBERED,
    NOT_SEVERAL,
    Accounting,
    Adjacency,
    Case,
    Cases,
    Neighbour,
    Sampling,
    Turns,
    Who,
    Why,
    check_sampling,
    told_law,
)
from fedpriv.privacy.sampling.everyone import Everyone, MinimumSeparation
from fedpriv.privacy.sampling.fixed_size import Dropping, FixedSize
from fedpriv.privacy.sampling.poisson import CyclicPoisson, Poisson
from fedpriv.privacy.sampling.with_replacement import WithReplacement

__all__ = [
    "ADJACENCIES",
    "NOT_REMEMBERED",
    "NOT_SEVERAL",
    "Accounting",
    "AcrossGroups",
    "Adjacency",
    "Allocation",
    "ByPersons",
    "Case",
    "Cases",
    "CyclicPoisson",
    "Dropping",
    "Everyone",
    "FixedSize",
    "MinimumSeparation",
    "Neighbour",
    "Poisson",
    "RandomAllocation",
    "Sampling",
    "Turns",
    "Who",
    "Why",
    "WithReplacement",
    "check_sampling",
    "told_law",
]

PROVED = (
    AcrossGroups,
    Allocation,
    ByPersons,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
)
"""Samplings that need no check, as they are fedpriv's own."""
