"""Public groups of clients, each drawn in its own way, or counting in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedpriv.core.arguments import LargeCount
from fedpriv.core.complaints import require
from fedpriv.privacy.sampling.turns import Accounting, Schedule, Turns
from fedpriv.proof.cases import ADJACENCIES, Adjacency, Cases, Neighbour, Why
from fedpriv.proof.draws import Sampling, Single


@dataclass(frozen=True)
class Strata:
    """What both kinds of grouped draws say.

    Formal guarantees: a unit of group g has the releases of `of_group(g)` alone, with noise of a multiplier that is
    divided by its weight.

    *Proof.* Which group a unit is in is public and does not depend on data: a unit that is removed, or sends zeros, or
    is replaced, was in group g, and so is whoever replaces it. So the two neighbours differ in g, and the draws of all
    other groups, which are independent of that of g, have the same law for both. Let the view know them, and what
    those who are drawn there send, given all that was seen before: the sum is that of the members of g, plus what is
    the same for both neighbours, plus the noise. So given these the pair is that of g's own draw, moved; the mixture
    over them is no further apart, as divergences are jointly convex. Each message of g is clipped to c_g C and then
    multiplied by w_g, so that a unit moves the sum by w_g c_g times as far as `of_group(g)` supposes.

    Each group is cut to a capacity of its own: nobody makes room for a member of another group, whose weight may be
    another. One draw of all clients is that of each group, too, where nobody stands in for another (`alone`), or
    all have one weight and one clip scale: with equal products alone, noise that each adds itself, which is weighted
    but not clipped, would tell of whose place it is.

    Attributes:
        most: most units that one draw can hold.
        parts: (name, how its units are drawn) of each group.
        weights: w_g c_g of each.
        members: digest of who is in which.
        labels: name of each client's group, [clients].
        of_answers: whether weights are only the largest of a group's answers, which differ by their delays.
    """

    population: LargeCount
    most: LargeCount
    parts: tuple[tuple[str, Accounting], ...]
    weights: tuple[float, ...]
    members: str
    labels: tuple[str, ...] = field(default=(), repr=False, compare=False)
    of_answers: bool = field(default=False, repr=False)
    by_hand = "use fp.grouped"

    @property
    def group_names(self) -> tuple[str, ...]:
        """Of the groups."""
        return tuple(name for name, _ in self.parts)

    def of_group(self, name: str) -> tuple[Accounting, float]:
        """(How a unit of this group is drawn, times how far it moves the sum)."""
        return dict(self.parts)[name], self.weights[self.group_names.index(name)]

    @property
    def classes(self) -> tuple[str, ...]:
        """Their groups, if each has a draw of its own."""
        apart = sum(drawn.population for _, drawn in self.parts) == self.population
        return self.labels if apart else ()

    @property
    def counts_equally(self) -> bool:
        """Whether all groups have the same weight."""
        return self.of_answers or set(self.weights) == {1.0}

    def of_clients(self, clients: Sequence[int]) -> tuple[Accounting, list[int]]:
        """(How the group of these clients is drawn, their numbers in that draw), for audits.

        Raises:
            ValueError: they are in several groups, or count less than 1, so that one likelihood is not that of each.
        """
        names = {self.labels[i] for i in clients}
        one = len(names) == 1 and self.of_group(*names)[1] == 1
        remedy = "canaries take the first clients' places; let those be of one group, of weight 1"
        require(one, "groups", sorted(names), remedy)
        own, _ = self.of_group(*names)
        if own.population == self.population:
            return own, list(clients)
        return own, [sum(self.labels[j] in names for j in range(i)) for i in clients]

    @property
    def secret(self) -> bool:
        """Whether that of some group counts on it."""
        return any(drawn.secret for _, drawn in self.parts)

    @property
    def full(self) -> bool:
        """Whether every group is, and nobody vanishes."""
        return all(d.full and d.of_a_round.vanish == 0 for _, d in self.parts)


@dataclass(frozen=True)
class Grouped(Strata, Sampling):  # type: ignore[override]
    """Groups that are drawn alike in every round; of a unit only `of_group` tells."""

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """None, as they differ by group."""
        return Why(
            f"units of the groups {self.group_names} are drawn differently; take `of_group` of one"
        )

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Nothing, beside what that of each group says."""
        return ()

    @property
    def repeats(self) -> int:  # type: ignore[override]
        """In any group."""
        return max(drawn.of_a_round.repeats for _, drawn in self.parts)

    @property
    def vanish(self) -> float:  # type: ignore[override]
        """In the group of which most vanish."""
        return max(drawn.of_a_round.vanish for _, drawn in self.parts)

    @property
    def neighbour(self) -> Neighbour:
        """That of all groups."""
        return self.parts[0][1].of_a_round.neighbour

    @property
    def inclusion(self) -> float:
        """That of the group that is drawn most often."""
        return max(drawn.of_a_round.inclusion for _, drawn in self.parts)

    @property
    def everyone(self) -> bool:
        """Whether all groups are taken whole."""
        return all(drawn.of_a_round.everyone for _, drawn in self.parts)


@dataclass(frozen=True)
class GroupedTurns(Strata, Schedule):  # type: ignore[override]
    """Groups of which some take part by a schedule of theirs; of a unit only `of_group` tells."""

    @property
    def of_a_round(self) -> Grouped:
        """The draws of those whose turn it is."""
        parts = tuple((name, drawn.of_a_round) for name, drawn in self.parts)
        return Grouped(self.population, self.most, parts, self.weights, self.members)

    @property
    def turns(self) -> Turns:  # type: ignore[override]
        """Of the group whose turns are closest."""
        each = [drawn.turns.window if drawn.turns else 1 for _, drawn in self.parts]
        return Turns(min(each), "turns by groups")


def adjacency_of(drawn: Accounting) -> Adjacency:
    """Under which adjacency a group is certified towards a third party, with whole noise."""
    return ADJACENCIES[drawn.of_a_round.neighbour]
