"""How units are drawn: samplings, and schedules that decide by the round, each a value that gives its own cases."""

from fedpriv.privacy.sampling.allocation import Allocation, RandomAllocation
from fedpriv.privacy.sampling.everyone import Everyone, MinimumSeparation
from fedpriv.privacy.sampling.fixed_size import Dropping, FixedSize
from fedpriv.privacy.sampling.of_persons import ByPersons, PersonsDraw
from fedpriv.privacy.sampling.poisson import CyclicPoisson, Neighbour, Poisson
from fedpriv.privacy.sampling.protocol import (
    SELDOM,
    Accounting,
    Adjacency,
    DrawCase,
    ParticipationSchema,
    Sampling,
    check_law,
    once,
)
from fedpriv.privacy.sampling.with_replacement import WithReplacement

__all__ = [
    "SELDOM",
    "Accounting",
    "Adjacency",
    "Allocation",
    "ByPersons",
    "CyclicPoisson",
    "DrawCase",
    "Dropping",
    "Everyone",
    "FixedSize",
    "MinimumSeparation",
    "Neighbour",
    "ParticipationSchema",
    "PersonsDraw",
    "Poisson",
    "RandomAllocation",
    "Sampling",
    "WithReplacement",
    "check_law",
    "once",
]

PROVED = (
    Allocation,
    ByPersons,
    Dropping,
    Everyone,
    FixedSize,
    PersonsDraw,
    Poisson,
    WithReplacement,
)
"""Samplings whose laws need no check, as they are fedpriv's own."""
