"""Cohorts of a random size, each unit on its own, that are cut down to a capacity."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from fedpriv.core.arguments import Count, CountOrZero, LargeCount, Rate, check_fields, require
from fedpriv.pairs.curves import Floats
from fedpriv.privacy.sampling.protocol import (
    SELDOM,
    Adjacency,
    DrawCase,
    ParticipationSchema,
    Sampling,
    any_of,
    once,
    several,
)

NEVER = 1e-250
"""Cuts rarer than this are left out; the margin for rounding covers them."""

Neighbour: TypeAlias = Literal["removed", "remembered", "emptied", "replaced"]
"""Of a data set: without one unit; the same, among units that remember when they were drawn; with an empty place where
it was; with another unit in its place."""


class Cut(Sampling):
    """What draws of a random size have in common: a cohort above the capacity is cut down."""

    capacity: LargeCount | None
    neighbour: Neighbour

    @property
    def most(self) -> int:
        """Most units that one draw, or a round of it, can hold."""
        return self.population if self.capacity is None else min(self.capacity, self.population)

    @property
    def can_be_cut(self) -> bool:
        """Whether a cohort can exceed the capacity."""
        return self.capacity is not None and self.capacity < self.population

    @property
    def stands_alone(self) -> bool:
        """Unless somebody may make room."""
        return not self.can_be_cut

    @property
    @abstractmethod
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""

    @property
    def is_attained(self) -> bool:
        """Where no cut makes a unit rarer than its rate."""
        return not self.is_cut

    @property
    def adjacency(self) -> Adjacency:
        """Without a unit all others are drawn as before."""
        return "replace_one" if self.neighbour == "replaced" else "add_or_remove"

    def times_drawn(self) -> tuple[Floats, Floats]:
        """Once, or not at all, at the rate before a cut."""
        return once(self.rate)

    def limits(self, what: str) -> tuple[str, ...]:
        """What holds of the cut."""
        texts = []
        if self.neighbour == "replaced":
            texts.append("replacing a unit moves a sum by at most twice its clipped norm")
        if self.can_be_cut:
            texts.append(f"{what} above {self.capacity} are cut down uniformly at random")
        if self.can_be_cut and self.neighbour == "removed":
            texts.append(f"the larger of two neighbouring populations has {self.population} units")
        return tuple(texts)

    def seen_in_a_cut(self) -> float:
        """Probability that a unit takes the place of another in a round, or a block, where these remember it."""
        cases = replace(self, neighbour="remembered").cases()  # type: ignore[type-var]
        return float(sum(case.chance * case.rate for case in cases if math.isinf(case.distance)))

    def remembered(self) -> Sampling | None:
        """Secret still where a cut is rare, as nobody else's place depends on a unit."""
        if self.seen_in_a_cut() > SELDOM:
            return None
        return replace(self, neighbour="remembered")  # type: ignore[type-var]

    def as_played(self) -> tuple[DrawCase, ...]:
        """Whoever is displaced is not played."""
        return (DrawCase(1.0, self.joining, 1.0),)


