"""Which rounds a client may take part in, where the sampler decides that by the round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedpriv.core.arguments import Count, CountOrZero, LargeCount, Rate, check_fields, require
from fedpriv.privacy.sampling.allocation import Allocation
from fedpriv.privacy.sampling.poisson import Poisson
from fedpriv.privacy.sampling.protocol import ParticipationSchema


@dataclass(frozen=True)
class CyclicPoisson(ParticipationSchema):
    """Clients are in `groups` of one size, which take turns; members of a group join at `rate`, as `Poisson`.

    C. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", NeurIPS 2023, Algorithm 2.

    Attributes:
        population: number of clients.
        groups: b; a client's turn comes every b rounds.
        rate: probability that a client joins when it is its turn.
        capacity: as `Poisson`, of the group.

    Raises:
        ValueError: a number below 1, a rate outside (0, 1], or groups that do not divide the population.
    """

    population: LargeCount
    groups: Count
    rate: Rate
    capacity: LargeCount | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        equal = self.population % self.groups == 0
        remedy = f"give a number that divides the population, {self.population}"
        require(equal, "groups", self.groups, remedy)

    @property
    def separation(self) -> int:
        """Rounds from one turn to the next."""
        return self.groups

    @property
    def most_bands(self) -> int:
        """So many that the columns of a client's turns have no row in common."""
        return self.groups

    def turn(self, units: Any, t: Any) -> Any:
        """Client i's is in rounds i modulo b."""
        return units % self.groups == t % self.groups

    @property
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.of_a_round.most

    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """How many of `rounds` rounds are a client's turn, at most."""
        return -(-rounds // self.groups)

    @property
    def of_a_round(self) -> Poisson:
        """The draw of those whose turn it is."""
        return Poisson(self.population // self.groups, self.rate, self.capacity)

    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a client's."""
        turns = self.rounds_of_a_unit(rounds)
        return f"{turns} turns of a client in {rounds} rounds, {self.groups} apart"


@dataclass(frozen=True)
class RandomAllocation(ParticipationSchema):
    """Each client takes part once in every block of rounds, in a round of it that is drawn at random.

    V. Feldman, M. Shenfeld, "Privacy amplification by random allocation", 2025.

    Attributes:
        population: number of clients.
        block: b, number of rounds of a block.
        capacity: as `Allocation`, of a round.

    Raises:
        ValueError: a number below 1.
    """

    population: LargeCount
    block: Count
    capacity: LargeCount | None = None
    not_by_hand = "use fp.random_allocation"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def block_rounds(self) -> int:
        """Those of a block."""
        return self.block

    @property
    def joining(self) -> float:
        """Any round of a block is as likely."""
        return 1 / self.block

    def turn(self, units: Any, t: Any) -> Any:
        """Any round may be everybody's."""
        return units >= 0

    @property
    def separation(self) -> int:
        """Fewest rounds between two of a client: the last of a block and the first of the next are neighbours."""
        return 1

    @property
    def window(self) -> int:
        """Of a block, one round is a client's."""
        return self.block

    @property
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.of_a_round.most

    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """How many blocks the first `rounds` rounds have; of the last one may see a part."""
        return -(-rounds // self.block)

    @property
    def of_a_round(self) -> Allocation:
        """The draw of a block."""
        return Allocation(self.population, self.block, self.capacity)

    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a client's."""
        return f"one round of a client in each of {self.rounds_of_a_unit(rounds)} blocks of {self.block} rounds"
