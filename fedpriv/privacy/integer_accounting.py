"""Certificates of integer noise: as real noise where that is proved, and by the divergences of its law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedpriv.privacy.curves import Floats
from fedpriv.privacy.integer_sums import DRAWN_APART
from fedpriv.privacy.known_participation import count
from fedpriv.privacy.release import Release
from fedpriv.privacy.renyi import OfIntegers, rdp_delta, rdp_to_epsilon

SET_ASIDE = 1e-3
"""Of delta, for what drawn numbers differ from their law by, and for rounds in which hardly any share is left."""


class AsReal(NamedTuple):
    """Real Gaussian releases that hide no more than integer ones.

    Attributes:
        releases: as many.
        apart: in nats, how far the integer ones are from a function of these: they are (epsilon + 2 apart, e^apart
            delta)-private where these are (epsilon, delta)-private.
    """

    releases: tuple[Release, ...]
    apart: float


def of_integers(releases: Sequence[Release]) -> bool:
    """Whether any noise is of integers."""
    return any(release.integers is not None for release in releases)


def as_real(releases: Sequence[Release]) -> AsReal | None:
    """See `IntegerNoise.gaussian`; None where nothing is proved of one of them.

    Nor where a part of the shares is honest and others are lost: what is left of both is a whole number of shares,
    rounded down, and real noise would count the fraction.
    """
    found, total = [], 0.0
    for release in releases:
        if release.integers is None:
            found.append(release)
            continue
        if release.lossy is not None and release.integers.shares < release.lossy.most:
            return None
        times = release.rounds * release.local_steps
        real = release.integers.gaussian(times, release.lossy is not None)
        if real is None:
            return None
        multiplier, apart = real
        found.append(replace(release, noise="gaussian", multiplier=multiplier, integers=None))
        total += apart
    return AsReal(tuple(found), total)


class Counted(NamedTuple):
    """Rounds of which a view knows in how many a unit takes part, by divergences: delta averages over that number.

    Formal guarantees: as `certify.epsilons_of`, with the bound of `renyi.rdp_delta` in place of each Gaussian's curve.

    Attributes:
        rounds: f64[n], in how many it may take part.
        chances: f64[n].
        missing: probability of numbers that are left out.
        once: f64[orders], Rényi divergences of one of them.
    """

    rounds: Floats
    chances: Floats
    missing: float
    once: Floats

    def delta(self, epsilon: Floats) -> Floats:
        """f64[n]."""
        total = np.full(len(epsilon), self.missing)
        for rounds, chance in zip(self.rounds, self.chances, strict=True):
            if rounds:
                total += chance * rdp_delta(rounds * self.once, epsilon)
        return total

    def epsilon(self, delta: float) -> float:
        """The smallest, nats, whose delta is so small, rounded up; infinity where there is none."""
        from scipy.optimize import brentq

        def excess(epsilon: float) -> float:
            return float(self.delta(np.array([epsilon]))[0]) - delta

        if self.missing >= delta:
            return math.inf
        if excess(0.0) <= 0:
            return 0.0
        top = rdp_to_epsilon(self.rounds.max() * self.once, delta - self.missing)
        if not math.isfinite(top) or excess(top) > 0:
            return math.inf
        return float(brentq(excess, 0.0, top, xtol=1e-10)) + 1e-9


def counted(releases: Sequence[Release], relation: str) -> Counted | None:
    """None where there are other releases beside one of integer noise, or shares of it are lost."""
    if len(releases) > 1 or relation != "zero_out":
        return None
    (release,) = releases
    if release.integers is None or release.lossy or release.sampling.most_often > 1:
        return None
    return Counted(*count(release), OfIntegers(release.integers).certain())


def seldom_lost(
    settings: Sequence[Sequence[Release]], best_of: float, delta: float
) -> tuple[float, float]:
    """(chance in each round, chance in all rounds) of so few shares that they are not counted; 0 where none is lost.

    Formal guarantees: of `best_of` runs on average, each of one of the settings. That some run of a geometric number K
    of them has such a round has at most E[K] times the chance of one; given that none has, K is geometric, too, and
    smaller.
    """
    lossy = max(
        sum(r.rounds for r in run if r.integers is not None and r.lossy) for run in settings
    )
    aside = SET_ASIDE / 2 * delta
    return (aside / lossy / best_of, aside) if lossy else (0.0, 0.0)


def drawn_apart(settings: Sequence[Sequence[Release]], best_of: float) -> float:
    """In total variation, how far all that is drawn is from its law, at most, in `best_of` runs on average."""
    numbers = max(sum(map(_numbers_drawn, run)) for run in settings)
    return DRAWN_APART * numbers * best_of


def _numbers_drawn(release: Release) -> int:
    """Of a sum some of whose shares are lost, one for each binary digit of how many there are."""
    if release.integers is None:
        return 0
    sums = release.rounds * release.local_steps
    return sums * release.integers.dimension * release.integers.shares.bit_length()
