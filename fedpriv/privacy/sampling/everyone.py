"""Draws of all clients, or of all whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.core.arguments import Count, CountOrZero, LargeCount, check_fields, require
from fedpriv.pairs.curves import Floats
from fedpriv.privacy.sampling.protocol import DrawCase, ParticipationSchema, Sampling, once


@dataclass(frozen=True)
class Everyone(Sampling):
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

    @property
    def adjacency(self) -> None:
        """Any: nobody is drawn."""
        return None

    def cases(self) -> tuple[DrawCase, ...]:
        """One: the unit is there."""
        return (DrawCase(1.0, 1.0, 1.0),)

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """All of them are there."""
        return (DrawCase(1.0, 1.0, 1.0, ((float(units), 1.0),)),)

    def times_drawn(self) -> tuple[Floats, Floats]:
        """Once."""
        return once(1.0)

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """Nothing has to hold."""
        return ()

    @property
    def takes_all(self) -> bool:
        """It does."""
        return True

    @property
    def has_one_size(self) -> bool:
        """Every draw is of everyone."""
        return True

    @property
    def is_secret(self) -> bool:
        """There is nothing to be kept secret."""
        return False

    @property
    def stands_alone(self) -> bool:
        """Everybody is there."""
        return True

    @property
    def is_attained(self) -> bool:
        """It is the law of every unit."""
        return True

    @property
    def together(self) -> float:
        """Any two always are."""
        return 1.0

    @property
    def allows_empty_places(self) -> bool:
        """All records of a client are drawn, however many it holds."""
        return True

    def remembered(self) -> Everyone:
        """There is nothing to remember."""
        return self

    def as_schedule(self) -> MinimumSeparation:
        """Every round is everybody's."""
        return MinimumSeparation(self.population, self.population, 1)


@dataclass(frozen=True)
class MinimumSeparation(ParticipationSchema):
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
    def rate(self) -> float:
        """Share of the clients that the largest cohort holds."""
        return self.most / self.population

    @property
    def is_secret(self) -> bool:
        """Who takes part may be known."""
        return False

    @property
    def has_one_size(self) -> bool:
        """Where turns divide the clients, and nobody is through with its own."""
        return self.participations is None and self.most * self.separation == self.population

    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """In how many of `rounds` rounds a client takes part, at most."""
        fit = -(-rounds // self.separation)
        return fit if self.participations is None else min(fit, self.participations)

    @property
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is: all of them."""
        return Everyone(self.population)

    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a client's."""
        most = self.rounds_of_a_unit(rounds)
        return f"at most {most} of {rounds} rounds of a client, at least {self.separation} apart"
