"""From releases to a certificate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedpriv.core.arguments import MeanRuns, Probability, Rate, checked, require
from fedpriv.pairs.algebra import NOTHING, SEEN, AnyPair, Slack
from fedpriv.pairs.search import Found, by_divergences, by_losses
from fedpriv.pairs.verify import Exact
from fedpriv.privacy.assumptions import assumptions
from fedpriv.privacy.certificate import Certificate
from fedpriv.privacy.profile import Composition
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.release import BEST_RUN, NOTHING_HIDES, ONE_RUN, Release, View
from fedpriv.privacy.release_pairs import pairs_of

# Beyond, rounding counts; and dp-accounting fails where e^(1 / b) overflows.
_LOUDEST = 1e9
_LEAST = {"gaussian": 1e-4, "laplace": 5e-3, "discrete_gaussian": 1e-4, "skellam": 1e-4}

_ANALYTIC = "analytic Gaussian curve, root rounded up"
_BOUNDS = {
    "PLD": "upper: privacy losses are discretised pessimistically (connect the dots)",
    "RDP": "upper: Rényi orders 1.1 to 1024, conversion of Canonne, Kamath and Steinke",
}
_WAYS = {"PLD": by_losses, "RDP": by_divergences}
_NO_BOUND = (
    "no accountant has a finite number at this delta: there is too little noise, or delta is smaller than what is left "
    "out of the tails of the noise; raise the noise, or delta"
)


def certify_releases(
    releases: Sequence[Release],
    delta: Probability,
    view: View,
    *,
    honest: Rate = 1.0,
    best_of: MeanRuns = 1.0,
) -> Certificate:
    """Proved epsilon of `releases`, of which those of other views are ignored.

    With `best_of` the number is that of the best of a random number of runs, geometric with that mean, by Rényi
    divergences alone.

    Several of this view are composed, with cohorts drawn independently (see `Release` for what shares a cohort). The
    smaller of the accountants' epsilons is reported and both are kept.

    Formal guarantees: epsilon is an upper bound, see `release_pairs`, and `pairs/README.md` for what of rounding is
    proved. Nothing released (no rounds, infinite multipliers) gives 0, a multiplier of 0 gives infinity.

    Raises:
        ValueError: for a delta, view, fraction or mean that is not allowed, a view without a release, releases of
            different units, or Poisson and fixed-size cohorts in one view; the best of several runs towards a server,
            or with noise of which no Rényi divergences are known.
    """
    delta = checked("delta", delta, Probability)
    view = checked("view", view, View)
    honest = checked("honest", honest, Rate)
    best_of = checked("best_of", best_of, MeanRuns)
    known = isinstance(releases, Sequence) and all(isinstance(r, Release) for r in releases)
    remedy = "give those of fp.trace_round(...).releases(rounds)"
    require(known, "releases", releases, remedy)
    public = view == "third_party" or best_of == 1
    require(public, "view", view, "a server sees every run, not only the best; leave best_of out")
    of_view = [release for release in releases if release.view == view]
    remedy = f"declare a release of this view (found: {sorted({r.view for r in releases})})"
    require(bool(of_view), "view", view, remedy)
    units = sorted({release.unit for release in of_view})
    remedy = "certify one unit at a time: an epsilon hides either records or whole clients"
    require(len(units) == 1, "unit", units, remedy)

    of_view = [_within_range(release.with_honest(honest)) for release in of_view]
    bare = [release for release in of_view if release.rounds > 0 and release.multiplier == 0]
    active = _active(of_view)
    # Without noise all is infinite, and what shows nothing costs nothing: neither has to compose with the rest.
    counted = bare or active or of_view[:1]
    template = Certificate(
        epsilon=0.0,
        delta=delta,
        view=view,
        unit=units[0],
        relation=relation_of(counted, view),
        event=" + ".join(release.event for release in of_view),
        accountant="none",
        bound="exact",
        assumptions=("nothing about the unit is released",),
        compositions=(_not_composed(relation_of(counted, view), hidden=not bare),),
    )
    if bare:
        return _nothing_hides(bare, template)
    return _composed(active, template, honest, best_of) if active else template


def certify_choice(
    settings: Sequence[Sequence[Release]], delta: Probability, best_of: MeanRuns
) -> Certificate:
    """Proved epsilon towards a third party of the best of a random number of runs, each with settings drawn at random.

    Its epsilon and profile count, at every Rényi order, the settings that cost most there. Its event is that of the
    settings that are costliest at `delta`, and it says so; it assumes what any of the settings do. Formal guarantees:
    see `pairs.divergences` and `certify_releases`.

    Args:
        settings: what a run of each releases, at least one.
        delta: probability, in (0, 1).
        best_of: mean of the geometric number of runs, more than 1.

    Raises:
        ValueError: as `certify_releases`; settings whose certificates are of other units or adjacencies.
    """
    best_of = checked("best_of", best_of, MeanRuns)
    require(best_of > 1, "best_of", best_of, "give a mean number of runs above 1")
    given = type(settings) in (list, tuple) and len(settings) > 0
    given = given and all(
        type(each) in (list, tuple) and all(isinstance(one, Release) for one in each)
        for each in settings
    )
    require(given, "settings", settings, "give a list of what a run of each releases, a list each")
    certificates = [
        certify_releases(each, delta, "third_party", best_of=best_of) for each in settings
    ]
    shown = [c for c in certificates if c.accountant != "none" or c.epsilon > 0]
    for field in ("unit", "relation"):
        kinds = sorted({getattr(c, field) for c in shown})
        require(len(kinds) < 2, field, kinds, "choose among settings of one kind")
    worst = max(certificates, key=lambda c: c.epsilon)
    of_view = ([r for r in each if r.view == worst.view] for each in settings)
    active = [own for each in of_view if (own := _active(map(_within_range, each)))]
    bare = [c for c in certificates if not c.compositions[0].hidden]
    if len(certificates) == 1 or not active or bare:
        return bare[0] if bare else worst
    pairs = pairs_of(active, worst.relation, delta, best_of)
    found = _found(pairs, delta)["RDP"]
    event = f"{worst.event}, the costliest of {len(certificates)} settings"
    bound = f"{worst.bound}, of the settings that cost most at each order"
    return replace(
        worst,
        epsilon=found.epsilon,
        event=event,
        bound=bound,
        assumptions=tuple(dict.fromkeys(t for c in (worst, *shown) for t in c.assumptions)),
        epsilons={"RDP": found.epsilon},
        compositions=(_composition(pairs, "RDP", worst.relation, found),),
    )


def _not_composed(relation: str, hidden: bool) -> Composition:
    """Where nothing is released, or nothing hidden."""
    if hidden:
        return Composition(NOTHING, relation, 0.0, Exact())
    return Composition(SEEN, relation)


def _active(releases: Iterable[Release]) -> list[Release]:
    """Those that show something, through noise."""
    return [r for r in releases if r.rounds > 0 and math.isfinite(r.multiplier)]


def _nothing_hides(bare: Sequence[Release], template: Certificate) -> Certificate:
    """Epsilon is infinite, with the reasons given by the releases among the assumptions."""
    reasons = tuple(dict.fromkeys(release.reason or NOTHING_HIDES for release in bare))
    return replace(
        template,
        epsilon=math.inf,
        bound="no finite bound",
        assumptions=tuple(f"not private: {reason}" for reason in reasons),
    )


def _composed(
    active: Sequence[Release], template: Certificate, honest: float, best_of: float
) -> Certificate:
    """`template` with the smallest epsilon that an accountant gives, its bound, and what it assumes."""
    delta, view, relation = template.delta, template.view, template.relation
    pairs = pairs_of([active], relation, delta, best_of)
    found = _found(pairs, delta)
    if not found:
        raise ValueError(
            f"best_of: {best_of:g}; no Rényi divergences are known for this noise and sampling; leave it out"
        )
    accountant = min(found, key=lambda name: found[name].epsilon)
    epsilon, witness = found[accountant]
    bound = _BOUNDS[accountant]
    if witness == Exact():
        bound = _of_mixture(active, view)
    texts = assumptions(active, view, relation, honest)
    event = template.event
    if best_of > 1:
        texts = tuple(BEST_RUN if text == ONE_RUN else text for text in texts)
        event = f"the best of a geometric number of runs, {best_of:g} on average, each of {event}"
    if math.isinf(epsilon):
        bound = "no finite bound"
        texts = (_NO_BOUND, *texts)
    return replace(
        template,
        epsilon=epsilon,
        event=event,
        accountant=accountant,
        bound=bound,
        assumptions=texts,
        epsilons={name: each.epsilon for name, each in found.items()},
        compositions=(_composition(pairs, accountant, relation, found[accountant]),),
    )


def _found(pairs: dict[str, AnyPair], delta: float) -> dict[str, Found]:
    """Accountant -> the least epsilon that it shows, of those that know the pair."""
    known = {name: _WAYS[name](pair, delta) for name, pair in pairs.items()}
    found = {name: one for name, one in known.items() if one is not None}
    if not found and any(isinstance(pair, Slack) for pair in pairs.values()):
        return {"RDP": Found(math.inf, None)}
    return found


def _composition(
    pairs: dict[str, AnyPair], accountant: str, relation: str, found: Found
) -> Composition:
    own = pairs[accountant]
    others = tuple(dict.fromkeys(pair for pair in pairs.values() if pair != own))
    return Composition(own, relation, found.epsilon, found.witness, others)


def _of_mixture(releases: Sequence[Release], view: str) -> str:
    """Which side of the truth the exact Gaussian number lies on."""
    drawn = [d for r in releases for d in (r.sampling, r.participation) if d is not None]
    exact = all(r.counts_others and not r.lossy and not r.integers for r in releases)
    exact &= all(d.is_attained for d in drawn)
    if view == "third_party":  # which need not know who takes part
        exact &= all(d.takes_all for d in drawn)
    return f"upper, attained in the worst case: {_ANALYTIC}" if exact else f"upper: {_ANALYTIC}"


def _within_range(release: Release) -> Release:
    """Multipliers that floats can work with; counting less noise than there is stays sound."""
    if release.multiplier >= _LEAST[release.noise] * release.sampling.most_often:
        loud = math.isfinite(release.multiplier) and release.multiplier > _LOUDEST
        return replace(release, multiplier=_LOUDEST) if loud and not release.integers else release
    if release.multiplier == 0:
        return release
    reason = (
        f"the noise is {release.multiplier:.3g} of what it hides, too little for a finite number"
    )
    return replace(release, multiplier=0.0, reason=reason, integers=None)
