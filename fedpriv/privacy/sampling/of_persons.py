"""The draws of several units that are one person's: clients of a cohort, or records of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.core.arguments import Count, LargeCount, check_fields, require
from fedpriv.pairs.curves import Floats
from fedpriv.privacy.sampling.protocol import Adjacency, DrawCase, Sampling


@dataclass(frozen=True, repr=False)
class PersonsDraw(Sampling):
    """Draws by `drawn` of `units` that are one person's, as a public assignment says.

    Attributes:
        drawn: the draws of single units.
        units: how many are the person's.
        apart: whether each unit carries noise of its own, which alone is counted: n units are as far as sqrt(n), as n
            Gaussian releases of one unit each.
        known: whether the view is taken to know how many of them are drawn.

    Raises:
        ValueError: units below 1, or more than there are; draws whose cases of several units are inherited from others.
    """

    drawn: Sampling
    units: Count
    apart: bool = False
    known: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = f"give at most the population, {self.population}"
        require(self.units <= self.population, "units", self.units, remedy)
        said = ("cases", "cases_of_several")
        one, several = (next(c for c in type(self.drawn).__mro__ if n in vars(c)) for n in said)
        remedy = "its cases are its own; give `cases_of_several`, too"
        require(several in (one, Sampling), "drawn", self.drawn, remedy)

    def __repr__(self) -> str:
        return f"{self.units} units of a person by {self.drawn!r}"

    @property
    def population(self) -> int:  # type: ignore[override]
        """Number of units, of all persons."""
        return self.drawn.population

    @property
    def most(self) -> int:
        """Most units that one draw can hold, of all persons."""
        return self.drawn.most

    @property
    def rate(self) -> float:
        """Probability that a draw holds one of the person's units, or more."""
        return math.fsum(case.chance * case.rate for case in self.cases())

    @property
    def adjacency(self) -> Adjacency | None:
        """As of a single unit, where it is secret how many are drawn."""
        return "zero_out" if self.known else self.drawn.adjacency

    def cases(self) -> tuple[DrawCase, ...]:
        """As of those units, n of them as far as sqrt(n) where they are apart."""
        cases = self.drawn.cases_of_several(self.units)
        if not self.apart:
            return cases
        return tuple(
            case._replace(times=tuple((math.sqrt(n), p) for n, p in case.times)) for case in cases
        )

    def times_drawn(self) -> tuple[Floats, Floats]:
        """As far as one draw moves the sum, in moves of a unit: n, or sqrt(n)."""
        law = {0.0: 0.0}
        for case in self.cases():
            for n, p in case.times:
                law[n] = law.get(n, 0.0) + case.chance * p
        law[0.0] = max(0.0, 1 - math.fsum(law.values()))
        return np.array(sorted(law)), np.array([law[n] for n in sorted(law)])

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """As of single units."""
        return self.drawn.how_drawn(what, some_vanish)

    def limits(self, what: str) -> tuple[str, ...]:
        """As of single units."""
        return self.drawn.limits(what)

    @property
    def most_often(self) -> int:
        """How far one draw moves the sum at most, rounded up."""
        return math.ceil(self.times_drawn()[0][-1])

    @property
    def is_secret(self) -> bool:
        """As of single units, unless it is known."""
        return not self.known and self.drawn.is_secret

    @property
    def has_one_size(self) -> bool:
        """As of single units."""
        return self.drawn.has_one_size

    @property
    def own_noises(self) -> int:
        """All units, where they are apart."""
        return self.units if self.apart else 1

    @property
    def is_attained(self) -> bool:
        """As of single units."""
        return self.drawn.is_attained

    @property
    def is_weighted(self) -> bool:
        """As of single units."""
        return self.drawn.is_weighted

    @property
    def is_known_with_own_noise(self) -> bool:
        """As of single units."""
        return self.drawn.is_known_with_own_noise

    @property
    def hides_size(self) -> bool:
        """As of single units."""
        return self.drawn.hides_size

    @property
    def dropout(self) -> float:
        """As of single units."""
        return self.drawn.dropout

    def as_played(self) -> tuple[DrawCase, ...]:
        """The likeliest; the others, of a cut, are not played."""
        likeliest = max(self.cases(), key=lambda case: case.chance)
        return (likeliest._replace(chance=1.0),)


@dataclass(frozen=True, repr=False)
class ByPersons(Sampling):
    """Draws persons, and takes all clients of each: they are in one cohort, or none is.

    Attributes:
        drawn: the draws of persons.
        population: number of clients.
        most: clients of the largest cohort.
        of_one: most clients of a person.
        are_equal: whether every person has so many.
        of_whom: tells assignments of clients to persons apart.
    """

    drawn: Sampling
    population: LargeCount
    most: LargeCount
    of_one: Count
    are_equal: bool
    of_whom: str = field(repr=False)
    not_by_hand = "use fp.by_person"

    def __post_init__(self) -> None:
        check_fields(self)

    def __repr__(self) -> str:
        return f"ByPersons({self.drawn!r})"

    @property
    def rate(self) -> float:
        """That of a person."""
        return self.drawn.rate

    @property
    def adjacency(self) -> Adjacency | None:
        """As of persons."""
        return self.drawn.adjacency

    def cases(self) -> tuple[DrawCase, ...]:
        """Of a person with one client."""
        return self.drawn.cases()

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """As of a person with the most clients, which cover one with fewer: all are there, or none.

        *Proof.* The sum of a person's messages is one of norm `of_one` C at most, for this person and for whoever it
        displaces, or whoever takes its place: the cases of `drawn` with that clip norm.
        """
        return tuple(
            case._replace(times=((float(self.of_one), case.rate),)) for case in self.drawn.cases()
        )

    def times_drawn(self) -> tuple[Floats, Floats]:
        """Once, or not at all."""
        return self.drawn.times_drawn()

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """As of persons, with all their clients."""
        return (*self.drawn.how_drawn(what, some_vanish), "persons are drawn, with all clients")

    def limits(self, what: str) -> tuple[str, ...]:
        """As of persons."""
        return self.drawn.limits("the persons of a cohort")

    @property
    def takes_all(self) -> bool:
        """As of persons."""
        return self.drawn.takes_all

    @property
    def is_secret(self) -> bool:
        """As of persons."""
        return self.drawn.is_secret

    @property
    def has_one_size(self) -> bool:
        """Where all persons have as many clients."""
        return self.are_equal and self.drawn.has_one_size

    @property
    def is_attained(self) -> bool:
        """As of persons."""
        return self.drawn.is_attained

    def remembered(self) -> Sampling | None:
        """As of persons."""
        drawn = self.drawn.remembered()
        return None if drawn is None else replace(self, drawn=drawn)
