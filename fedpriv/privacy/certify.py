"""From releases to a certificate: `certify`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedpriv.privacy import known_cohort, third_party
from fedpriv.privacy._checks import require, require_delta
from fedpriv.privacy.release import VIEWS, Certificate, Release
from fedpriv.privacy.sampling import Everyone, FixedSize, Poisson


def certify(releases: Sequence[Release], delta: float, view: str) -> Certificate:
    """Proved epsilon of everything that `view` sees.

    Releases of other views are ignored; several of this view are composed, with cohorts drawn
    independently (see `Release` for what shares a cohort).

    Formal guarantees: epsilon is an upper bound; see `third_party.certificate` for the view that
    does not know the cohort and `known_cohort.certificate` for the others and where everyone takes
    part. Floating-point rounding is allowed for but not proved. Nothing released (no rounds,
    infinite multipliers) gives 0, a multiplier of 0 gives infinity.

    Args:
        releases: what an algorithm declares, of any view.
        delta: probability, in (0, 1).
        view: one of `VIEWS`.

    Raises:
        ValueError: for a delta or view that is not allowed, a view without a release, releases of
            different units, or Poisson and fixed-size cohorts in one view.
    """
    certificate = _certify(releases, delta, view)
    return replace(certificate, event=_event(releases, view))


def _event(releases: Sequence[Release], view: str) -> str:
    return " + ".join(
        f"{r.steps} rounds of {r.sampling} at multiplier {r.multiplier:.4g}"
        for r in releases
        if r.view == view
    )


def _certify(releases: Sequence[Release], delta: float, view: str) -> Certificate:
    require_delta(delta)
    require(view in VIEWS, "view", view, f"give one of {', '.join(VIEWS)}")
    seen = [release for release in releases if release.view == view]
    remedy = f"declare a release of this view (found: {sorted({r.view for r in releases})})"
    require(bool(seen), "view", view, remedy)
    units = sorted({release.unit for release in seen})
    require(len(units) == 1, "unit", units, "certify one unit at a time")

    bare = [release for release in seen if release.steps > 0 and release.multiplier == 0]
    if bare:
        return _nothing_hides(bare, delta, view)
    active = [r for r in seen if r.steps > 0 and math.isfinite(r.multiplier)]
    if not active:
        return _certificate_of_nothing(seen, delta, view)
    everyone = all(isinstance(release.sampling, Everyone) for release in active)
    if view == "third_party" and not everyone:
        return third_party.certificate(active, delta)
    return known_cohort.certificate(active, delta, view)


def _nothing_hides(bare: Sequence[Release], delta: float, view: str) -> Certificate:
    """Epsilon is infinite, with the reasons given by the releases among the assumptions."""
    default = "neither a clip and its noise nor anything else hides the unit"
    reasons = tuple(dict.fromkeys(release.reason or default for release in bare))
    return Certificate(
        epsilon=math.inf,
        delta=delta,
        view=view,
        unit=bare[0].unit,
        relation=_relation(bare, view),
        accountant="none",
        bound="no finite bound",
        assumptions=tuple(f"not private: {reason}" for reason in reasons),
    )


def _certificate_of_nothing(seen: Sequence[Release], delta: float, view: str) -> Certificate:
    return Certificate(
        epsilon=0.0,
        delta=delta,
        view=view,
        unit=seen[0].unit,
        relation=_relation(seen, view),
        accountant="closed form",
        bound="exact",
        assumptions=("nothing about the unit is released",),
    )


def _relation(releases: Sequence[Release], view: str) -> str:
    """The relation that the same releases would be certified under, had they noise and rounds."""
    samplings = [release.sampling for release in releases]
    if view == "third_party" and any(isinstance(s, FixedSize) for s in samplings):
        return "replace_one"
    if view == "third_party" and any(isinstance(s, Poisson) for s in samplings):
        return "add_or_remove"
    return "zero_out"
