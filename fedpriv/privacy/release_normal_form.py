"""What every accountant is given: releases that say the same event in one way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedpriv.privacy.release import UNITS, VIEWS, Release
from fedpriv.privacy.sampling import Everyone

_SMALL = 0.2  # largest separation of a piece: its losses fit the finest grid


def normal_form(releases: Sequence[Release]) -> tuple[Release, ...]:
    """The same releases without what no epsilon depends on, and with one name for one event.

    A draw that everyone is in is `Everyone`. Without a participation that leaves somebody out, local steps are rounds.
    Rounds that are alike are one release.
    Beside others, Gaussian releases that every unit is in become a few equal ones of the same separation altogether,
    sqrt(sum_k 1 / multiplier_k^2) (Dong, Roth and Su 2022, Corollary 3.3), whose losses a grid holds better.

    Args:
        releases: positive, finite multipliers, at least one step.
    """
    plain = _added_up(map(_plain, releases))
    of_everyone = [r for r in plain if _is_whole(r)]
    if not of_everyone or len(of_everyone) == len(plain):
        return tuple(plain)
    return (_together(of_everyone), *(r for r in plain if not _is_whole(r)))


def is_exact(releases: Sequence[Release], relation: str) -> bool:
    """Whether nothing but Gaussian noise is secret: the view knows every draw that somebody is left out of.

    Not where noise is lost with members that vanish, as rounds in which the unit takes part then differ.

    Args:
        releases: as `normal_form` gives them.
        relation: "zero_out", where it knows all draws, or one under which `sampling` is secret.
    """
    known = relation == "zero_out"
    return all(
        r.noise == "gaussian" and (known or r.sampling.takes_all) and r.lossy is None
        for r in releases
    )


def _plain(release: Release) -> Release:
    rounds, local_steps, known = release.rounds, release.local_steps, release.participation
    if known is None or known.takes_all:
        rounds, local_steps, known = rounds * local_steps, 1, None
    drawn = release.sampling
    if drawn.takes_all:
        drawn, release = Everyone(drawn.population), release.moved(drawn.most_often)
    return Release(
        VIEWS[0],
        UNITS[0],
        release.multiplier,
        drawn,
        rounds,
        noise=release.noise,
        local_steps=local_steps,
        participation=known,
        integers=release.integers,
    )


def _added_up(releases: Iterable[Release]) -> list[Release]:
    """Those that differ in nothing but their rounds as one."""
    rounds: dict[Release, int] = {}
    for release in releases:
        once = replace(release, rounds=1)
        rounds[once] = rounds.get(once, 0) + release.rounds
    return [replace(once, rounds=count) for once, count in rounds.items()]


def _is_whole(release: Release) -> bool:
    everyone = release.sampling.takes_all and release.participation is None
    return everyone and release.noise == "gaussian"


def _together(of_everyone: Sequence[Release]) -> Release:
    squared = math.fsum(r.rounds / r.multiplier**2 for r in of_everyone)
    pieces = min(sum(r.rounds for r in of_everyone), math.ceil(squared / _SMALL**2))
    multiplier = math.sqrt(pieces / squared) * (1 - 1e-15)  # rounding never adds noise
    return replace(of_everyone[0], multiplier=multiplier, rounds=pieces)
