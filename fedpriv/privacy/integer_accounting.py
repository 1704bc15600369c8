"""Certificates of integer noise: as real noise where that is proved, and by the divergences of its law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedpriv.pairs.integer_noise import DRAWN_APART
from fedpriv.pairs.search import SET_ASIDE
from fedpriv.privacy.release import Release


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


def seldom_lost(settings: Sequence[Sequence[Release]], best_of: float, delta: float) -> float:
    """The chance, in each round, of so few shares that they count as if all were seen; 0 where none is lost.

    In all rounds of `best_of` runs on average, each of one of the settings, that is half of what is set aside of delta.
    """
    lossy = max(
        sum(r.rounds * r.local_steps for r in run if r.integers is not None and r.lossy)
        for run in settings
    )
    return SET_ASIDE / 2 * delta / lossy / best_of if lossy else 0.0


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
