"""Certificates of integer noise: as real noise where that is proved, and by the divergences of its law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedpriv.privacy.integer_sums import DRAWN_APART
from fedpriv.privacy.release import Release

SET_ASIDE = 1e-3
"""Of delta, for what numbers that are drawn differ from their law by, and for rounds in which hardly any share is left."""


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
    """See `IntegerNoise.gaussian`; None where nothing is proved of one of them."""
    found, total = [], 0.0
    for release in releases:
        if release.integers is None:
            found.append(release)
            continue
        times = release.rounds * release.local_steps
        real = release.integers.gaussian(times, _loses_noise(release))
        if real is None:
            return None
        multiplier, apart = real
        found.append(replace(release, noise="gaussian", multiplier=multiplier, integers=None))
        total += apart
    return AsReal(tuple(found), total)


def with_fewest_shares(releases: Sequence[Release], chance: float) -> tuple[Release, ...]:
    """The same with as many shares as are left in all rounds, but for such a chance, wherever shares are lost.

    Formal guarantees: what they hide, with delta less the chance, is hidden, as who stays does not depend on data, and
    more noise hides no less.
    """
    lossy = sum(release.rounds for release in releases if _loses_noise(release))
    return tuple(_with_fewest(release, chance / max(lossy, 1)) for release in releases)


def _with_fewest(release: Release, chance: float) -> Release:
    if release.integers is None or not _loses_noise(release):
        return release
    drawn = (
        release.participation
        if release.sampling.takes_all and release.participation
        else release.sampling
    )
    cases = sorted(
        (case for case in drawn.cases() if case.rate > 0), key=lambda case: -case.distance
    )
    left = math.inf
    for case in cases:
        left = case.distance
        chance -= case.chance
        if chance < 0:
            break
    noise = None if math.isinf(left) else release.integers.with_part(left**-2)
    whole = {"sampling": release.sampling.with_whole_noise()}
    if release.participation is not None:
        whole["participation"] = release.participation.with_whole_noise()
    if noise is None:
        return replace(release, multiplier=0.0, integers=None, **whole)
    return replace(release, multiplier=noise.multiplier, integers=noise, **whole)


def _loses_noise(release: Release) -> bool:
    known = release.participation
    return release.sampling.loses_noise or (known is not None and known.loses_noise)


def drawn_apart(releases: Sequence[Release]) -> float:
    """In total variation, how far all that is drawn is from its law, at most."""
    return sum(
        DRAWN_APART
        * r.rounds
        * r.local_steps
        * r.integers.dimension
        * r.integers.shares.bit_length()
        for r in releases
        if r.integers is not None
    )
