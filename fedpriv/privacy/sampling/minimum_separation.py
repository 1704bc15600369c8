"""Draws of all whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.core.arguments import Count, LargeCount, check_fields
from fedpriv.core.complaints import require
from fedpriv.privacy.sampling.turns import Schedule, Turns
from fedpriv.proof.draws import Sampling
from fedpriv.proof.samplings import Everyone


@dataclass(frozen=True)
class MinimumSeparation(Schedule):
    """Rounds of a client are at least `separation` apart, and at most `participations` in all; they are no secret.

    Attributes:
        population: number of clients.
        most: clients of the largest cohort.
        separation: b; 1 where a client may take part in consecutive rounds.
        participations: k; None: as many as the separation allows.

    Raises:
        ValueError: a number below 1; more clients in a round than there are.
    """

    population: LargeCount
    most: LargeCount
    separation: Count
    participations: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = f"give at most the population, {self.population}"
        require(self.most <= self.population, "most", self.most, remedy)

    @property
    def full(self) -> bool:  # type: ignore[override]
        """Where turns divide the clients, and nobody is through with its own."""
        return self.participations is None and self.most * self.separation == self.population

    @property
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is: all of them."""
        return Everyone(self.population)

    @property
    def turns(self) -> Turns:  # type: ignore[override]
        """As far apart as it says."""
        words = (
            f"at most {{turns}} of {{rounds}} rounds of a client, at least {self.separation} apart"
        )
        return Turns(self.separation, words, self.participations)
