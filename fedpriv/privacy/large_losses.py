"""Large losses, which are rare, apart from the others: what no tilt of their sum reaches."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedpriv.privacy.discretised import Losses


class Rounds(NamedTuple):
    """Equal rounds with large losses: in each the unit is, at the rate, in `local_steps` releases, and else in none."""

    losses: Losses
    local_steps: int
    rate: float
    rounds: int


class Case(NamedTuple):
    """Rounds in which the losses are of one kind each, large or not; their chances need not add up to 1.

    Attributes:
        log_weight: log of how many such cases there are.
        rounds: at least one.
    """

    log_weight: float
    rounds: tuple[Rounds, ...]


def told_apart(rounds: tuple[Rounds, ...], jumps: float) -> tuple[list[Case], float]:
    """The cases in which no release, or one, has a large loss; and a bound on the chance that several have one.

    Formal guarantees: the law of the finite loss of all rounds is that of the cases, and of what the bound counts. The
    number of pairs of releases with large losses has the mean of this bound: in a round, the releases are independent
    given that the unit is in them; rounds are independent.

    Args:
        rounds: at least one.
        jumps: expected number of large losses, at most.
    """
    split = [_split(r.losses, jumps / (len(rounds) * _releases(r))) for r in rounds]
    usual = [r._replace(losses=low) for r, (low, _) in zip(rounds, split, strict=True)]
    cases = [Case(0.0, tuple(usual))]
    expected = pairs = 0.0
    for i, (r, (low, high)) in enumerate(zip(rounds, split, strict=True)):
        chance = float(high.chances.sum())
        if chance == 0:
            continue
        expected += _releases(r) * chance
        pairs += _releases(r) * (r.local_steps - 1) / 2 * chance**2
        beside = (
            r._replace(losses=low, rounds=r.rounds - 1),
            Rounds(low, r.local_steps - 1, 1.0, 1),
            Rounds(high, 1, 1.0, 1),
        )
        others = [*usual[:i], *usual[i + 1 :], *beside]
        there = tuple(o for o in others if o.rounds * o.local_steps)
        cases.append(Case(math.log(_releases(r)), there))
    return cases, expected**2 / 2 + pairs


def _releases(r: Rounds) -> float:
    """How many the unit is in, on average."""
    return r.rounds * r.rate * r.local_steps


def _split(losses: Losses, chance: float) -> tuple[Losses, Losses]:
    """(the others, the large ones, of at most this chance)."""
    large = int(np.sum(np.cumsum(losses.chances[::-1]) <= chance))
    begin = len(losses.chances) - large
    above = losses.chances[begin:] if large else np.zeros(1)
    return (
        losses._replace(chances=losses.chances[:begin]),
        Losses(losses.low + begin, above, losses.infinity),
    )
