"""From draws to pairs where units are not single ones that views see in every round: of persons, records and blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from fedpriv.pairs.blocks import Block
from fedpriv.privacy.noisy_integers import of_several
from fedpriv.privacy.sampling.across_groups import AcrossGroups
from fedpriv.privacy.sampling.asked import joining
from fedpriv.privacy.sampling.kinds_of_units import Who
from fedpriv.proof.cases import ADJACENCIES, Case, Cases, Neighbour, Noisy, Pairs, Why
from fedpriv.proof.drawn import not_of
from fedpriv.proof.draws import Sampling, Single, told_law
from fedpriv.proof.pairs import SEEN, Pair, moved, times, together, told


def of_each(several: Sequence[Pairs]) -> Pairs:
    """All of them together, independently drawn; why not, where there is none of one."""

    def composed(neighbour: Neighbour) -> Pair | Why:
        each = [pairs.of(neighbour) for pairs in several]
        why = next((pair for pair in each if isinstance(pair, Why)), None)
        return together(pair for pair in each if not isinstance(pair, Why)) if why is None else why

    return Pairs(*map(composed, ADJACENCIES))


_NO_LAPLACE = Why("Laplace noise that has lost shares is no longer Laplace; give Gaussian noise")


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
    who: Single = Who()
    known: bool = False
    apart: bool = False
    closed: tuple[tuple[Neighbour, Why], ...] = ()
    shared: int = 1
    holds_others: bool = False

    def pairs(self, noisy: Noisy) -> Pairs:
        """Of one draw, for each kind of neighbour."""
        return Pairs(*(self._pair(each, noisy) for each in ADJACENCIES))

    @property
    def is_told(self) -> bool:
        """Whether who is drawn is known, or taken to be."""
        return self.known or not self.by.secret

    def _pair(self, neighbour: Neighbour, noisy: Noisy) -> Pair | Why:
        cases = self.cases(neighbour, noisy)
        return cases if isinstance(cases, Why) else self.of_cases(cases, neighbour, noisy)

    def cases(self, neighbour: Neighbour, noisy: Noisy) -> Cases | Why:
        """What happens to the units, as far as the view is not told."""
        if noisy.kind == "laplace" and self.who.lost:
            return _NO_LAPLACE
        why = dict(self.closed).get(neighbour)
        why = why or not_of(self.by, self.known, neighbour, self.who.stays)
        return why or self.by.cases("zeroed" if self.is_told else neighbour, self.who)

    def of_cases(self, cases: Cases, neighbour: Neighbour, noisy: Noisy) -> Pair:
        """Of one draw, as `fedpriv.proof.drawn.Drawn`."""
        if self.apart:
            units = self.by.units if isinstance(self.by, AcrossGroups) else self.who.units
            noisy, cases = of_several(noisy, units), tuple(map(_apart, cases))
        near = noisy.moved(2) if neighbour == "replaced" or self.holds_others else noisy
        if self.is_told:
            each = (one for case in cases for one in case.shown(near))
            return told((p, pair if pair == SEEN else times(pair, self.shared)) for p, pair in each)
        if self.by.block is not None and self.by.block > 1:
            return _of_block(self.by.block, cases, near)
        return self.by.pair(cases, neighbour, near, self.who)


def _apart(case: Case) -> Case:
    return replace(case, law=tuple((math.sqrt(n), p) for n, p in case.law))


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
            rate = joining(self.among) if played else self.among.inclusion
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
