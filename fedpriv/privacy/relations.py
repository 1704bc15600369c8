"""Neighbouring data sets: which relation a view is certified under, and how far it lets a sum move."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.core.arguments import require
from fedpriv.privacy.release import Release


def relation_of(releases: Sequence[Release], view: str) -> str:
    """The relation under which `releases`, all of `view`, are certified.

    A third party does not know who takes part, and nobody but the client which of its records a local step draws.
    Poisson cohorts, and blocks, are bounded for a unit added or removed, cohorts of fixed size for one replaced. The
    other views see which clients take part, so that a removed one could not be hidden: its contributions become zero
    instead. So they do for cohorts drawn with replacement, whose secrecy is not used: the view is taken to know how
    often each unit is drawn.

    Raises:
        ValueError: Poisson, fixed-size and with-replacement draws together; clients of a person that may be missing
            together with its records; Poisson cohorts together with clients who add all of their noise themselves, or a
            share that may be lost: it is gone when one of them is removed; or together with cohorts of which the view
            is taken to know who takes part, where a removed one is missing; cohorts of varying sizes, all of whose
            noise clients add themselves, as if they were secret.
    """
    of_kinds = {type(r.sampling).__name__: r.sampling.adjacency for r in releases}
    adjacencies = sorted({r.sampling.adjacency for r in releases if r.sampling.adjacency})
    hidden = view == "third_party" or all(release.of_records for release in releases)
    if not hidden or set(adjacencies) <= {"zero_out"}:
        return "zero_out"
    drawn = sorted(kind for kind, adjacency in of_kinds.items() if adjacency)
    words = " and ".join(adjacencies).replace("_", "-")
    require(
        len(adjacencies) == 1,
        "sampling",
        drawn,
        f"certified for {words} adjacency, which do not compose; draw all cohorts the same way",
    )
    require(
        not any(map(_tells_by_its_noise, releases)),
        "sampling",
        drawn,
        "a sum of so many clients' own noises tells how many there are, and of nobody it is exactly 0; give the draw "
        "as `participation`, with Everyone",
    )
    if adjacencies == ["replace_one"]:
        return "replace_one"
    of_what = {release.of_records for release in releases if release.multiplier > 0}
    require(
        len(of_what) < 2,
        "releases",
        drawn,
        "some hide a person's clients, certified for add-or-remove adjacency, and others its records, at clients that "
        "stay, which does not compose; protect one of the two, or draw cohorts of fixed size",
    )
    require(
        not any(map(_takes_noise_along, releases)),
        "sampling",
        drawn,
        "certified for add-or-remove adjacency, which does not compose with clients who add all of the noise, or a "
        "share that may be lost: a removed client takes it along; add all noise the same way, or draw cohorts of "
        "fixed size",
    )
    require(
        not any(map(_is_shown, releases)),
        "sampling",
        drawn,
        "certified for add-or-remove adjacency, which does not compose with cohorts that clients remember, of which a "
        "view is taken to know who takes part, certified for zero-out adjacency; draw all cohorts the same way",
    )
    return "add_or_remove"


def _takes_noise_along(release: Release) -> bool:
    """Whether noise that each client adds itself is gone with it, and who takes part is taken to be known."""
    known = release.participation
    own = release.goes_with_its_unit or (known is not None and known.loses_noise)
    counts = release.multiplier > 0 and not release.of_records
    return own and counts and release.sampling.adjacency is None


def _tells_by_its_noise(release: Release) -> bool:
    """Whether noise that each client adds itself tells who takes part, though that is to be secret."""
    drawn = release.sampling
    counts = release.multiplier > 0 and not release.of_records and release.goes_with_its_unit
    return counts and drawn.adjacency is not None and drawn.is_known_with_own_noise


def _is_shown(release: Release) -> bool:
    """Whether a view is taken to know which clients take part, though not all do."""
    known = release.participation
    counts = release.multiplier > 0 and not release.of_records
    return counts and known is not None and not known.takes_all


def multiplier_for(release: Release, relation: str) -> float:
    """The release's multiplier relative to what `relation` can move: the one place where relations are converted.

    A `Release` is relative to zeroing out a unit (norm C); a unit that is replaced moves by up to 2 C. dp-accounting
    0.6 counts so in its RDP accountant under REPLACE_ONE; its PLD accountant doubles the distance itself, and is not
    used.
    """
    return release.multiplier / 2 if relation == "replace_one" else release.multiplier
