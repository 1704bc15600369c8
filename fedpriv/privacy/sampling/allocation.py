"""Blocks of rounds, in one of which each unit takes part."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fedpriv.core.arguments import Count, CountOrZero, LargeCount, check_fields
from fedpriv.privacy.sampling.poisson import NEVER, Cut, Neighbour
from fedpriv.privacy.sampling.protocol import DrawCase, ParticipationSchema


@dataclass(frozen=True)
class Allocation(Cut):
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

    @property
    def together(self) -> float:
        """Both take part in a block."""
        return 1.0

    @property
    def block_rounds(self) -> int:
        """Those of the block."""
        return self.block

    @property
    def takes_all(self) -> bool:
        """In a block of one round, without a cut."""
        return self.block == 1 and not self.can_be_cut

    @property
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""
        return self._full_rounds()[0] > NEVER

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """Independently."""
        return (
            "units draw their rounds independently and uniformly, and sums are divided by a number fixed beforehand",
        )

    def cases(self) -> tuple[DrawCase, ...]:
        """By how many of the block's rounds are full without the unit.

        Of a case, `rate` is the share of the rounds in which a unit moves the sum by `distance`, in the others by 1.
        The pair of the block is dominated by that which shows the case, as in `pairs.blocks`.

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
        some, several = self._full_rounds()
        if some <= NEVER:
            return (DrawCase(1.0, 1.0, 1.0),)
        cut = [DrawCase(some, 1.0, 2.0)]
        if self.neighbour == "remembered":
            one = DrawCase(some - several, 1 / self.block, math.inf)
            cut = [one, DrawCase(several, 1.0, math.inf)]
        return tuple(case for case in (DrawCase(1 - some, 1.0, 1.0), *cut) if case.chance > 0)

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
