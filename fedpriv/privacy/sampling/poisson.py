"""Cohorts of a random size, each unit on its own, that are cut down to a capacity."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.core.arguments import Count, LargeCount, Rate, check_fields, require
from fedpriv.privacy.sampling.draw import (
    Accounting,
    Case,
    Cases,
    Neighbour,
    Sampling,
    Turns,
    Who,
    Why,
    several,
)

NEVER = 1e-250
"""Cuts rarer than this are left out; the margin for rounding covers them."""
SELDOM = 1e-6
"""In a round: how often a cut may show who made room for whom, and still be counted so."""


class Cut(Sampling):
    """What draws of a random size have in common: a cohort above the capacity is cut down."""

    capacity: LargeCount | None

    @property
    def most(self) -> int:
        """Most units that one draw, or a round of it, can hold."""
        return self.population if self.capacity is None else min(self.capacity, self.population)

    @property
    def can_be_cut(self) -> bool:
        """Whether a cohort can exceed the capacity."""
        return self.capacity is not None and self.capacity < self.population

    @property
    def everyone(self) -> bool:
        """Where nobody is ever left out."""
        return super().everyone and not self.can_be_cut

    @property
    @abstractmethod
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""

    @property
    def attained(self) -> bool:  # type: ignore[override]
        """Where no cut makes a unit rarer than its rate."""
        return not self.is_cut

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """What holds of the cut."""
        texts = []
        if neighbour == "replaced":
            texts.append("replacing a unit moves a sum by at most twice its clipped norm")
        if self.can_be_cut:
            texts.append(
                f"draws of more than {self.capacity} units are cut down uniformly at random"
            )
        if self.can_be_cut and neighbour == "removed":
            texts.append(f"the larger of two neighbouring populations has {self.population} units")
        return tuple(texts)

    def _if_seldom_seen(self, cases: Cases, of_one: Cases) -> Cases | Why:
        """Those of units that remember: where `of_one` of them displaces another more often, nothing is proved."""
        seen = math.fsum(case.chance * case.rate for case in of_one if math.isinf(case.far))
        if seen > SELDOM:
            return Why(
                f"units remember when they were drawn, and with probability {seen:.3g} one makes room for another; "
                "raise the capacity"
            )
        return cases


@dataclass(frozen=True)
class Poisson(Cut):
    """Each of the `population` clients joins with probability `rate`, independently of the others.

    A cohort above `capacity`, the number of slots that the simulator has, is cut down to a uniformly random subset,
    which is accounted for. `None`: no cut. `rate` is the probability of joining before the cut.

    Where a client's records are drawn, `population` is a number of places, of which the client fills as many as it has
    records; empty places are drawn, too.

    Raises:
        ValueError: a population or capacity below 1, or a rate outside (0, 1].
    """

    population: LargeCount
    rate: Rate
    capacity: LargeCount | None = None
    independent = True

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
    def together(self) -> float:  # type: ignore[override]
        """Two join independently."""
        return self.rate**2

    @property
    def made_by(self) -> tuple[int, float, int] | None:  # type: ignore[override]
        """Of a cut."""
        return (self.population, self.rate, self.most) if self.can_be_cut else None

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Independently."""
        if neighbour == "zeroed":
            return ()
        text = "units join independently, and sums are divided by a number fixed beforehand"
        return (text, *super().words(neighbour))

    def cases(self, neighbour: Neighbour, who: Who) -> Cases | Why:
        """By whether others fill the cohort, where it may be cut, see `_cut` and `_of_places`.

        *Proof.* Without a cut the units join independently of all others: `curves.remove_delta`, `curves.add_delta`,
        and `mixture_curves.several_delta` of several. A view that is told how many join, and cuts none of them, sees
        more than one that sees them after a cut. Who is drawn does not depend on a unit that is replaced: in its place
        stands another, drawn or not, beside the same others.
        """
        if neighbour == "replaced" and not who.stays:
            return Why("how many units there are is hidden, so that one is added or removed")
        places = neighbour in ("emptied", "replaced")
        if neighbour != "zeroed" and self.is_cut:
            if places:
                return self._of_places(who.units)
            cut = self._cut(who.remembers) if who.units == 1 else self._cut_of_several(who)
            return self._if_seldom_seen(cut, self._cut(True)) if who.remembers else cut
        return (Case(1.0, self._law(who.units), in_place=places),)

    def _law(self, units: int) -> tuple[tuple[float, float], ...]:
        """Of how many join."""
        if units == 1:
            return ((1.0, self.rate),)
        from scipy.stats import binom

        return several(binom(units, self.rate), units)

    def _cut(self, remembers: bool) -> Cases:
        """Of a unit that is removed: whether others fill the cohort.

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
        from scipy.special import betainc, betaincc  # Pr[Bin(n, q) > k] is betainc(k + 1, n - k, q)

        size, n, rate = self.capacity, self.population, self.rate
        assert size is not None
        chance, fits = (
            float(tail(size, n - size, rate)) for tail in (betainc, betaincc)
        )  # K >= B, K < B
        # E[q B / (K + 1); K >= B] = B / N Pr[Bin(N, q) > B]
        displaced = float(betainc(size + 1, n - size, rate)) * size / n / chance
        far = math.inf if remembers else 2.0
        cases = (Case(fits, ((1.0, rate),)), Case(chance, ((1.0, min(displaced, rate)),), far))
        return tuple(case for case in cases if case.chance > 0)

    def _cut_of_several(self, who: Who) -> Cases:
        """Of several, by how many join: where a cut may happen, it counts as if none of them were cut.

        *Proof.* Of the N - m others, m units being the person's, K join, with the person and without it. Given K <= B -
        m there is no cut. Given K > B - m, let J ~ Bin(m, q) of the units join, and M <= J be those in the cohort, a
        uniform subset of min(B, K + J) of all. Its others are a uniform subset of K, as S is, the cohort without the
        person: take them from S, of which D = |S| + M - min(B, K + J) then made room. D <= M, as |S| = min(B, K) <=
        min(B, K + J). Given S and K, the sum moves by those M less those D, by 2 M C at most, and M is stochastically
        smaller than Bin(m, q). S and K have the same law on both sides. Where units remember who made room, M >= 1
        counts as seen.
        """
        from scipy.stats import binom

        assert self.capacity is not None
        units, law = who.units, self._law(who.units)
        fits = float(binom.cdf(self.capacity - units, self.population - units, self.rate))
        far = math.inf if who.remembers else 2.0
        return tuple(c for c in (Case(fits, law), Case(1 - fits, law, far)) if c.chance > 0)

    def _of_places(self, units: int) -> Cases:
        """Of places, which are drawn whether or not a unit, or another, stands there.

        *Proof.* Let S be the other places of the cohort after the cut: its law is the same for both neighbours, and
        they differ by the units' contributions alone, where their places are in the cohort, too. Given the size s of S,
        M of the m = `units` places are in it. Where s < B - m nothing was cut, and M ~ Bin(m, q). Else M = n with s
        where s of the others join, and n <= B - s of the m; or where more than B of all N join and n = B - s of the m
        are in the uniform subset of B, of hypergeometric law.
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
        likely = [(min(1.0, chance), _of_some(law)) for chance, law in laws if chance > 0]
        return tuple(Case(chance, law, in_place=True) for chance, law in likely)


def _of_some(law: Any) -> tuple[tuple[float, float], ...]:
    """Without the chance of none."""
    return tuple((float(n), float(p)) for n, p in enumerate(law) if n and p > 0)


@dataclass(frozen=True)
class CyclicPoisson(Accounting):
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
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.of_a_round.most

    @property
    def of_a_round(self) -> Poisson:
        """The draw of those whose turn it is."""
        return Poisson(self.population // self.groups, self.rate, self.capacity)

    @property
    def turns(self) -> Turns:  # type: ignore[override]
        """Columns of a client's turns, of so many bands, have no row in common."""
        words = f"{{turns}} turns of a client in {{rounds}} rounds, {self.groups} apart"
        return Turns(self.groups, words, bands=self.groups)

    @property
    def classes(self) -> tuple[str, ...]:
        """By whose turn it is at once."""
        return tuple(str(i % self.groups) for i in range(self.population))

    def turn(self, units: Any, t: Any) -> Any:
        """Client i's is in rounds i modulo b."""
        return units % self.groups == t % self.groups
