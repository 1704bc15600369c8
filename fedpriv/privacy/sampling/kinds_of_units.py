"""Units of which cases are that are not a single one by itself: several, or such that remember, or have places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.pairs.several import moved
from fedpriv.proof import cases as plain
from fedpriv.proof.cases import NOTHING, SEEN, Cases, Neighbour, Noisy, Pair, Why
from fedpriv.proof.draws import Sampling, Single
from fedpriv.proof.samplings import (
    NOT_REMOVED,
    NOT_REPLACED,
    Everyone,
    FixedSize,
    Poisson,
)

NOT_SEVERAL = Why(
    "how many of a person's units it draws at once is not known; draw by fp.poisson, fp.fixed_size or fp.everyone, or "
    "keep one of each person (per_person=1)"
)
NOT_REMEMBERED = Why("units remember when they were drawn, of which nothing is proved")
_SELDOM = (
    1e-6  # in a round: how often a cut may show who made room for whom, and still be counted so
)


@dataclass(frozen=True)
class Who(Single):
    """Of whom cases are.

    Attributes:
        units: how many units are one person's; neighbours differ in all of them.
        remembers: whether units remember when they were drawn, and may show it later.
        stays: whether it is public that something stands in the unit's place, which another may take.
        lost: whether members who vanish take their shares of the noise along; else it is whole.
    """

    units: int = 1
    remembers: bool = False
    stays: bool = False
    lost: bool = False

    def cases(self, drawn: Sampling, neighbour: Neighbour) -> Cases | Why:
        """As `Sampling.cases`."""
        known = next(kind for kind in type(drawn).__mro__ if kind in cases_of.registry)
        # One that inherits from ours, and has cases of its own, says nothing of other kinds of units.
        own = getattr(known, "cases_of_one", None) is not type(drawn).cases_of_one
        return cases_of.dispatch(object if own else known)(drawn, neighbour, self)


@dataclass(frozen=True)
class Case(plain.Case):
    """A case that does not depend on whether the unit is there; given it, the noise of the sum is moved, or not.

    Attributes:
        chance: probability of the case.
        law: (n, probability that n of the units are drawn), n above 0 and rising, given the case.
        far: how far each of them then moves the sum, in its clip norms (of a unit that is replaced, in twice those);
            infinity where it is seen.
        left: the part of the noise's variance that is there.
        in_place: of a unit that is replaced: whether all else is the same with either, whether it is drawn or not.

    Raises:
        ValueError: numbers that cannot be.
    """

    left: float = 1.0
    in_place: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.left <= 1, "left", self.left, "give a number in (0, 1]")

    def shown(self, noisy: Noisy) -> list[tuple[float, Pair]]:
        """With the noise that is left."""
        there = noisy.left(self.left)
        if there is not None:
            return super().shown(there)
        none = (self.chance * max(0.0, 1 - self.rate), NOTHING)
        return [none, *((self.chance * p, SEEN) for _, p in self.law)]

    def secret(self, noisy: Noisy, replaced: bool, subset: float | None = None) -> Pair:
        """With the noise that is left, of several units; in place."""
        there = noisy.left(self.left)
        if there is None:
            return NOTHING if self.rate == 0 else SEEN
        if self.rate == 0:
            return NOTHING
        law = [(n * self.far * there.far, p) for n, p in self.law]
        if math.isinf(self.far):
            law = [(math.inf, self.rate)]
        elif len(law) == 1 and self.rate >= 1:
            return moved(there.noise, law)
        return moved(there.noise, law, replaced, subset, replaced and self.in_place)


def changed(who: Single, **changes: Any) -> Who:
    """The same kind of unit, but for this."""
    own = {name: getattr(who, name) for name in ("units", "remembers", "stays", "lost")}
    return Who(**own | changes)


def several(law: Any, most: int) -> tuple[tuple[float, float], ...]:
    """`Case.law` by a law of scipy's, of 1 to `most` units."""
    n = np.arange(1, most + 1)
    return tuple((float(k), float(p)) for k, p in zip(n, law.pmf(n), strict=True) if p > 0)


@singledispatch
def cases_of(drawn: Sampling, neighbour: Neighbour, who: Who) -> Cases | Why:
    """Cases of a kind of unit, of a sampling that says none itself but those of one unit."""
    if who.units > 1:
        return NOT_SEVERAL
    if who.remembers and neighbour != "zeroed":
        return NOT_REMEMBERED
    if who.lost and drawn.vanish:
        return Why("what members who vanish take along is not known; say it in `cases`")
    return drawn.cases_of_one(neighbour)


@cases_of.register
def _of_everyone(drawn: Everyone, neighbour: Neighbour, who: Who) -> Cases | Why:
    """All units of a person are there, and nobody has anything to remember."""
    return (Case(1.0, ((float(who.units), 1.0),)),)


