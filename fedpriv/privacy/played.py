"""What audits draw of what is seen: draws as they happen, where pairs count a case that costs more."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.noisy_integers import NoisyIntegers
from fedpriv.privacy.rows import featured, pairs_of
from fedpriv.privacy.sampling.asked import joining
from fedpriv.privacy.sampling.kinds_of_units import Case
from fedpriv.proof.cases import ADJACENCIES, Cases, Neighbour, Noisy, Pairs, Why
from fedpriv.proof.draws import Sampling
from fedpriv.proof.noise import Noise
from fedpriv.proof.pairs import All, Moved, Pair, Times, Told, fold
from fedpriv.proof.seen import Seen


class Plays(NamedTuple):
    """What an audit draws.

    Attributes:
        used: the `fp.Mechanism` that bounds a contribution and perturbs the sum; None where there is none.
        noisy: the noise that is seen, and how far it is moved by a unit that is drawn once and zeroed.
        pairs: as `Seen.pairs`, of draws as they happen, where those count a case that costs more. Of integer noise the
            moves alone: those of real noise of its multiplier.
        drawn: how the units of a round, or the records of a local step, are drawn.
        steps: how often in a round.
        lost: whether shares of the noise are lost with members who vanish.
        of_records: whether records are drawn, and not clients.
    """

    used: Any
    noisy: Noisy
    pairs: Pairs
    drawn: Sampling
    steps: int = 1
    lost: bool = False
    of_records: bool = False

    @property
    def noise(self) -> str | Noise:
        """That is seen."""
        return self.noisy.noise

    @property
    def far(self) -> float:
        """In its deviations; integers: 1."""
        return self.noisy.far

    @property
    def multiplier(self) -> float:
        """Of a unit that is zeroed."""
        return self.noisy.multiplier

    @property
    def kind(self) -> str:
        """Of noise."""
        return self.noisy.kind

    @property
    def farthest(self) -> int:
        """How often one draw can hold a unit."""
        return self.drawn.repeats


def plays_of(seen: Seen) -> Plays | None:
    """What audits draw of what is seen; None where that is several things of one draw, or declared by its pairs."""
    if len(seen.rows) != 1 or len(seen.rows[0].parts) > 1:
        return None
    row = featured(seen.rows[0])
    drawn, steps = row.drawn, row.repeated.steps
    pairs = pairs_of(row, played, played=True)
    return Plays(row.used, row.noisy, pairs, drawn.by, steps, drawn.who.lost, row.of_records)


def is_drawable(seen: Seen) -> bool:
    """Whether audits can draw it."""
    plays = plays_of(seen) if seen.hidden else None
    return plays is not None and plays.used is not None


def played(drawn: Drawn, noisy: Noisy) -> Pairs:
    """As `Drawn.pairs`, as it happens: whoever is displaced is not played, nor what seldom counts as seen."""

    def pair(neighbour: Neighbour) -> Pair | Why:
        cases = drawn.cases(neighbour, noisy)
        if isinstance(cases, Why):
            return cases
        near = (
            Noisy("gaussian", 1 / noisy.multiplier) if isinstance(noisy, NoisyIntegers) else noisy
        )
        costly = drawn.is_told or any(_costs(case) for case in cases)
        if costly and not drawn.who.lost and drawn.by.block is None:
            cases = (Case(1.0, _as_it_happens(drawn, cases)),)
        finite = tuple(case for case in cases if math.isfinite(case.far))
        whole = math.fsum(case.chance for case in finite)
        finite = tuple(replace(case, chance=case.chance / whole) for case in finite)
        found = drawn.of_cases(finite, neighbour, near)
        return _with_others_in_place(found) if neighbour == "replaced" else found

    return Pairs(*map(pair, ADJACENCIES))


def _costs(case: Any) -> bool:
    return case.far != 1 or getattr(case, "in_place", False)


def _as_it_happens(drawn: Drawn, cases: Cases) -> tuple[tuple[float, float], ...]:
    if drawn.is_told and drawn.who.units == drawn.by.repeats == 1:
        return ((1.0, joining(drawn.by)),)
    law: dict[float, float] = {}
    for case in cases:
        for n, p in case.law:
            law[n] = law.get(n, 0.0) + case.chance * p
    return tuple(sorted(law.items()))


def _with_others_in_place(pair: Pair) -> Pair:
    """As it is played where units are replaced: moved one way by this unit, the other way by another."""

    def leaf(draw: Pair) -> Pair:
        return replace(draw, replaced=True) if isinstance(draw, Moved) else draw

    return fold(pair, leaf, lambda cases: Told(tuple(cases)), Times, lambda each: All(tuple(each)))
