"""From what is seen to a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedpriv.core.arguments import MeanRuns, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.pairs.end_of_run import Slack
from fedpriv.pairs.integer_bounds import bounds_of
from fedpriv.pairs.pieces import together
from fedpriv.pairs.search import Found, by_divergences, by_losses
from fedpriv.privacy.certificate import Certificate
from fedpriv.privacy.profile import Composition
from fedpriv.privacy.words import BEST_RUN
from fedpriv.proof.cases import Neighbour, Pairs, Why
from fedpriv.proof.certificate import Proposal, Proved, accepted, prove, what_counts
from fedpriv.proof.pairs import AnyPair, Pair
from fedpriv.proof.seen import ONE_RUN, Seen, View, common_neighbour
from fedpriv.proof.verify import Exact

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

    Formal guarantees: epsilon is an upper bound, if the pairs are, see `fedpriv.proof.certificate.prove` and each
    sampling. Nothing released gives 0, nothing hidden gives infinity.

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
    known = isinstance(seen, Sequence) and all(isinstance(each, Seen) for each in seen)
    require(known, "seen", seen, "give that of fp.trace_round(...).seen(rounds)")
    found: dict[str, Found] = {}
    pairs: dict[str, AnyPair] = {}

    def search(pair: Pair) -> Proposal:
        pairs.update(bounds_of([pair], best_of, delta))
        found.update(_found(pairs, delta))
        if not found:
            raise ValueError(
                f"best_of: {best_of:g}; no Rényi divergences are known for this noise and sampling; leave it out"
            )
        name = min(found, key=lambda name: found[name].epsilon)
        return Proposal(found[name].epsilon, pairs[name], found[name].witness)

    proved = prove(seen, delta, view, search, together)
    plain = _certificate(proved)
    if not found:
        return plain
    accountant = min(found, key=lambda name: found[name].epsilon)
    of_view = what_counts([each for each in seen if each.view == view])
    texts, event = proved.assumptions, proved.event
    if best_of > 1:
        texts = tuple(BEST_RUN if text == ONE_RUN else text for text in texts)
        event = f"the best of a geometric number of runs, {best_of:g} on average, each of {event}"
    return replace(
        plain,
        event=event,
        accountant=accountant,
        bound=_bound(accountant, proved, all(each.attained for each in of_view)),
        assumptions=(_NO_BOUND, *texts) if math.isinf(proved.epsilon) else texts,
        epsilons={name: each.epsilon for name, each in found.items()},
        compositions=(_composition(pairs, accountant, proved.relation, found[accountant]),),
    )


def _certificate(proved: Proved) -> Certificate:
    """Of what no accountant was asked."""
    composition = Composition(proved.bound, proved.relation, proved.epsilon, proved.witness)
    return Certificate(
        epsilon=proved.epsilon,
        delta=proved.delta,
        view=proved.view,
        unit=proved.unit,
        relation=proved.relation,
        event=proved.event,
        accountant="none",
        bound="no finite bound" if math.isinf(proved.epsilon) else "exact",
        assumptions=proved.assumptions,
        compositions=(composition,),
        doors=proved.doors,
    )


def _bound(accountant: str, proved: Proved, attained: bool) -> str:
    """On which side of the truth the number lies, and why."""
    if math.isinf(proved.epsilon):
        return "no finite bound"
    if not isinstance(proved.witness, Exact):
        return _BOUNDS[accountant]
    return f"upper, attained in the worst case: {_ANALYTIC}" if attained else f"upper: {_ANALYTIC}"


def pair_of(seen: Sequence[Seen], neighbour: Neighbour) -> Pair:
    """What all of this shows, composed; each has a pair for such neighbours."""
    return together(each.pairs.of(neighbour) for each in seen)  # type: ignore[misc]


def among(seen: Seen, neighbour: Neighbour) -> Seen:
    """The same, of such neighbours alone.

    Raises:
        ValueError: an unknown kind of neighbours.
    """
    neighbour = checked("neighbour", neighbour, Neighbour)
    why = Why(f"it is asked for neighbours of which one is {neighbour}")
    pairs = Pairs(*[why] * 4)._replace(**{neighbour: seen.pairs.of(neighbour)})
    return replace(seen, pairs=pairs)


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
    of_view = ([one for one in each if one.view == "third_party"] for each in settings)
    runs = map(what_counts, of_view)
    own = [pair_of(run, common_neighbour(run)) for run in runs if run[0].shows]
    pairs = bounds_of(own, best_of, delta)
    found = _found(pairs, delta)["RDP"]
    accepted(Proposal(found.epsilon, pairs["RDP"], found.witness), delta)
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
        doors=tuple(dict.fromkeys(door for one in shown for door in one.doors)),
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
