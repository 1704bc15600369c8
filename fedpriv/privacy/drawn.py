"""From draws to the pairs that a view sees: the one place where a sampling's cases become pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from fedpriv.core.arguments import Rate
from fedpriv.pairs.algebra import (
    NOTHING,
    SEEN,
    All,
    Block,
    Moved,
    Noise,
    Pair,
    Times,
    Told,
    fold,
    moved,
    times,
    together,
    told,
)
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.sampling import (
    ADJACENCIES,
    Case,
    Cases,
    Neighbour,
    Sampling,
    Who,
    Why,
    told_law,
)


class Pairs(NamedTuple):
    """For each kind of neighbour the pair that dominates theirs, or a line that says why there is none."""

    zeroed: Pair | Why
    removed: Pair | Why
    emptied: Pair | Why
    replaced: Pair | Why

    def of(self, neighbour: Neighbour) -> Pair | Why:
        """For such neighbours."""
        found: Pair | Why = getattr(self, neighbour)
        return found

    def map(self, change: Callable[[Pair], Pair]) -> Pairs:
        """Each pair changed."""
        return Pairs(*(each if isinstance(each, Why) else change(each) for each in self))


def of_each(several: Sequence[Pairs]) -> Pairs:
    """All of them together, independently drawn; why not, where there is none of one."""

    def composed(neighbour: Neighbour) -> Pair | Why:
        each = [pairs.of(neighbour) for pairs in several]
        why = next((pair for pair in each if isinstance(pair, Why)), None)
        return together(pair for pair in each if not isinstance(pair, Why)) if why is None else why

    return Pairs(*map(composed, ADJACENCIES))


_NEVER = 1e-45  # rarer numbers of draws count as seen
_NO_LAPLACE = Why("Laplace noise that has lost shares is no longer Laplace; give Gaussian noise")


class Noisy(NamedTuple):
    """Noise, and how far a unit that is zeroed moves the sum when it is drawn once.

    Attributes:
        noise: its kind, or the law of integers.
        far: in deviations of the noise (Laplace: in its scale, l1); of integers 1, as their law says it.
    """

    noise: Noise
    far: float = 1.0

    @classmethod
    def of(cls, noise: str, multiplier: float, integers: IntegerNoise | None) -> Noisy:
        """Of a positive multiplier, which of integers is that of their law."""
        return cls(noise, 1 / multiplier) if integers is None else cls(integers)

    @property
    def kind(self) -> str:
        """Of noise."""
        return self.noise.kind if isinstance(self.noise, IntegerNoise) else self.noise

    @property
    def multiplier(self) -> float:
        """Of a unit that is zeroed."""
        if isinstance(self.noise, IntegerNoise):
            return self.noise.multiplier
        return 1 / self.far if self.far else math.inf

    def moved(self, by: float) -> Noisy:
        """Of a unit that moves the sum so many times as far."""
        if isinstance(self.noise, IntegerNoise):
            return Noisy(self.noise.moved(by))
        return Noisy(self.noise, self.far * by)

    def left(self, part: Rate) -> Noisy | None:
        """Of which this part of the variance is there; None: nothing hides that is known."""
        if part == 1:
            return self
        if isinstance(self.noise, IntegerNoise):
            left = self.noise.with_part(part)
            return None if left is None else Noisy(left)
        return None if self.noise == "laplace" else Noisy(self.noise, self.far / math.sqrt(part))

    def of_several(self, units: int) -> Noisy:
        """Of so many units, each with noise of its own: integers of all of them are one longer sum."""
        if isinstance(self.noise, IntegerNoise):
            return Noisy(self.noise.of_several(units))
        return self


class Drawn(NamedTuple):
    """The draws of a unit in one round, or local step, as a view is taken to know them.

    Attributes:
        by: how units are drawn.
        who: of whom.
        known: whether the view is taken to know who is drawn.
        apart: whether each of several units carries noise of its own, which alone is counted: n units are as far as
            sqrt(n), as n Gaussian releases of one unit each.
        closed: kinds of neighbour that the unit cannot have, and why.
        shared: how many releases there are of each draw, which the view knows.
        holds_others: whether a unit sends something else where it would be zeroed, as it holds data of others, too.
    """

    by: Sampling
    who: Who = Who()
    known: bool = False
    apart: bool = False
    closed: tuple[tuple[Neighbour, Why], ...] = ()
    shared: int = 1
    holds_others: bool = False

    def pairs(self, noisy: Noisy) -> Pairs:
        """Of one draw, for each kind of neighbour."""
        return self._each(noisy, self._pair)

    def played(self, noisy: Noisy) -> Pairs:
        """As `pairs`, as it happens: whoever is displaced is not played, nor what seldom counts as seen."""
        return self._each(noisy, self._played)

    @property
    def is_told(self) -> bool:
        """Whether who is drawn is known, or taken to be."""
        return self.known or not self.by.secret

    def _each(self, noisy: Noisy, of: Callable[[Cases, Neighbour, Noisy], Pair]) -> Pairs:
        if noisy.kind == "laplace" and self.who.lost:
            return Pairs(*[_NO_LAPLACE] * 4)
        if self.apart:
            noisy = noisy.of_several(self.by.units_of(self.who))

        def pair(neighbour: Neighbour) -> Pair | Why:
            cases = self._cases(neighbour)
            near = noisy.moved(2) if neighbour == "replaced" or self.holds_others else noisy
            return cases if isinstance(cases, Why) else of(cases, neighbour, near)

        return Pairs(*map(pair, ADJACENCIES))

    def _cases(self, neighbour: Neighbour) -> Cases | Why:
        if (closed := dict(self.closed).get(neighbour)) is not None:
            return closed
        if not self.is_told:
            if neighbour == "zeroed":
                return Why(
                    "that it is secret who is drawn is used, for which units are removed or replaced"
                )
            return self.by.cases(neighbour, self.who)
        if neighbour == "replaced" and not (self.known or self.by.everyone or self.who.stays):
            return Why(
                "how often each unit is drawn is taken to be known, of which one contributes zeros"
            )
        if neighbour in ("removed", "emptied") and not self.by.everyone:
            return Why(
                "who takes part is taken to be known, among whom a unit that is removed would be missing"
            )
        return self.by.cases("zeroed", self.who)

    def _pair(self, cases: Cases, neighbour: Neighbour, noisy: Noisy) -> Pair:
        """Of one draw.

        *Told.* A view that knows who is drawn, and how often, sees the pattern B beside the sum Y. B has the same law
        for both neighbours, as cohorts are drawn without looking at the data: so it is told, H_a((B, Y) || (B, Y')) =
        sum_b Pr[b] H_a(Y | b || Y' | b). A draw that holds n units is moved n times as far. Units that are drawn less
        often than the likeliest have stochastically smaller n, and a cohort that is cut counts at the rate before the
        cut: the curve rises in n.

        *Else* who is drawn is secret, and the sampling's cases have their proofs beside them.
        """
        if self.is_told:
            return _told(self._law(case, noisy) for case in cases)
        if self.by.block is not None and self.by.block > 1:
            return _of_block(self.by.block, cases, noisy)
        replaced = neighbour == "replaced"
        one = neighbour == "removed" and self.who == Who()
        made_by = self.by.made_by if one else None
        return told(((case.chance, self._secret(case, noisy, replaced)) for case in cases), made_by)

    def _law(self, case: Case, noisy: Noisy) -> tuple[float, list[tuple[float, Pair]]]:
        """(Chance of the case, (chance, pair) of each number of units in it)."""
        there = noisy.left(case.left)
        each: list[tuple[float, Pair]] = [(max(0.0, 1 - case.rate), NOTHING)]
        for n, p in case.law:
            seen = there is None or math.isinf(case.far) or 0 < p * case.chance < _NEVER
            far = self._distance(n) * case.far
            each.append((p, SEEN if seen else times(_sure(there, far), self.shared)))
        return case.chance, each

    def _secret(self, case: Case, noisy: Noisy, replaced: bool) -> Pair:
        """Of one case, in which it is secret how many units are drawn."""
        if case.rate == 0:
            return NOTHING
        there = noisy.left(case.left)
        if there is None:
            return SEEN
        law = [(self._distance(n) * case.far * there.far, p) for n, p in case.law]
        if math.isinf(case.far):
            law = [(math.inf, case.rate)]
        elif len(law) == 1 and case.rate >= 1:
            return moved(there.noise, law)
        subset = self._subset(case, there) if replaced else None
        return moved(there.noise, law, replaced, subset, replaced and case.in_place)

    def _subset(self, case: Case, there: Noisy) -> float | None:
        """The rate of a uniform subset of one size."""
        if not self.by.uniform or self.who.units > 1:
            return None
        if not self.who.lost:
            return self.by.most / self.by.population
        return case.rate if isinstance(there.noise, IntegerNoise) else None

    def _distance(self, units: float) -> float:
        return math.sqrt(units) if self.apart else units

    def _played(self, cases: Cases, neighbour: Neighbour, noisy: Noisy) -> Pair:
        if isinstance(noisy.noise, IntegerNoise):
            noisy = Noisy("gaussian", 1 / noisy.multiplier)
        costly = self.is_told or any(case.far != 1 or case.in_place for case in cases)
        if costly and not self.who.lost and self.by.block is None:
            cases = (Case(1.0, self._as_it_happens(cases)),)
        finite = tuple(case for case in cases if math.isfinite(case.far))
        whole = math.fsum(case.chance for case in finite)
        finite = tuple(replace(case, chance=case.chance / whole) for case in finite)
        pair = self._pair(finite, neighbour, noisy)
        return _with_others_in_place(pair) if neighbour == "replaced" else pair

    def _as_it_happens(self, cases: Cases) -> tuple[tuple[float, float], ...]:
        if self.is_told and self.who.units == self.by.repeats == 1:
            return ((1.0, self.by.joining),)
        law: dict[float, float] = {}
        for case in cases:
            for n, p in case.law:
                law[n] = law.get(n, 0.0) + case.chance * p
        return tuple(sorted(law.items()))


def _sure(noisy: Noisy | None, far: float) -> Pair:
    assert noisy is not None
    return moved(noisy.noise, [(far * noisy.far, 1.0)])


def _told(cases: Iterable[tuple[float, list[tuple[float, Pair]]]]) -> Pair:
    return told((chance * p, pair) for chance, each in cases for p, pair in each)


def _of_block(rounds: int, cases: Cases, noisy: Noisy) -> Block:
    """Where units are seen, the rate is the share of the rounds in which they are, and the others move the sum by 1."""

    def of_case(case: Case) -> tuple[float, float, int]:
        is_seen = math.isinf(case.far)
        far = noisy.far * (1 if is_seen else case.far)
        (moved_by, _), *_ = moved(noisy.noise, [(far, 1.0)]).law
        if math.isinf(moved_by):  # so far that nothing is hidden
            return case.chance, 1.0, rounds
        return case.chance, moved_by, round(case.rate * rounds) if is_seen else 0

    return Block(noisy.noise, rounds, tuple(map(of_case, cases)))


def _with_others_in_place(pair: Pair) -> Pair:
    """As it is played where units are replaced: moved one way by this unit, the other way by another."""

    def leaf(draw: Pair) -> Pair:
        return replace(draw, replaced=True) if isinstance(draw, Moved) else draw

    return fold(pair, leaf, lambda cases: Told(tuple(cases)), Times, lambda each: All(tuple(each)))


class Repeated(NamedTuple):
    """How often a draw is released.

    Attributes:
        rounds: number of rounds.
        steps: of each, such as a client's K local steps, each with its own draw.
        among: how the clients of a round are drawn, once for all its steps, of whom the view knows who takes part; one
            that is drawn several times takes part once. None: there is only the draw of the unit.
        schedule: which rounds are a client's, in words, where the number of a round decides.
    """

    rounds: int
    steps: int = 1
    among: Sampling | None = None
    schedule: str = ""

    def pairs(self, clients: Sequence[tuple[int, Pairs]], played: bool = False) -> Pairs:
        """Of all rounds.

        Args:
            clients: (how many, the pairs of one of them in a round in which it takes part), of each kind of the unit's.
            played: whether as an audit plays it.
        """
        law = self._law([n for n, _ in clients], played)
        cases = [
            (p, of_each([_times(own, n) for n, (_, own) in zip(there, clients, strict=True)]))
            for there, p in law
        ]
        return _told_pairs(cases).map(lambda pair: times(pair, self.rounds))

    def _law(self, clients: Sequence[int], played: bool) -> list[tuple[tuple[int, ...], float]]:
        """(How many clients of each kind take part in a round, how probably).

        Of a uniform subset, or where clients are drawn independently, any of them are as likely as any other so many.
        """
        if self.among is None:
            return [(tuple(clients), 1.0)]
        if sum(clients) == 1:
            rate = self.among.joining if played else self.among.inclusion
            return [((1,), rate), ((0,), 1 - rate)]
        every = dict(told_law(self.among, Who(units=sum(clients))))
        ways = math.comb
        found = []
        for there in product(*(range(n + 1) for n in clients)):
            total = sum(there)
            share = math.prod(ways(n, k) for n, k in zip(clients, there, strict=True))
            found.append((there, every.get(float(total), 0.0) * share / ways(sum(clients), total)))
        return found


def _times(pairs: Pairs, n: int) -> Pairs:
    return pairs.map(lambda pair: times(pair, n))


def _told_pairs(cases: Sequence[tuple[float, Pairs]]) -> Pairs:
    """Of cases of which the view is told; where one has no pair, why not."""

    def of_neighbour(neighbour: Neighbour) -> Pair | Why:
        each = [(p, pairs.of(neighbour)) for p, pairs in cases]
        why = next((pair for _, pair in each if isinstance(pair, Why)), None)
        known = ((p, pair) for p, pair in each if not isinstance(pair, Why))
        return told(known) if why is None else why

    return Pairs(*map(of_neighbour, ADJACENCIES))
