"""Groups of clients that take turns, each with a Poisson draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedpriv.core.arguments import Count, LargeCount, Rate, check_fields
from fedpriv.core.complaints import require
from fedpriv.privacy.sampling.turns import Schedule, Turns
from fedpriv.proof.samplings import Poisson


@dataclass(frozen=True)
class CyclicPoisson(Schedule):
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
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.of_a_round.most

    @property
    def of_a_round(self) -> Poisson:
        """The draw of those whose turn it is."""
        return Poisson(self.population // self.groups, self.rate, self.capacity)

    @property
    def turns(self) -> Turns:  # type: ignore[override]
        """Columns of a client's turns, of so many bands, have no row in common."""
        words = f"{{turns}} turns of a client in {{rounds}} rounds, {self.groups} apart"
        return Turns(self.groups, words, bands=self.groups)

    @property
    def classes(self) -> tuple[str, ...]:
        """By whose turn it is at once."""
        return tuple(str(i % self.groups) for i in range(self.population))

    def turn(self, units: Any, t: Any) -> Any:
        """Client i's is in rounds i modulo b."""
        return units % self.groups == t % self.groups
