"""How one round's cohort is drawn, as the accountant sees it; rounds draw independently of one another and of data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from fedpriv.core.arguments import Count, Decay, LargeCount, Rate, check_fields, require
from fedpriv.privacy.curves import Floats


@dataclass(frozen=True)
class Everyone:
    """All `population` clients take part in every round; there is no amplification by sampling.

    Raises:
        ValueError: a population below 1.
    """

    population: LargeCount

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def most(self) -> int:
        """Most units that one draw can hold."""
        return self.population

    @property
    def rate(self) -> float:
        """Probability that a given client takes part in a round: 1."""
        return 1.0


@dataclass(frozen=True)
class FixedSize:
    """A cohort of exactly `size` of the `population` clients, uniform without replacement.

    Raises:
        ValueError: a size below 1 or above the population.
    """

    population: LargeCount
    size: LargeCount

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = f"give at most the population, {self.population}"
        require(self.size <= self.population, "size", self.size, remedy)

    @property
    def most(self) -> int:
        """Most units that one draw can hold."""
        return self.size

    @property
    def rate(self) -> float:
        """Probability that a given client takes part in a round: size / population."""
        return self.size / self.population


@dataclass(frozen=True)
class Dropping(FixedSize):
    """A cohort of fixed size whose members vanish after they were drawn, independently of one another and of data.

    Attributes:
        dropout: p, the probability that a member vanishes.
        noise_is_lost: whether each of the s = `size` members adds 1 / s of the noise's variance, and the shares of
            those that vanish are missing; else the noise is whole, whoever vanishes.

    Raises:
        ValueError: as `FixedSize`, or a probability outside [0, 1).
    """

    dropout: Decay = 0.0
    noise_is_lost: bool = False

    @property
    def rate(self) -> float:
        """Probability that a given client takes part in a round and stays: (1 - p) size / population."""
        return (1 - self.dropout) * self.size / self.population

    def __repr__(self) -> str:
        """Without the digits by which a multiple of 2^-32 differs from what was meant."""
        p = round(self.dropout, 9)
        size = f"population={self.population}, size={self.size}"
        return f"Dropping({size}, dropout={p}, noise_is_lost={self.noise_is_lost})"


Neighbour: TypeAlias = Literal["removed", "remembered", "emptied", "replaced"]
"""Of a data set: without one unit; the same, among units that remember when they were drawn; with an empty place where
it was; with another unit in its place."""


class _Cut:
    """What draws of a random size have in common: a cohort above the capacity is cut down."""

    population: LargeCount
    capacity: LargeCount | None

    @property
    def most(self) -> int:
        """Most units that one draw, or a round of it, can hold."""
        return self.population if self.capacity is None else min(self.capacity, self.population)

    @property
    def can_be_cut(self) -> bool:
        """Whether a cohort can exceed the capacity."""
        return self.capacity is not None and self.capacity < self.population


@dataclass(frozen=True)
class Poisson(_Cut):
    """Each of the `population` clients joins with probability `rate`, independently of the others.

    A cohort above `capacity`, the number of slots that the simulator has, is cut down to a uniformly random subset,
    which is accounted for. `None`: no cut. `rate` is the probability of joining before the cut.

    Where a client's records are drawn, `population` is a number of places, of which the client fills as many as it has
    records; empty places are drawn, too.

    Attributes:
        neighbour: what is hidden: that a unit is removed from a population that shrinks, that its place is empty, or
            that another stands there. Where units remember when they were drawn, one that makes room in a cut gives
            away who took its place.

    Raises:
        ValueError: a population or capacity below 1, or a rate outside (0, 1].
    """

    population: LargeCount
    rate: Rate
    capacity: LargeCount | None = None
    neighbour: Neighbour = field(default="removed", repr=False)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Allocation(_Cut):
    """A block of rounds, in one of which each of the `population` clients takes part: any with the same probability.

    Clients draw their rounds independently of one another. A cohort above `capacity` is cut down to a uniformly random
    subset, which is accounted for; those who are left out take part in no round of the block. `None`: no cut.

    Attributes:
        block: b, number of rounds.
        neighbour: as `Poisson`: "removed", or "remembered" where units remember when they were drawn.

    Raises:
        ValueError: a number below 1.
    """

    population: LargeCount
    block: Count
    capacity: LargeCount | None = None
    neighbour: Neighbour = field(default="removed", repr=False)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def rate(self) -> float:
        """Probability that a given client takes part in a block, unless it is left out in a cut: 1."""
        return 1.0


@dataclass(frozen=True)
class WithReplacement:
    """`size` draws with replacement among the `population` clients, each draw a client with a fixed probability.

    A client that is drawn several times sends the same message, which counts as often. `largest` is the largest of the
    clients' probabilities; the accounting is a bound for all others, who are drawn stochastically less often.

    Raises:
        ValueError: a population or size below 1, or `largest` outside [1 / population, 1].
    """

    population: LargeCount
    size: LargeCount
    largest: Rate

    def __post_init__(self) -> None:
        check_fields(self)
        least = 1 / self.population - 1e-12
        remedy = f"give a probability in [1 / population = {least:.3g}, 1]"
        require(self.largest >= least, "largest", self.largest, remedy)

    @property
    def most(self) -> int:
        """Most units that one draw can hold."""
        return self.size

    @property
    def rate(self) -> float:
        """Probability that the likeliest client takes part in a round: 1 - (1 - largest)^size."""
        return -math.expm1(self.size * math.log1p(-self.largest)) if self.largest < 1 else 1.0


Sampling = Everyone | FixedSize | Poisson | Allocation | WithReplacement
"""How units are drawn, once in each round."""


def loses_noise(sampling: object) -> bool:
    """Whether shares of the noise are lost with members of a cohort that vanish."""
    return isinstance(sampling, Dropping) and sampling.noise_is_lost


def times_drawn(sampling: Sampling) -> tuple[Floats, Floats]:
    """(n, their probabilities, f64[k] both): how often one draw holds a unit, the likeliest one."""
    if not isinstance(sampling, WithReplacement):
        return np.arange(2.0), np.array([1 - sampling.rate, sampling.rate])
    from scipy.stats import binom

    n = np.arange(sampling.size + 1)
    return n.astype(float), binom.pmf(n, sampling.size, sampling.largest)


def most_often(sampling: Sampling) -> int:
    """How often one draw can hold a unit."""
    return sampling.size if isinstance(sampling, WithReplacement) else 1


def takes_all(sampling: Sampling) -> bool:
    """Whether every unit is in every draw, however that is said: `FixedSize(n, n)`, `Poisson(n, 1)`, ..."""
    if isinstance(sampling, Allocation):
        return sampling.block == 1 and not sampling.can_be_cut
    return sampling.rate == 1 and not (isinstance(sampling, Poisson) and sampling.can_be_cut)
