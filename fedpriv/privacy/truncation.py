"""Cohorts that are cut down to a capacity, or whose members vanish: what one client then does to the sum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedpriv.privacy.sampling import Allocation, Dropping, Poisson, Sampling

_NEVER = 1e-250  # cuts rarer than this are left out; the margin for rounding covers them
_SELDOM = 1e-30  # so seldom do so few members stay that the unit counts as seen
_MOST_CASES = 128  # of how many stay


class DrawCase(NamedTuple):
    """A case that does not depend on whether the unit is there: with it, the unit moves the sum at `rate`.

    Attributes:
        chance: probability of the case.
        rate: probability that the unit is in the cohort, given the case.
        distance: how far it then moves the sum, in its clip norms; infinity where it is seen.
    """

    chance: float
    rate: float
    distance: float


def is_cut(sampling: Sampling) -> bool:
    """Whether a cohort is ever cut down (with a probability above 1e-250)."""
    if isinstance(sampling, Allocation):
        return _full_rounds(sampling)[0] > _NEVER
    if not isinstance(sampling, Poisson) or not sampling.can_be_cut:
        return False
    from scipy.special import betainc  # scipy.stats takes a second to import

    size, n, rate = sampling.capacity, sampling.population, sampling.rate
    assert size is not None
    return bool(betainc(size + 1, n - size, rate) > _NEVER)  # Pr[Bin(n, rate) > size]


def seen_in_a_cut(sampling: Sampling) -> float:
    """Probability that a unit takes the place of another in a round, or a block, where these remember it."""
    if not isinstance(sampling, Poisson | Allocation):
        return 0.0
    cases = draw_cases(replace(sampling, neighbour="remembered"))
    return sum(case.chance * case.rate for case in cases if math.isinf(case.distance))


def draw_cases(sampling: Sampling) -> tuple[DrawCase, ...]:
    """The cases of a Poisson cohort, or of everyone, when one unit is added or removed; of fixed sizes, replaced.

    Where members vanish and the noise is whole, there is one case, at the rate of being drawn and staying. *Proof.* Let
    B be the law of the sum given that the unit is drawn and stays, A of the sum otherwise, and T the others of its
    cohort that stay: of s - 1 others each with probability 1 - p. Otherwise those who stay are T alone where the unit
    is drawn and vanishes. Where it is not drawn there is one other more, j, who stays with probability 1 - p: they are
    T and j, or T. So B and A have a coupling in which the unit is replaced by j or left out, which moves the sum by 2 C
    or C, and those are the pairs that `curves.replace_delta` asks for. For this the number of those who stay has to be
    secret, as the noise does not show it.

    Formal guarantees: the pair of sums with and without the unit is dominated, in each direction, by the pair that
    shows the case and has noise moved by `distance` at `rate`, or not moved.

    *Proof.* Of the N - 1 other units K ~ Bin(N - 1, q) join, whether or not the unit is there; B is the capacity. Let S
    be the cohort without the unit: all that join where K < B, else a uniform subset of B of them. Given S and K < B
    the unit joins with probability q, and adds u. Given S and K >= B the cohort with the unit is the uniform subset of
    B of K, or K + 1, that joined: it holds the unit with probability q B / (K + 1), which then stands in the place of
    a uniform member y of S, or it is distributed as S. That is, given S and |S| = B, it is with r = E[q B / (K + 1) |
    K >= B] that the sum moves by u - y, of norm at most 2 C, y random. So given S the pair is (1 - r) P + r Q against
    P, Q a mixture of P moved by at most 2 C. Its hockey-stick divergences are r H_b(Q || P) and (1 - a (1 - r)) H_b'(P
    || Q) (see `curves.remove_delta`, `curves.add_delta`), and those of Q and P are convex in Q, so at most those of P
    moved by 2 C. S has the same law on both sides; averaging over it gives, by joint convexity, the bound.

    Where units remember when they were drawn (their later messages depend on it), y shows for ever that it made room.
    So a unit that displaces another counts as seen, at an infinite distance; else the others remember the same, with
    the unit and without it, and rounds compose as before.

    These are the cases of dp-accounting (arXiv 2508.15089), which takes a unit replaced, with noise moved to both
    sides, for the second one.

    *How tight.* At 1000 clients of which 100 join on average, multiplier 1.4, 100 rounds and delta = 1e-5, explicit
    neighbours (others all alike, the unit at the worst angle to them tried) have an epsilon of 3.80, 7.87, 6.0 and 4.5
    for capacities of 20, 50, 90 and 100, where this bound gives 3.81, 7.88, 12.2 and 10.6, dp-accounting's 4.23, 9.47,
    15.4 and 12.8, and 3.94 holds without a cut. So cohorts that are nearly always cut have nothing to gain: what a
    client displaces shows as well as itself. Where about half of them are cut, up to a factor of 2.4 is open.
    """
    if isinstance(sampling, Dropping) and sampling.noise_is_lost:
        return _of_those_who_stay(sampling)
    if isinstance(sampling, Allocation):
        return _of_a_block(sampling)
    if not isinstance(sampling, Poisson) or not is_cut(sampling):
        return (DrawCase(1.0, sampling.rate, 1.0),)
    if sampling.neighbour in ("emptied", "replaced"):
        return _of_places(sampling)
    from scipy.stats import binom

    size, n, rate = sampling.capacity, sampling.population, sampling.rate
    assert size is not None
    chance = float(binom.sf(size - 1, n - 1, rate))  # K >= B
    # E[q B / (K + 1); K >= B] = B / N Pr[Bin(N, q) > B]
    displaced = float(binom.sf(size, n, rate)) * size / n / chance
    fits = float(binom.cdf(size - 1, n - 1, rate))
    distance = math.inf if sampling.neighbour == "remembered" else 2.0
    cases = (DrawCase(fits, rate, 1.0), DrawCase(chance, min(displaced, rate), distance))
    return tuple(case for case in cases if case.chance > 0)


def _of_those_who_stay(sampling: Dropping) -> tuple[DrawCase, ...]:
    """The cases where noise is lost: by how many stay, which a sum of many coordinates shows.

    Formal guarantees: as `curves.replace_delta`, of the pair that shows the case, with noise moved by `distance`.

    *Proof.* k ~ Bin(s, 1 - p) members stay, whatever the data. Given k, they are a uniform subset of k of the N units,
    as every subset is equally likely by symmetry, and the noise has variance k / s of the whole: a cohort of fixed size
    k in which a replaced unit moves the sum sqrt(s / k) as far, in units of the noise. Divergences are jointly convex,
    so the mixture is a bound. To a view that is told who stays, so is that of `curves.shown_delta` at rate k / N: a
    unit that sends zeros is drawn as often as one that does not. Given k = 0 nobody adds noise: nothing is released.

    Neighbouring k are taken together where there are more than 128, at the largest rate and distance of them, in both
    of which the curves rise. The smallest k, of probability 1e-30 altogether, count as if the unit were seen.
    """
    from scipy.stats import binom

    s, n, stays = sampling.size, sampling.population, 1 - sampling.dropout
    k = np.arange(1, s + 1)
    seldom = int(np.sum(binom.cdf(k, s, stays) < _SELDOM))
    chances = binom.pmf(k, s, stays)
    cases = [
        DrawCase(float(binom.pmf(0, s, stays)), 0.0, 1.0),
        DrawCase(float(chances[:seldom].sum()), seldom / n, math.inf),
    ]
    kept = k[seldom:]
    for group in np.array_split(kept, min(len(kept), _MOST_CASES)):
        chance = float(chances[group - 1].sum())
        cases.append(DrawCase(chance, float(group[-1]) / n, math.sqrt(s / group[0])))
    return tuple(case for case in cases if case.chance > 0)


def _of_places(sampling: Poisson) -> tuple[DrawCase, ...]:
    """The cases where a unit's place is drawn whether or not it, or another, stands there.

    Formal guarantees: as `draw_cases`, of the pair with the unit and with an empty place, or with another unit.

    *Proof.* Let S be the other places of the cohort after the cut: its law is the same for both neighbours, and they
    differ by the unit's contribution alone, where its place is in the cohort, too. With K ~ Bin(N - 1, q) others that
    join and capacity B: |S| = K below B - 1, and the place joins with probability q. |S| = B - 1 where K = B - 1, or
    where K >= B and the place is in the subset, of probability E[q B / (K + 1); K >= B] = B / N Pr[Bin(N, q) > B]: so
    given |S| = B - 1 it is in the cohort more often. Given |S| = B it is not.
    """
    from scipy.stats import binom

    size, n, rate = sampling.capacity, sampling.population, sampling.rate
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


def _of_a_block(sampling: Allocation) -> tuple[DrawCase, ...]:
    """The cases of a block: by how many of its rounds are full without the unit.

    Of a case, `rate` is the share of the rounds in which a unit moves the sum by `distance`, in the others by 1. The
    pair of the block is dominated by that which shows the case, as in `allocation.allocation_losses`.

    *Proof.* Let the other N - 1 units draw their rounds, and B = `capacity` of a round's units stay, a uniform subset
    where there are more. A round that B or more others draw is full. All this has the same law with the unit and
    without it; let the view know it. Where the unit draws a round that is not full it joins, and nobody else is left
    out or let in. Where it draws a full one, of K others, it joins with probability B / (K + 1) in the place of a
    uniform one of those who stayed, y, or changes nothing. All other rounds are as without it, as y takes part in no
    other round of the block. So with the unit in a full round the sum moves by u - y, of norm at most 2 C, or not at
    all: by convexity that is dominated by the noise moved by 2 C. To call more rounds full, or a move longer, is sound.

    With f full rounds, Pr[f >= 1] <= b s and Pr[f >= 2] <= b (b - 1) / 2 s^2, where s = Pr[Bin(N - 1, 1 / b) >= B] is
    the chance of one: numbers of balls in bins are negatively associated (Joag-Dev and Proschan 1983).

    Where units remember when they were drawn, y shows for ever that it made room, so a unit that draws a full round
    counts as seen: in one round of b where one is full, in all where more are.
    """
    some, several = _full_rounds(sampling)
    if some <= _NEVER:
        return (DrawCase(1.0, 1.0, 1.0),)
    cut = [DrawCase(some, 1.0, 2.0)]
    if sampling.neighbour == "remembered":
        one = DrawCase(some - several, 1 / sampling.block, math.inf)
        cut = [one, DrawCase(several, 1.0, math.inf)]
    return tuple(case for case in (DrawCase(1 - some, 1.0, 1.0), *cut) if case.chance > 0)


def _full_rounds(sampling: Allocation) -> tuple[float, float]:
    """Bounds on the chances that one round of a block, or two, are full without the unit."""
    if not sampling.can_be_cut:
        return 0.0, 0.0
    from scipy.stats import binom

    b, size = sampling.block, sampling.capacity
    assert size is not None
    full = float(binom.sf(size - 1, sampling.population - 1, 1 / b))
    some = min(1.0, b * full)
    return some, min(some, b * (b - 1) / 2 * full**2)
