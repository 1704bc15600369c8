"""From releases to a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType

from fedpriv.privacy import known_cohort, third_party
from fedpriv.privacy.arguments import require, require_delta
from fedpriv.privacy.reading import is_exact, read
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.release import NOISE, VIEWS, Certificate, Release
from fedpriv.privacy.sampling import Poisson, WithReplacement

# dp-accounting fails where sigma^-2 underflows or e^(1 / b) overflows.
_LOUDEST = 1e6
_LEAST = {"gaussian": 1e-4, "laplace": 5e-3}

_NO_BOUND = (
    "no accountant has a finite number at this delta: it is below what rounding, or the chance that a cohort is cut "
    "to its capacity, leaves of it, or there is too little noise; raise delta, the capacity or the noise"
)


def certify_releases(
    releases: Sequence[Release], delta: float, view: str, *, honest: float = 1.0
) -> Certificate:
    """Proved epsilon of `releases`, of which those of other views are ignored.

    Several of this view are composed, with cohorts drawn independently (see `Release` for what shares a cohort). The
    smaller of the accountants' epsilons is reported and both are kept.

    Formal guarantees: epsilon is an upper bound; see `third_party.epsilons` for the view that
    does not know the cohort and `known_cohort.epsilons` for the others and where everyone takes
    part. Floating-point rounding is allowed for but not proved. Nothing released (no rounds,
    infinite multipliers) gives 0, a multiplier of 0 gives infinity.

    Raises:
        ValueError: for a delta, view or fraction that is not allowed, a view without a release, releases of
            different units, or Poisson and fixed-size cohorts in one view.
    """
    require_delta(delta)
    require(view in VIEWS, "view", view, f"give one of {', '.join(VIEWS)}")
    require(0 < honest <= 1, "honest", honest, "give a fraction of the cohort in (0, 1]")
    seen = [release for release in releases if release.view == view]
    remedy = f"declare a release of this view (found: {sorted({r.view for r in releases})})"
    require(bool(seen), "view", view, remedy)
    units = sorted({release.unit for release in seen})
    require(len(units) == 1, "unit", units, "certify one unit at a time")

    seen = [_within_range(release.with_honest(honest)) for release in seen]
    template = Certificate(
        epsilon=0.0,
        delta=delta,
        view=view,
        unit=units[0],
        relation=relation_of(seen, view),
        event=" + ".join(release.event for release in seen),
        accountant="none",
        bound="exact",
        assumptions=("nothing about the unit is released",),
    )
    bare = [release for release in seen if release.steps > 0 and release.multiplier == 0]
    if bare:
        return _nothing_hides(bare, template)
    active = [r for r in seen if r.steps > 0 and math.isfinite(r.multiplier)]
    return _composed(active, template, honest) if active else template


def _nothing_hides(bare: Sequence[Release], template: Certificate) -> Certificate:
    """Epsilon is infinite, with the reasons given by the releases among the assumptions."""
    default = "neither a clip and its noise nor anything else hides the unit"
    reasons = tuple(dict.fromkeys(release.reason or default for release in bare))
    return replace(
        template,
        epsilon=math.inf,
        bound="no finite bound",
        assumptions=tuple(f"not private: {reason}" for reason in reasons),
    )


def _composed(active: Sequence[Release], template: Certificate, honest: float) -> Certificate:
    delta, view = template.delta, template.view
    relation = relation_of(active, view)
    hidden = relation != "zero_out"
    route = _route(hidden)
    epsilons = dict(_epsilons(hidden, read(active), relation, delta))
    accountant = min(epsilons, key=lambda name: epsilons[name])
    bound = third_party.BOUNDS[accountant]
    if accountant == "PLD" and is_exact(read(active), relation):
        bound = known_cohort.bound(active, view)
    texts = route.assumptions(active)
    if any(isinstance(r.participation or r.sampling, WithReplacement) for r in active):
        texts = (
            *texts,
            "the weights that cohorts are drawn by, such as clients' sizes, are public",
        )
    if view == "server_secagg" and any(r.noise_is_split for r in active):
        texts = (*texts, "secure aggregation shows nothing but the sum")
    if math.isinf(epsilons[accountant]):
        bound = "no finite bound"
        texts = (_NO_BOUND, *texts)
    return replace(
        template,
        epsilon=epsilons[accountant],
        relation=relation,
        accountant=accountant,
        bound=bound,
        assumptions=(*texts, *_shares(active, relation, honest), *NOISE),
        epsilons=epsilons,
    )


def _route(hidden: bool) -> ModuleType:
    return third_party if hidden else known_cohort


@lru_cache(maxsize=256)  # at record level, and where everyone takes part, the views see the same
def _epsilons(
    hidden: bool, releases: tuple[Release, ...], relation: str, delta: float
) -> dict[str, float]:
    return _route(hidden).epsilons(releases, relation, delta)


def _within_range(release: Release) -> Release:
    """Multipliers that floats can work with; counting less noise than there is stays sound."""
    if release.multiplier >= _LEAST[release.noise]:
        loud = math.isfinite(release.multiplier) and release.multiplier > _LOUDEST
        return replace(release, multiplier=_LOUDEST) if loud else release
    if release.multiplier == 0:
        return release
    reason = (
        f"the noise is {release.multiplier:.3g} of what it hides, too little for a finite number"
    )
    return replace(release, multiplier=0.0, reason=reason)


def _shares(active: Sequence[Release], relation: str, honest: float) -> tuple[str, ...]:
    """What is assumed of those who add the noise."""
    texts = []
    if any(release.server_adds_noise for release in active):
        texts.append(
            "the server adds all of the noise to the sum in every round, also in one that nobody joins, and shows "
            "nothing else"
        )
    if not all(release.noise_is_split or release.server_adds_noise for release in active):
        texts.append("whoever holds the unit adds that noise itself, before anything leaves it")
    if not any(release.noise_is_split for release in active):
        return tuple(texts)
    if honest == 1:
        texts.append(
            "each of the s members of a cohort adds 1 / s of the noise's variance and keeps it to itself; if only "
            "a fraction h does, the multiplier is sqrt(h) of the one accounted for (`honest`)"
        )
    else:
        texts.append(
            f"{honest:.4g} of the noise's variance is added and unknown to the view; how much more there is "
            "depends neither on the unit nor on who takes part"
        )
    if relation != "zero_out":
        if any(isinstance(release.sampling, Poisson) for release in active):
            texts.append("the noise is whole in every round, also in one that nobody joins")
        if honest < 1:
            texts.append(
                "who does not add its share drops out or colludes without telling whether it took part: with the "
                "size of the cohort that would say something of the others"
            )
    return tuple(texts)
