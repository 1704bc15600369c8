"""Blocks of rounds, in one of which each unit takes part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedpriv.core.arguments import Count, LargeCount, check_fields
from fedpriv.privacy.sampling.kinds_of_units import NOT_SEVERAL, Case, if_seldom_seen
from fedpriv.privacy.sampling.turns import Schedule, Turns
from fedpriv.proof.cases import Cases, Neighbour, Why
from fedpriv.proof.draws import Single
from fedpriv.proof.samplings import NEVER, Cut

_PLAIN = ((1.0, 1.0),)
"""A unit is there."""


@dataclass(frozen=True)
class Allocation(Cut):
    """A block of rounds, in one of which each of the `population` clients takes part: any with the same probability.

    Clients draw their rounds independently of one another. A cohort above `capacity` is cut down to a uniformly random
    subset, which is accounted for; those who are left out take part in no round of the block. `None`: no cut.

    Attributes:
        block: b, number of rounds.

    Raises:
        ValueError: a number below 1.
    """

    population: LargeCount
    block: Count
    capacity: LargeCount | None = None
    together = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""
        return self._full_rounds()[0] > NEVER

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Independently."""
        if neighbour == "zeroed":
            return ()
        text = "units draw their rounds independently and uniformly, and sums are divided by a number fixed beforehand"
        return (text, *super().words(neighbour))

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """By how many of the block's rounds are full without the unit.

        Of a case, the chance of its law is the share of the rounds in which a unit moves the sum by `far`, in the
        others by 1. The pair of the block is dominated by that which shows the case, as in `pairs.blocks`.

        *Proof.* Let the other N - 1 units draw their rounds, and B = `capacity` of a round's units stay, a uniform
        subset where there are more. A round that B or more others draw is full. All this has the same law with the unit
        and without it; let the view know it. Where the unit draws a round that is not full it joins, and nobody else is
        left out or let in. Where it draws a full one, of K others, it joins with probability B / (K + 1) in the place
        of a uniform one of those who stayed, y, or changes nothing. All other rounds are as without it, as y takes part
        in no other round of the block. So with the unit in a full round the sum moves by u - y, of norm at most 2 C, or
        not at all: by convexity that is dominated by the noise moved by 2 C. To call more rounds full, or a move
        longer, is sound.

        With f full rounds, Pr[f >= 1] <= b s and Pr[f >= 2] <= b (b - 1) / 2 s^2, where s = Pr[Bin(N - 1, 1 / b) >= B]
        is the chance of one: numbers of balls in bins are negatively associated (Joag-Dev and Proschan 1983).

        Where units remember when they were drawn, y shows for ever that it made room, so a unit that draws a full round
        counts as seen: in one round of b where one is full, in all where more are.
        """
        if who.units > 1:
            return NOT_SEVERAL
        if neighbour == "zeroed":
            return (Case(1.0, _PLAIN),)
        if neighbour != "removed":
            return Why("blocks of rounds are certified for a unit that is added or removed")
        some, several = self._full_rounds()
        if some <= NEVER:
            return (Case(1.0, _PLAIN),)
        plain, of_one = Case(1 - some, _PLAIN), ((1.0, 1 / self.block),)
        seen = Case(some - several, of_one, math.inf), Case(several, _PLAIN, math.inf)
        if who.remembers:
            return if_seldom_seen(_likely(plain, *seen), seen)
        return _likely(plain, Case(some, _PLAIN, 2.0))

    def _full_rounds(self) -> tuple[float, float]:
        """Bounds on the chances that one round of a block, or two, are full without the unit."""
        if not self.can_be_cut:
            return 0.0, 0.0
        from scipy.stats import binom

        b, size = self.block, self.capacity
        assert size is not None
        full = float(binom.sf(size - 1, self.population - 1, 1 / b))
        some = min(1.0, b * full)
        return some, min(some, b * (b - 1) / 2 * full**2)


def _likely(*cases: Case) -> Cases:
    return tuple(case for case in cases if case.chance > 0)


@dataclass(frozen=True)
class RandomAllocation(Schedule):
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
    by_hand = "use fp.random_allocation"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.of_a_round.most

    @property
    def of_a_round(self) -> Allocation:
        """The draw of a block."""
        return Allocation(self.population, self.block, self.capacity)

    @property
    def turns(self) -> Turns:  # type: ignore[override]
        """The last round of a block and the first of the next are neighbours."""
        words = f"one round of a client in each of {{turns}} blocks of {self.block} rounds"
        return Turns(1, words, block=self.block)

    def turn(self, units: Any, t: Any) -> Any:
        """Any round may be everybody's."""
        return units >= 0
