"""How units are drawn: samplings, and schedules that decide by the round, each a value that gives its own cases."""

from fedpriv.privacy.sampling.across_groups import AcrossGroups
from fedpriv.privacy.sampling.allocation import Allocation, RandomAllocation
from fedpriv.privacy.sampling.by_persons import ByPersons
from fedpriv.privacy.sampling.cyclic_poisson import CyclicPoisson
from fedpriv.privacy.sampling.dropping import Dropping
from fedpriv.privacy.sampling.kinds_of_units import (
    NOT_REMEMBERED,
    NOT_SEVERAL,
    Case,
    Who,
)
from fedpriv.privacy.sampling.minimum_separation import MinimumSeparation
from fedpriv.privacy.sampling.own import PROVED, check_sampling
from fedpriv.privacy.sampling.turns import Accounting, Schedule, Turns
from fedpriv.privacy.sampling.with_replacement import WithReplacement
from fedpriv.proof.cases import ADJACENCIES, Adjacency, Cases, Neighbour, Why
from fedpriv.proof.draws import Sampling, told_law
from fedpriv.proof.samplings import Everyone, FixedSize, Poisson

__all__ = [
    "ADJACENCIES",
    "NOT_REMEMBERED",
    "NOT_SEVERAL",
    "PROVED",
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
    "Schedule",
    "Turns",
    "Who",
    "Why",
    "WithReplacement",
    "check_sampling",
    "told_law",
]
