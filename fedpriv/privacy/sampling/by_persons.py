"""Draws of persons, with all clients of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedpriv.core.arguments import Count, LargeCount, check_fields
from fedpriv.privacy.sampling.kinds_of_units import changed
from fedpriv.proof.cases import Case, Cases, Neighbour, Why
from fedpriv.proof.draws import Sampling, Single


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
    by_hand = "use fp.by_person"

    def __post_init__(self) -> None:
        check_fields(self)

    def __repr__(self) -> str:
        return f"ByPersons({self.drawn!r})"

    @property
    def persons(self) -> str:  # type: ignore[override]
        """Of this assignment."""
        return self.of_whom

    @property
    def secret(self) -> bool:
        """As of persons."""
        return self.drawn.secret

    @property
    def everyone(self) -> bool:
        """As of persons."""
        return self.drawn.everyone

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Where all persons are drawn."""
        return self.drawn.everyone

    @property
    def full(self) -> bool:  # type: ignore[override]
        """Where all persons have as many clients."""
        return self.are_equal and self.drawn.full

    @property
    def attained(self) -> bool:  # type: ignore[override]
        """As of persons."""
        return self.drawn.attained

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """As of persons. All of several units are there, or none; those of the most clients cover one with fewer.

        *Proof.* The sum of a person's messages is one of norm `of_one` C at most, for this person and for whoever it
        displaces, or whoever takes its place: the cases of `drawn` with that clip norm.
        """
        cases = self.drawn.cases(neighbour, changed(who, units=1))
        if who.units == 1 or isinstance(cases, Why):
            return cases
        return tuple(map(self._with_all_clients, cases))

    def _with_all_clients(self, case: Case) -> Case:
        return replace(case, law=tuple((n * self.of_one, p) for n, p in case.law))

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """As of persons, with all their clients."""
        texts = self.drawn.words(neighbour)
        return (*texts, "persons are drawn, with all clients") if neighbour != "zeroed" else texts
