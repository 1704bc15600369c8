"""Public groups of clients, each drawn in its own way, or counting in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from fedpriv.core.arguments import CountOrZero, LargeCount, require
from fedpriv.pairs.curves import Floats
from fedpriv.privacy.sampling.protocol import (
    Accounting,
    Adjacency,
    DrawCase,
    ParticipationSchema,
    Sampling,
)


@dataclass(frozen=True)
class Strata(Accounting):
    """What both kinds of grouped draws say.

    Formal guarantees: a unit of group g has the releases of `of_group(g)` alone, with noise of a multiplier that is
    divided by `weight_of(g)`.

    *Proof.* Which group a unit is in is public and does not depend on data: a unit that is removed, or sends zeros, or
    is replaced, was in group g, and so is whoever replaces it. So the two neighbours differ in g, and the draws of all
    other groups, which are independent of that of g, have the same law for both. Let the view know them, and what
    those who are drawn there send, given all that was seen before: the sum is that of the members of g, plus what is
    the same for both neighbours, plus the noise. So given these the pair is that of g's own draw, moved; the mixture
    over them is no further apart, as divergences are jointly convex. Each message of g is clipped to c_g C and then
    multiplied by w_g, so that a unit moves the sum by w_g c_g times as far as `of_group(g)` supposes.

    Each group is cut to a capacity of its own: nobody makes room for a member of another group, whose weight may be
    another. One draw of all clients is that of each group, too, where nobody stands in for another (`stands_alone`), or
    all have one weight and one clip scale: with equal products alone, noise that each adds itself, which is weighted
    but not clipped, would tell of whose place it is.

    Attributes:
        most: most units that one draw can hold.
        parts: (name, how its units are drawn) of each group.
        weights: w_g c_g of each.
        members: digest of who is in which.
        labels: name of each client's group, [clients].
    """

    population: LargeCount
    most: LargeCount
    parts: tuple[tuple[str, Accounting], ...]
    weights: tuple[float, ...]
    members: str
    labels: tuple[str, ...] = field(default=(), repr=False, compare=False)
    not_by_hand = "use fp.grouped"

    @property
    def group_names(self) -> tuple[str, ...]:
        """Of the groups."""
        return tuple(name for name, _ in self.parts)

    def of_group(self, name: str) -> Accounting:
        """As a unit of this group is drawn."""
        return dict(self.parts)[name]

    def weight_of(self, group: str) -> float:
        """As `Accounting.weight_of`."""
        return self.weights[self.group_names.index(group)]

    def of_clients(self, clients: Sequence[int]) -> tuple[Accounting, list[int]]:
        """(How the group of these clients is drawn, their numbers in that draw), for audits.

        Raises:
            ValueError: they are in several groups, or count less than 1, so that one likelihood is not that of each.
        """
        names = {self.labels[i] for i in clients}
        one = len(names) == 1 and self.weight_of(*names) == 1
        remedy = "canaries take the first clients' places; let those be of one group, of weight 1"
        require(one, "groups", sorted(names), remedy)
        own = self.of_group(*names)
        if own.population == self.population:
            return own, list(clients)
        return own, [sum(self.labels[j] in names for j in range(i)) for i in clients]

    @property
    def largest_weight(self) -> float:
        """Of any group."""
        return max(self.weights)

    @property
    def counts_equally(self) -> bool:
        """Whether all groups have the same weight."""
        return min(self.weights) == 1.0

    @property
    def is_secret(self) -> bool:
        """Whether that of some group counts on it."""
        return any(drawn.is_secret for _, drawn in self.parts)

    @property
    def takes_all(self) -> bool:
        """Whether all groups are taken whole."""
        return all(drawn.takes_all for _, drawn in self.parts)

    @property
    def has_one_size(self) -> bool:
        """Whether every group has, and nobody vanishes."""
        return all(d.has_one_size and d.of_a_round.dropout == 0 for _, d in self.parts)

    @property
    def rate(self) -> float:
        """That of the group that is drawn most often."""
        return max(drawn.of_a_round.rate for _, drawn in self.parts)


@dataclass(frozen=True)
class Grouped(Strata, Sampling):
    """Groups that are drawn alike in every round; of a unit only `of_group` tells."""

    @property
    def adjacency(self) -> Adjacency:
        """That of all groups."""
        return adjacency_of(self.parts[0][1])

    def cases(self) -> tuple[DrawCase, ...]:
        """None, as they differ by group."""
        self._refuse()

    def times_drawn(self) -> tuple[Floats, Floats]:
        """None, as they differ by group."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        names = self.group_names
        require(
            False,
            "sampling",
            names,
            "units of these groups are drawn differently; take `of_group` of one",
        )
        raise AssertionError

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """Nothing, beside what that of each group says."""
        return ()

    @property
    def most_often(self) -> int:
        """In any group."""
        return max(drawn.of_a_round.most_often for _, drawn in self.parts)

    @property
    def dropout(self) -> float:
        """In the group of which most vanish."""
        return max(drawn.of_a_round.dropout for _, drawn in self.parts)

    @property
    def is_known_with_own_noise(self) -> bool:
        """Whether that of all groups is."""
        return all(drawn.of_a_round.is_known_with_own_noise for _, drawn in self.parts)


@dataclass(frozen=True)
class GroupedTurns(Strata, ParticipationSchema):
    """Groups of which some take part by a schedule of theirs; of a unit only `of_group` tells."""

    @property
    def separation(self) -> int:
        """Of the group whose turns are closest."""
        return self.window

    @property
    def window(self) -> int:
        """Of the group whose turns are closest."""
        return min(drawn.window for _, drawn in self.parts)

    @property
    def of_a_round(self) -> Grouped:
        """The draws of those whose turn it is."""
        parts = tuple((name, drawn.of_a_round) for name, drawn in self.parts)
        return Grouped(self.population, self.most, parts, self.weights, self.members)

    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """In the group that has most."""
        return max(drawn.rounds_of_a_unit(rounds) for _, drawn in self.parts)

    def in_words(self, rounds: CountOrZero) -> str:
        """Of each group."""
        return "; ".join(f"{name}: {drawn.in_words(rounds)}" for name, drawn in self.parts)


def adjacency_of(drawn: Accounting) -> Adjacency:
    """Under which adjacency a group is certified towards a third party, with whole noise."""
    return drawn.of_a_round.with_whole_noise().independent().adjacency or "zero_out"
