"""Neighbouring data sets: which relation a view is certified under, and how far it lets a sum move."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.privacy.argument_validation import require
from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import Everyone, FixedSize, Poisson, WithReplacement


def relation_of(releases: Sequence[Release], view: str) -> str:
    """The relation under which `releases`, all of `view`, are certified.

    A third party does not know who takes part, and nobody but the client which of its records a local step draws:
        Poisson
    cohorts are bounded for a unit added or removed, cohorts of fixed size for one replaced. The other views see which
    clients take part, so that a removed one could not be hidden: its contributions become zero instead. So they do for
    cohorts drawn with replacement, whose secrecy is not used.

    Raises:
        ValueError: Poisson, fixed-size and with-replacement cohorts in one run.
    """
    kinds = {type(release.sampling) for release in releases}
    hidden = view == "third_party" or all(release.unit == "record" for release in releases)
    if not hidden or kinds <= {Everyone, WithReplacement}:
        return "zero_out"
    mixed = len(kinds & {Poisson, FixedSize, WithReplacement}) > 1
    names = sorted(kind.__name__ for kind in kinds)
    require(not mixed, "sampling", names, "draw all cohorts of a run in one way, or certify apart")
    return "replace_one" if FixedSize in kinds else "add_or_remove"


def multiplier_for(release: Release, relation: str) -> float:
    """The release's multiplier relative to what `relation` can move: the one place where relations are converted.

    A `Release` is relative to zeroing out a unit (norm C); a unit that is replaced moves by up to 2 C. dp-accounting
    0.6 counts so in its RDP accountant under REPLACE_ONE; its PLD accountant doubles the distance itself, and is not
    used.
    """
    return release.multiplier / 2 if relation == "replace_one" else release.multiplier
