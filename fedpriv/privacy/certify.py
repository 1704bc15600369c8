"""From what is seen to a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedpriv.core.arguments import MeanRuns, Probability, checked, require
from fedpriv.pairs.algebra import NOTHING, SEEN, AnyPair, Pair, Slack, together
from fedpriv.pairs.integer_bounds import bounds_of
from fedpriv.pairs.search import Found, by_divergences, by_losses
from fedpriv.pairs.verify import Exact
from fedpriv.privacy.certificate import Certificate
from fedpriv.privacy.profile import Composition
from fedpriv.privacy.sampling import ADJACENCIES, Neighbour
from fedpriv.privacy.seen import BEST_RUN, ONE_RUN, Seen, View, common_neighbour
from fedpriv.privacy.words import assumptions

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


def certify_seen(
    seen: Sequence[Seen], delta: Probability, view: View, *, best_of: MeanRuns = 1.0
) -> Certificate:
    """Proved epsilon of all that is `seen`, of which that by other views is ignored.

    With `best_of` the number is that of the best of a random number of runs, geometric with that mean, by Rényi
    divergences alone.

    What this view sees is composed, with cohorts drawn independently (see `Seen`). It is certified for the first kind
    of neighbours for which all of it has a pair. The smaller of the accountants' epsilons is reported and both are
    kept.

    Formal guarantees: epsilon is an upper bound, if the pairs are, see `drawn` and each sampling, and `pairs/README.md`
    for what of rounding is proved. Nothing released gives 0, nothing hidden gives infinity.

    Raises:
        ValueError: for a delta, view or mean that is not allowed, a view that sees nothing, different units, or no kind
            of neighbours for which all has a pair; the best of several runs towards a server, or with noise of which no
            Rényi divergences are known.
    """
    delta = checked("delta", delta, Probability)
    view = checked("view", view, View)
    best_of = checked("best_of", best_of, MeanRuns)
    public = view == "third_party" or best_of == 1
    require(public, "view", view, "a server sees every run, not only the best; leave best_of out")
    of_view = _of_view(seen, view)
    counted = _counted(of_view)
    neighbour = common_neighbour(counted)
    relation = ADJACENCIES[neighbour]
    hidden = counted[0].hidden
    template = Certificate(
        epsilon=0.0,
        delta=delta,
        view=view,
        unit=of_view[0].unit,
        relation=relation,
        event=" + ".join(each.event for each in of_view),
        accountant="none",
        bound="exact",
        assumptions=("nothing about the unit is released",),
        compositions=(_not_composed(relation, hidden),),
    )
    if not hidden:
        return _nothing_hides(counted, template)
    return _composed(counted, neighbour, template, best_of) if counted[0].shows else template


def _of_view(seen: Any, view: View) -> list[Seen]:
    """Raises ValueError: none is of this view, or they are of several units."""
    known = isinstance(seen, Sequence) and all(isinstance(each, Seen) for each in seen)
    require(known, "seen", seen, "give that of fp.trace_round(...).seen(rounds)")
    of_view = [each for each in seen if each.view == view]
    remedy = f"declare what this view sees (found: {sorted({each.view for each in seen})})"
    require(bool(of_view), "view", view, remedy)
    units = sorted({each.unit for each in of_view})
    remedy = "certify one unit at a time: an epsilon hides either records or whole clients"
    require(len(units) == 1, "unit", units, remedy)
    return of_view


def _counted(of_view: Sequence[Seen]) -> Sequence[Seen]:
    """What decides: without noise all is infinite, and what shows nothing costs nothing and composes with all."""
    bare = [each for each in of_view if not each.hidden]
    return bare or [each for each in of_view if each.shows] or of_view[:1]


def pair_of(seen: Sequence[Seen], neighbour: Neighbour) -> Pair:
    """What all of this shows, composed; each has a pair for such neighbours."""
    return together(each.pairs.of(neighbour) for each in seen)  # type: ignore[misc]


def certify_choice(
    settings: Sequence[Sequence[Seen]], delta: Probability, best_of: MeanRuns
) -> Certificate:
    """Proved epsilon towards a third party of the best of a random number of runs, each with settings drawn at random.

    Its epsilon and profile count, at every Rényi order, the settings that cost most there. Its event is that of the
    settings that are costliest at `delta`, and it says so; it assumes what any of the settings do. Formal guarantees:
    see `pairs.divergences` and `certify_seen`.

    Args:
        settings: what is seen of a run of each, at least one.
        delta: probability, in (0, 1).
        best_of: mean of the geometric number of runs, more than 1.

    Raises:
        ValueError: as `certify_seen`; settings whose certificates are of other units or adjacencies.
    """
    best_of = checked("best_of", best_of, MeanRuns)
    require(best_of > 1, "best_of", best_of, "give a mean number of runs above 1")
    given = type(settings) in (list, tuple) and len(settings) > 0
    given = given and all(
        type(each) in (list, tuple) and all(isinstance(one, Seen) for one in each)
        for each in settings
    )
    require(
        given, "settings", settings, "give a list of what is seen of a run of each, a list each"
    )
    certificates = [certify_seen(each, delta, "third_party", best_of=best_of) for each in settings]
    shown = [c for c in certificates if c.accountant != "none" or c.epsilon > 0]
    for field in ("unit", "relation"):
        kinds = sorted({getattr(c, field) for c in shown})
        require(len(kinds) < 2, field, kinds, "choose among settings of one kind")
    worst = max(certificates, key=lambda c: c.epsilon)
    bare = [c for c in certificates if not c.compositions[0].hidden]
    if len(certificates) == 1 or not shown or bare:
        return bare[0] if bare else worst
    runs = (_counted(_of_view(each, "third_party")) for each in settings)
    own = [pair_of(run, common_neighbour(run)) for run in runs if run[0].shows]
    pairs = bounds_of(own, best_of, delta)
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


def _nothing_hides(bare: Sequence[Seen], template: Certificate) -> Certificate:
    """Epsilon is infinite, with the reasons among the assumptions."""
    reasons = tuple(dict.fromkeys(each.reason for each in bare))
    return replace(
        template,
        epsilon=math.inf,
        bound="no finite bound",
        assumptions=tuple(f"not private: {reason}" for reason in reasons),
    )


def _composed(
    seen: Sequence[Seen], neighbour: Neighbour, template: Certificate, best_of: float
) -> Certificate:
    """`template` with the smallest epsilon that an accountant gives, its bound, and what it assumes."""
    delta = template.delta
    pairs = bounds_of([pair_of(seen, neighbour)], best_of, delta)
    found = _found(pairs, delta)
    if not found:
        raise ValueError(
            f"best_of: {best_of:g}; no Rényi divergences are known for this noise and sampling; leave it out"
        )
    accountant = min(found, key=lambda name: found[name].epsilon)
    epsilon, witness = found[accountant]
    bound = _BOUNDS[accountant]
    if witness == Exact():
        attained = all(each.attained for each in seen)
        bound = (
            f"upper, attained in the worst case: {_ANALYTIC}" if attained else f"upper: {_ANALYTIC}"
        )
    texts = assumptions(seen, neighbour)
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
        compositions=(_composition(pairs, accountant, template.relation, found[accountant]),),
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