@cases_of.register
def _of_fixed_size(drawn: FixedSize, neighbour: Neighbour, who: Who) -> Cases | Why:
    """One: the number of units that are drawn is hypergeometric.

    *Proof.* Of several, `mixture_curves.replaced_delta`: a cohort that holds j of the units is uniform among those that
    do. So it is one without any of them, uniform too, of which a uniform choice of j members was replaced by one of j
    of the units: B_j and A differ in j members, as do B_j and B'_j.
    """
    if neighbour in ("removed", "emptied"):
        return NOT_REMOVED
    if neighbour == "replaced" and who.remembers:
        return NOT_REMEMBERED
    return (Case(1.0, law_of_fixed_size(drawn, who.units)),)


def law_of_fixed_size(drawn: FixedSize, units: int) -> tuple[tuple[float, float], ...]:
    """Of how many of so many units are drawn."""
    if units == 1:
        return ((1.0, drawn.size / drawn.population),)
    from scipy.stats import hypergeom

    return several(hypergeom(drawn.population, units, drawn.size), min(units, drawn.size))


@cases_of.register
def _of_poisson(drawn: Poisson, neighbour: Neighbour, who: Who) -> Cases | Why:
    """By whether others fill the cohort, where it may be cut, see `Poisson.cut`, `_cut_of_several` and `_of_places`.

    *Proof.* Without a cut the units join independently of all others: `curves.remove_delta`, `curves.add_delta`, and
    `mixture_curves.several_delta` of several. A view that is told how many join, and cuts none of them, sees more than
    one that sees them after a cut. Who is drawn does not depend on a unit that is replaced: in its place stands
    another, drawn or not, beside the same others.

    Where units remember when they were drawn (their later messages depend on it), the unit that was displaced shows for
    ever that it made room. So a unit that displaces another counts as seen, at an infinite distance; else the others
    remember the same, with the unit and without it, and rounds compose as before.
    """
    if neighbour == "replaced" and not who.stays:
        return NOT_REPLACED
    places = neighbour in ("emptied", "replaced")
    if neighbour != "zeroed" and drawn.is_cut:
        if places:
            return _of_places(drawn, who.units)
        far = math.inf if who.remembers else 2.0
        cut = drawn.cut(far) if who.units == 1 else _cut_of_several(drawn, who.units, far)
        return if_seldom_seen(cut, drawn.cut(math.inf)) if who.remembers else cut
    return (Case(1.0, _law_of_poisson(drawn, who.units), in_place=places),)


def _law_of_poisson(drawn: Poisson, units: int) -> tuple[tuple[float, float], ...]:
    """Of how many join."""
    if units == 1:
        return ((1.0, drawn.rate),)
    from scipy.stats import binom

    return several(binom(units, drawn.rate), units)


def _cut_of_several(drawn: Poisson, units: int, far: float) -> Cases:
    """Of several, by how many join: where a cut may happen, it counts as if none of them were cut.

    *Proof.* Of the N - m others, m units being the person's, K join, with the person and without it. Given K <= B - m
    there is no cut. Given K > B - m, let J ~ Bin(m, q) of the units join, and M <= J be those in the cohort, a uniform
    subset of min(B, K + J) of all. Its others are a uniform subset of K, as S is, the cohort without the person: take
    them from S, of which D = |S| + M - min(B, K + J) then made room. D <= M, as |S| = min(B, K) <= min(B, K + J). Given
    S and K, the sum moves by those M less those D, by 2 M C at most, and M is stochastically smaller than Bin(m, q). S
    and K have the same law on both sides. Where units remember who made room, M >= 1 counts as seen.
    """
    from scipy.stats import binom

    assert drawn.capacity is not None
    law = _law_of_poisson(drawn, units)
    fits = float(binom.cdf(drawn.capacity - units, drawn.population - units, drawn.rate))
    return tuple(c for c in (Case(fits, law), Case(1 - fits, law, far)) if c.chance > 0)


def _of_places(drawn: Poisson, units: int) -> Cases:
    """Of places, which are drawn whether or not a unit, or another, stands there.

    *Proof.* Let S be the other places of the cohort after the cut: its law is the same for both neighbours, and they
    differ by the units' contributions alone, where their places are in the cohort, too. Given the size s of S, M of the
    m = `units` places are in it. Where s < B - m nothing was cut, and M ~ Bin(m, q). Else M = n with s where s of the
    others join, and n <= B - s of the m; or where more than B of all N join and n = B - s of the m are in the uniform
    subset of B, of hypergeometric law.
    """
    from scipy.stats import binom, hypergeom

    size, total, rate = drawn.capacity, drawn.population, drawn.rate
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


def if_seldom_seen(cases: Cases, of_one: Cases) -> Cases | Why:
    """Those of units that remember: where `of_one` of them displaces another more often, nothing is proved."""
    seen = math.fsum(case.chance * case.rate for case in of_one if math.isinf(case.far))
    if seen > _SELDOM:
        return Why(
            f"units remember when they were drawn, and with probability {seen:.3g} one makes room for another; "
            "raise the capacity"
        )
    return cases
