"""How one round's cohort is drawn, and of whom: the doors `Sampling` and `Single`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedpriv.proof.cases import Cases, Neighbour, Noisy, Why
from fedpriv.proof.pairs import Pair, told


@dataclass(frozen=True)
class Single:
    """Of whom cases are: a unit by itself. Another kind of unit inherits from this, and says what is known of it.

    Attributes:
        units: how many are one person's; neighbours differ in all of them.
        remembers: whether units remember when they were drawn, and may show it later.
        stays: whether it is public that something stands in the unit's place, which another may take.
        lost: whether members who vanish take their shares of the noise along; else it is whole.
    """

    units, remembers, stays, lost = 1, False, False, False

    def cases(self, drawn: Sampling, neighbour: Neighbour) -> Cases | Why:
        """As of `Sampling.cases`."""
        return drawn.cases_of_one(neighbour)


ONE = Single()


class Sampling(ABC):
    """How units are drawn, once in each round, independently of other rounds and of data.

    One of somebody's own is a frozen dataclass that inherits from this, with the facts of it that differ, as fields or
    properties, and with `cases_of_one` and `words`. Certificates are as true as they are.

    Attributes:
        population: number of units.
        full: whether every draw holds `most`, before some may vanish.
        attained: whether the cases are the law of every unit, and not only a bound.
        uniform: whether every draw is a uniform subset of one size, before some of it may vanish.
        repeats: how often one draw can hold a unit.
        vanish: probability that a member vanishes after it was drawn.
        lossy: whether shares of the noise are lost with members that vanish.
        block: of how many rounds a unit takes part in one, by this draw; None: of its own round alone.
        together: probability that one draw holds two given units, or a bound on it; None: it is not known.
        independent: whether units are drawn independently of one another, before a cut.
        turns: which rounds may be a client's, a `Turns`; None: any.
        persons: of which assignment of clients to persons the draws are; "": of any.
        by_hand: what to use instead, where draws by somebody's own function cannot be measured against this.
        group_names: of public groups that are drawn, or count, each in its own way; (): all units are alike.
        classes: of each client its public class, of which different ones are drawn independently; (): all are alike.
        counts_equally: whether all messages count 1, clipped to the same norm.
    """

    population: int
    full = attained = uniform = lossy = independent = False
    repeats, vanish, counts_equally, persons, by_hand = 1, 0.0, True, "", ""
    block: int | None = None
    together: float | None = None
    turns: Any = None
    group_names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    if TYPE_CHECKING:

        @property
        def most(self) -> int:
            """Of units that one draw can hold."""
            ...

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """By what happens to the others of the cohort; their chances add up to 1. The proof belongs beside them.

        Formal guarantees: "zeroed", a view is told the case and how many of the units are drawn, and so many move the
        sum of the one neighbour. Else it is told the case alone: the pair of sums with and without the units is
        dominated, in each direction, by the pair in which noise is moved by n times `far` with the probabilities of
        `law`, or not moved; "replaced", by that of `curves.replace_delta`.
        """
        return who.cases(self, neighbour)

    def cases_of_one(self, neighbour: Neighbour) -> Cases | Why:
        """As `cases`, of one unit that does not remember when it was drawn: all that one of somebody's own says."""
        return Why("it has no cases")

    @abstractmethod
    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """What has to hold of the draw."""

    def pair(self, cases: Cases, neighbour: Neighbour, noisy: Noisy, who: Single) -> Pair:
        """Of a view that is told which case it is, and not who is drawn; of a uniform subset more is known."""
        replaced = neighbour == "replaced"
        uniform = replaced and self.uniform and who.units == 1
        subset = self.most / self.population if uniform else None
        return told((case.chance, case.secret(noisy, replaced, subset)) for case in cases)

    @property
    def secret(self) -> bool:
        """Whether certificates towards a third party count on nobody's knowing who is drawn."""
        return True

    @property
    def neighbour(self) -> Neighbour:
        """For which it is certified by itself, towards a third party."""
        every: tuple[Neighbour, ...] = ("removed", "replaced")
        of = (each for each in every if not isinstance(self.cases(each, ONE), Why))
        return next(of, "zeroed") if self.secret else "zeroed"

    @property
    def inclusion(self) -> float:
        """Inclusion probability: that a draw holds a unit, the likeliest one, or a bound on it."""
        return min(1.0, math.fsum(p for n, p in told_law(self, ONE) if n))

    @property
    def everyone(self) -> bool:
        """Whether every draw holds a unit, the likeliest one, equally often."""
        always = len(told_law(self, ONE)) == 1 and self.inclusion == 1
        return always and self.block in (None, 1) and self.most >= self.population

    @property
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is: all of them."""
        return self

    def of_group(self, name: str) -> tuple[Any, float]:
        """(How a unit of this group is drawn, times how far it moves the sum)."""
        return self, 1.0

    def turn(self, units: Any, t: Any) -> Any:
        """Whether it is the units' turn in round t, as everybody knows, bool[k]: it is everybody's."""
        return units >= 0


@lru_cache(maxsize=256)
def told_law(drawn: Sampling, who: Single) -> tuple[tuple[float, float], ...]:
    """((n, probability that a draw holds n of the units), ...), n rising from 0, where something is left to chance.

    Raises:
        ValueError: it is not known.
    """
    cases = drawn.cases("zeroed", who)
    if isinstance(cases, Why):
        raise ValueError(f"sampling: {drawn!r}; {cases}")
    law: dict[float, float] = {}
    for case in cases:
        for n, p in case.law:
            law[n] = law.get(n, 0.0) + case.chance * p
    none = 1 - math.fsum(law.values())
    return ((0.0, none),) * (none > 1e-15) + tuple(sorted(law.items()))
