"""From releases to a certificate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from fedpriv.core.arguments import MeanRuns, Probability, Rate, checked, require
from fedpriv.privacy.assumptions import assumptions
from fedpriv.privacy.certificate import Certificate
from fedpriv.privacy.curves import epsilon_of_mixture
from fedpriv.privacy.integer_accounting import (
    SET_ASIDE,
    as_real,
    counted,
    drawn_apart,
    of_integers,
    seldom_lost,
)
from fedpriv.privacy.known_participation import participations
from fedpriv.privacy.losses import pld_epsilon
from fedpriv.privacy.profile import Composition
from fedpriv.privacy.relations import relation_of
from fedpriv.privacy.release import BEST_RUN, NOTHING_HIDES, ONE_RUN, Release, View
from fedpriv.privacy.release_normal_form import is_exact, normal_form
from fedpriv.privacy.renyi import rdp_epsilon

# Beyond, rounding counts; and dp-accounting fails where e^(1 / b) overflows.
_LOUDEST = 1e9
_LEAST = {"gaussian": 1e-4, "laplace": 5e-3, "discrete_gaussian": 1e-4, "skellam": 1e-4}

_ANALYTIC = "analytic Gaussian curve, root rounded up"
_BOUNDS = {
    "PLD": "upper: privacy losses are discretised pessimistically (connect the dots)",
    "RDP": "upper: Rényi orders 1.1 to 1024, conversion of Canonne, Kamath and Steinke",
}
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

    Formal guarantees: epsilon is an upper bound, see `epsilons_of`. Floating-point rounding is allowed for but not
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
    see `rdp_epsilon` and `certify_releases`.

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
    active = [normal_form(own) for each in of_view if (own := _active(map(_within_range, each)))]
    bare = [c for c in certificates if not c.compositions[0].hidden]
    if len(certificates) == 1 or not active or bare:
        return bare[0] if bare else worst
    first, *others = active  # also where epsilon is 0, as delta is not
    by_rdp = _by_divergences(first, worst.relation, delta, best_of, others)
    epsilon = math.inf if by_rdp is None else by_rdp
    composition = Composition(first, worst.relation, best_of, tuple(others), epsilon=epsilon)
    event = f"{worst.event}, the costliest of {len(certificates)} settings"
    bound = f"{worst.bound}, of the settings that cost most at each order"
    return replace(
        worst,
        epsilon=epsilon,
        event=event,
        bound=bound,
        assumptions=tuple(dict.fromkeys(t for c in (worst, *shown) for t in c.assumptions)),
        epsilons={"RDP": epsilon},
        compositions=(composition,),
    )


def _not_composed(relation: str, hidden: bool) -> Composition:
    """Where nothing is released, or nothing hidden."""
    return Composition((), relation, hidden=hidden, epsilon=0.0 if hidden else math.inf)


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
    composed = normal_form(active)
    epsilons = dict(epsilons_of(composed, relation, delta, best_of))
    accountant = min(epsilons, key=lambda name: epsilons[name])
    bound = _BOUNDS[accountant]
    if accountant == "PLD" and is_exact(composed, relation):
        bound = _of_mixture(active, view)
    texts = assumptions(active, view, relation, honest)
    event = template.event
    if best_of > 1:
        texts = tuple(BEST_RUN if text == ONE_RUN else text for text in texts)
        event = f"the best of a geometric number of runs, {best_of:g} on average, each of {event}"
    if math.isinf(epsilons[accountant]):
        bound = "no finite bound"
        texts = (_NO_BOUND, *texts)
    return replace(
        template,
        epsilon=epsilons[accountant],
        event=event,
        accountant=accountant,
        bound=bound,
        assumptions=texts,
        epsilons=epsilons,
        compositions=(Composition(composed, relation, best_of, epsilon=epsilons[accountant]),),
    )


@lru_cache(maxsize=256)  # at record level, and where everyone takes part, the views see the same
def epsilons_of(
    releases: tuple[Release, ...], relation: str, delta: float, best_of: float = 1.0
) -> dict[str, float]:
    """What a certificate's epsilon is the least of: accountant -> epsilon.

    Formal guarantees: each is an upper bound, see `losses.pld_epsilon` and `renyi.rdp_epsilon`. Where Gaussian noise
    is all that is secret, "PLD" is exact: delta(eps) = E_n[delta_Gauss(eps; sqrt(sum_k n_k / multiplier_k^2))], n_k ~
    Bin(steps_k, rate_k) independent, solved for eps; it is attained by a unit that always contributes in one
    direction at full norm. Drawn with replacement, n_k is the sum over the draws of the squares of how often each
    holds the unit.

    *Why the mixture is right.* The output is the pair (B, Y): the pattern B of who took part, and the releases Y.
    Under zero-out B has the same law for both neighbours, because cohorts are drawn without looking at the data. So
    H_a((B, Y) || (B, Y')) = sum_b Pr[b] H_a(Y | b || Y' | b). Given b with n participations, each of them is a
    Gaussian release of a unit of whitened norm at most 1 / multiplier that may depend on the past; together they are
    dominated by one Gaussian with separation sqrt(n) / multiplier (Dong, Roth and Su 2022). A draw that holds the unit
    m times is a release of whitened norm m / multiplier, so it counts m^2. Units that are drawn less often than the
    likeliest have stochastically smaller m, and the curve rises with the separation.

    A cohort cut to a capacity is counted at the rate before the cut: the true count is stochastically smaller.

    Args:
        releases: as `normal_form` gives them.
        relation: "add_or_remove", "replace_one" or "zero_out".
        delta: probability, in (0, 1); an average over the draw of the cohorts, where the view knows them.
        best_of: as `certify_releases`.
    """
    if of_integers(releases):
        return _of_integers(releases, relation, delta, best_of)
    if best_of > 1:
        return {"RDP": _of_the_best(releases, relation, delta, best_of)}
    if is_exact(releases, relation):
        by_losses = {"PLD": epsilon_of_mixture(*participations(releases, relation), delta)}
    else:
        by_losses = {"PLD": pld_epsilon(releases, relation, delta)}
    by_rdp = rdp_epsilon(releases, relation, delta)
    return by_losses if by_rdp is None else by_losses | {"RDP": by_rdp}


def _of_integers(
    releases: tuple[Release, ...], relation: str, delta: float, best_of: float
) -> dict[str, float]:
    """As `epsilons_of`, of which some are of integer noise: a part of delta is set aside, see `SET_ASIDE`."""
    kept = (1 - SET_ASIDE) * delta
    found: dict[str, float] = {}
    real = as_real(releases) if best_of == 1 else None
    if real is not None:
        by_losses = epsilons_of(normal_form(real.releases), relation, kept * math.exp(-real.apart))
        found["PLD"] = _as_drawn(by_losses["PLD"] + 2 * real.apart, [releases], delta, best_of)
    by_rdp = _by_divergences(releases, relation, delta, best_of)
    if by_rdp is not None:
        found["RDP"] = by_rdp
    by_count = counted(releases, relation) if best_of == 1 else None
    if by_count is not None:
        of_mixture = _as_drawn(by_count.epsilon(kept), [releases], delta, best_of)
        found["RDP"] = min(of_mixture, found.get("RDP", math.inf))
    return found or {"RDP": math.inf}


def _by_divergences(
    releases: Sequence[Release],
    relation: str,
    delta: float,
    best_of: float,
    others: Sequence[Sequence[Release]] = (),
) -> float | None:
    """As `rdp_epsilon`, which knows nothing of what is set aside of delta for integer noise."""
    each = [releases, *others]
    if not any(map(of_integers, each)):
        return rdp_epsilon(releases, relation, delta, best_of, others)
    kept, (seldom, _) = (1 - SET_ASIDE) * delta, seldom_lost(each, best_of, delta)
    epsilon = rdp_epsilon(releases, relation, kept, best_of, others, seldom)
    return None if epsilon is None else _as_drawn(epsilon, each, delta, best_of)


def _as_drawn(
    epsilon: float, settings: Sequence[Sequence[Release]], delta: float, best_of: float
) -> float:
    """Epsilon, where half of what is set aside of delta pays for numbers off their law; else infinity."""
    apart = drawn_apart(settings, best_of)
    pays = apart * (1 + math.exp(min(epsilon, 700))) <= SET_ASIDE / 2 * delta
    return epsilon if pays else math.inf


def _of_the_best(
    releases: tuple[Release, ...], relation: str, delta: float, best_of: float
) -> float:
    epsilon = rdp_epsilon(releases, relation, delta, best_of)
    if epsilon is None:
        raise ValueError(
            f"best_of: {best_of:g}; no Rényi divergences are known for this noise and sampling; leave it out"
        )
    return epsilon


def _of_mixture(releases: Sequence[Release], view: str) -> str:
    """Which side of the truth the exact Gaussian number lies on."""
    drawn = [d for r in releases for d in (r.sampling, r.participation) if d is not None]
    exact = all(r.counts_others for r in releases) and all(d.is_attained for d in drawn)
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