@dataclass(frozen=True)
class Poisson(Cut):
    """Each of the `population` clients joins with probability `rate`, independently of the others.

    A cohort above `capacity`, the number of slots that the simulator has, is cut down to a uniformly random subset,
    which is accounted for. `None`: no cut. `rate` is the probability of joining before the cut.

    Where a client's records are drawn, `population` is a number of places, of which the client fills as many as it has
    records; empty places are drawn, too.

    Attributes:
        neighbour: what is hidden: that a unit is removed from a population that shrinks, that its place is empty, or
            that another stands there. Where units remember when they were drawn, one that makes room in a cut gives
            away who took its place.

    Raises:
        ValueError: a population or capacity below 1, or a rate outside (0, 1].
    """

    population: LargeCount
    rate: Rate
    capacity: LargeCount | None = None
    neighbour: Neighbour = field(default="removed", repr=False)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""
        if not self.can_be_cut:
            return False
        from scipy.special import betainc  # scipy.stats takes a second to import

        size, n = self.capacity, self.population
        assert size is not None
        return bool(betainc(size + 1, n - size, self.rate) > NEVER)  # Pr[Bin(n, rate) > size]

    @property
    def takes_all(self) -> bool:
        """At a rate of 1, without a cut."""
        return self.rate == 1 and not self.can_be_cut

    @property
    def hides_size(self) -> bool:
        """Where places may be empty."""
        return self.neighbour == "emptied"

    @property
    def is_independent(self) -> bool:
        """They join independently."""
        return True

    @property
    def together(self) -> float:
        """Two join independently."""
        return self.rate**2

    @property
    def allows_empty_places(self) -> bool:
        """Places are drawn whether or not anything is there."""
        return True

    @property
    def made_by(self) -> tuple[int, float, int] | None:
        """Of a cut, where nobody remembers."""
        if not self.can_be_cut or self.neighbour != "removed":
            return None
        return self.population, self.rate, self.most

    def of_places(self) -> Sampling:
        """A record that is missing leaves its place."""
        return replace(self, neighbour="emptied")

    def of_one_that_stays(self) -> Sampling:
        """Who is drawn does not depend on it."""
        return replace(self, neighbour="replaced")

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """Independently."""
        return ("units join independently, and sums are divided by a number fixed beforehand",)

    @property
    def joining(self) -> float:
        """Probability that a unit takes part, after the cut of a cohort that is too large."""
        if not self.can_be_cut:
            return self.rate
        from scipy.stats import binom

        others = np.arange(self.population)
        kept = np.minimum(1, self.most / (1 + others))
        law = binom(self.population - 1, self.rate)
        return float(self.rate * law.pmf(others) @ kept)

    def cases(self) -> tuple[DrawCase, ...]:
        """Whether others fill the cohort, where it may be cut; for places see `_of_places`.

        Formal guarantees: the pair of sums with and without the unit is dominated, in each direction, by the pair that
        shows the case and has noise moved by `distance` at `rate`, or not moved.

        *Proof.* Of the N - 1 other units K ~ Bin(N - 1, q) join, whether or not the unit is there; B is the capacity.
        Let S be the cohort without the unit: all that join where K < B, else a uniform subset of B of them. Given S and
        K < B the unit joins with probability q, and adds u. Given S and K >= B the cohort with the unit is the uniform
        subset of B of K, or K + 1, that joined: it holds the unit with probability q B / (K + 1), which then stands in
        the place of a uniform member y of S, or it is distributed as S. That is, given S and |S| = B, it is with r =
        E[q B / (K + 1) | K >= B] that the sum moves by u - y, of norm at most 2 C, y random. So given S the pair is (1
        - r) P + r Q against P, Q a mixture of P moved by at most 2 C. Its hockey-stick divergences are r H_b(Q || P)
        and (1 - a (1 - r)) H_b'(P || Q) (see `curves.remove_delta`, `curves.add_delta`), and those of Q and P are
        convex in Q, so at most those of P moved by 2 C. S has the same law on both sides; averaging over it gives, by
        joint convexity, the bound.

        Where units remember when they were drawn (their later messages depend on it), y shows for ever that it made
        room. So a unit that displaces another counts as seen, at an infinite distance; else the others remember the
        same, with the unit and without it, and rounds compose as before.

        These are the cases of dp-accounting (arXiv 2508.15089), which takes a unit replaced, with noise moved to both
        sides, for the second one.

        *How tight.* At 1000 clients of which 100 join on average, multiplier 1.4, 100 rounds and delta = 1e-5, explicit
        neighbours (others all alike, the unit at the worst angle to them tried) have an epsilon of 3.80, 7.87, 6.0 and
        4.5 for capacities of 20, 50, 90 and 100, where this bound gives 3.81, 7.88, 12.2 and 10.6, dp-accounting's
        4.23, 9.47, 15.4 and 12.8, and 3.94 holds without a cut. So cohorts that are nearly always cut have nothing to
        gain: what a client displaces shows as well as itself. Where about half of them are cut, up to a factor of 2.4
        is open.
        """
        if not self.is_cut:
            return (DrawCase(1.0, self.rate, 1.0),)
        if self.neighbour in ("emptied", "replaced"):
            return self._of_places()
        from scipy.stats import binom

        size, n, rate = self.capacity, self.population, self.rate
        assert size is not None
        chance = float(binom.sf(size - 1, n - 1, rate))  # K >= B
        # E[q B / (K + 1); K >= B] = B / N Pr[Bin(N, q) > B]
        displaced = float(binom.sf(size, n, rate)) * size / n / chance
        fits = float(binom.cdf(size - 1, n - 1, rate))
        distance = math.inf if self.neighbour == "remembered" else 2.0
        cases = (DrawCase(fits, rate, 1.0), DrawCase(chance, min(displaced, rate), distance))
        return tuple(case for case in cases if case.chance > 0)

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """By how many of the units join, binomial; where a cut may happen, it counts as if none of them were cut.

        *Proof.* Without a cut the units join independently of all others: `mixture_curves.several_delta`. Else, of the
        N - m others, m = `units`, K join, with the person and without it. Given K <= B - m there is no cut. Given
        K > B - m, let J ~ Bin(m, q) of the units join, and M <= J be those in the cohort, a uniform subset of min(B, K
        + J) of all. Its others are a uniform subset of K, as S is, the cohort without the person: take them from S, of
        which D = |S| + M - min(B, K + J) then made room. D <= M, as |S| = min(B, K) <= min(B, K + J). Given S and K,
        the sum moves by those M less those D, by 2 M C at most, and M is stochastically smaller than Bin(m, q). S and K
        have the same law on both sides. Where units remember who made room, M >= 1 counts as seen.

        For places see `_of_several_places`.
        """
        from scipy.stats import binom

        times = several(binom(units, self.rate), units)
        plain = DrawCase(1.0, any_of(times), 1.0, times)
        if not self.is_cut:
            return (plain,)
        if self.neighbour in ("emptied", "replaced"):
            return self._of_several_places(units)
        assert self.capacity is not None
        fits = float(binom.cdf(self.capacity - units, self.population - units, self.rate))
        distance = math.inf if self.neighbour == "remembered" else 2.0
        cut = plain._replace(chance=1 - fits, distance=distance)
        return tuple(case for case in (plain._replace(chance=fits), cut) if case.chance > 0)

    def _of_several_places(self, units: int) -> tuple[DrawCase, ...]:
        """The cases where the places of a person's units are drawn whether or not anything stands there.

        *Proof.* As `_of_places`, by the size s of S, the other places in the cohort after the cut, whose law is the
        same for both neighbours; of the m = `units` places M are in it. Where s < B - m nothing was cut, and M ~ Bin(m,
        q). Else M = n with s where s of the others join, and n <= B - s of the m; or where more than B of all N join
        and n = B - s of the m are in the uniform subset of B, of hypergeometric law.
        """
        from scipy.stats import binom, hypergeom

        size, total, rate = self.capacity, self.population, self.rate
        assert size is not None
        n = np.arange(units + 1)
        joins = binom.pmf(n, units, rate)
        cut = binom.sf(size, total, rate) * hypergeom.pmf(n, total, units, size)
        fits = float(binom.cdf(size - units - 1, total - units, rate))
        laws = [(fits, joins)]
        for s in range(max(0, size - units), size + 1):
            law = np.where(n <= size - s, binom.pmf(s, total - units, rate) * joins, 0.0)
            law += np.where(n == size - s, cut, 0.0)
            chance = float(law.sum())
            if chance > 0:
                laws.append((chance, law / chance))
        cases = []
        for chance, law in laws:
            times = tuple(
                (float(k), float(p)) for k, p in zip(n[1:], law[1:], strict=True) if p > 0
            )
            cases.append(DrawCase(chance, any_of(times), 1.0, times))
        return tuple(case for case in cases if case.chance > 0)

    def _of_places(self) -> tuple[DrawCase, ...]:
        """The cases where a unit's place is drawn whether or not it, or another, stands there.

        Formal guarantees: as `cases`, of the pair with the unit and with an empty place, or with another unit.

        *Proof.* Let S be the other places of the cohort after the cut: its law is the same for both neighbours, and
        they differ by the unit's contribution alone, where its place is in the cohort, too. With K ~ Bin(N - 1, q)
        others that join and capacity B: |S| = K below B - 1, and the place joins with probability q. |S| = B - 1 where
        K = B - 1, or where K >= B and the place is in the subset, of probability E[q B / (K + 1); K >= B] = B / N
        Pr[Bin(N, q) > B]: so given |S| = B - 1 it is in the cohort more often. Given |S| = B it is not.
        """
        from scipy.stats import binom

        size, n, rate = self.capacity, self.population, self.rate
        assert size is not None
        fits = float(binom.cdf(size - 2, n - 1, rate))
        last = float(binom.pmf(size - 1, n - 1, rate))
        kept = float(binom.sf(size, n, rate)) * size / n
        full = last + kept
        cases = (
            DrawCase(fits, rate, 1.0),
            DrawCase(full, (rate * last + kept) / full, 1.0),
            DrawCase(max(0.0, 1 - fits - full), 0.0, 1.0),
        )
        return tuple(case for case in cases if case.chance > 0)


@dataclass(frozen=True)
class CyclicPoisson(ParticipationSchema):
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
    def separation(self) -> int:
        """Rounds from one turn to the next."""
        return self.groups

    @property
    def most_bands(self) -> int:
        """So many that the columns of a client's turns have no row in common."""
        return self.groups

    def turn(self, units: Any, t: Any) -> Any:
        """Client i's is in rounds i modulo b."""
        return units % self.groups == t % self.groups

    @property
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.of_a_round.most

    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """How many of `rounds` rounds are a client's turn, at most."""
        return -(-rounds // self.groups)

    @property
    def of_a_round(self) -> Poisson:
        """The draw of those whose turn it is."""
        return Poisson(self.population // self.groups, self.rate, self.capacity)

    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a client's."""
        turns = self.rounds_of_a_unit(rounds)
        return f"{turns} turns of a client in {rounds} rounds, {self.groups} apart"
