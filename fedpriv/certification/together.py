"""One certificate for several runs on the same clients: phases, or models and seeds that are released together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from fedpriv.certification.certificate import check_twice, trace_round
from fedpriv.certification.groups import by_group, grouping_of
from fedpriv.certification.traced_round import TracedRound, with_basis
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.core.arguments import CountOrZero, Probability, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.user_code import names_user_code
from fedpriv.privacy import Certificate, Seen, certify_seen
from fedpriv.privacy.words import OF_SEVERAL_RUNS
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import Algorithm

Run: TypeAlias = tuple[Algorithm, CountOrZero] | tuple[Algorithm, CountOrZero, Any]
_RUN = "give (algorithm, rounds), or (algorithm, rounds, params) for one with another model"


@names_user_code
def certify_together(
    runs: Sequence[Run],
    params: Any,
    federation: Any,
    delta: Probability,
    *,
    view: View = "third_party",
    honest: Rate = 1.0,
) -> Certificate:
    """Proved epsilon of all that `view` sees of all `runs`, whose rounds are traced as by `certify`.

    Examples are statistics and then training that uses them, `[(first, 1), (second, 50)]`, and three models,
    `[(algorithm, 50)] * 3`. Each run has its own noise and draws its cohorts independently. A later run may depend on
    what earlier ones released. The certificate is *constructed* if that of each run is.

    Formal guarantees: see `certify_seen`; what is composed there may be chosen adaptively (dominating pairs: Zhu,
    Dong and Wang 2022; Rényi divergences: Mironov 2017).

    Args:
        runs: (algorithm, rounds) for each run, in order, or (algorithm, rounds, params) if it has its own model.
        params: the model of the other runs, its shapes, or key -> model.
        federation: what all train on, or a federation of the same shapes (`Federation.blank`).
        delta: probability, for all runs together, in (0, 1).
        view, honest: as in `certify`.

    Raises:
        ValueError: no runs, or runs in another form; runs that protect different units, or are certified for different
            adjacencies; as `certify`.
        LeakError: as `certify`.
    """
    return Together(params, federation, delta, view, honest).certify(runs)


class Together:
    """Certifies several runs at once, again and again; arguments as `certify_together`."""

    def __init__(
        self, params: Any, federation: Any, delta: Probability, view: View, honest: Rate
    ) -> None:
        self._params, self._federation = params, federation
        self._delta = checked("delta", delta, Probability)
        self._view = checked("view", view, View)
        self._honest = checked("honest", honest, Rate)
        self._known: dict[tuple[int, int], tuple[Algorithm, Any, TracedRound]] = {}

    def certify(self, runs: Any) -> Certificate:
        """As `certify_together`; an algorithm that it was given the last time is not traced again."""
        several = _checked(runs)
        known: dict[tuple[int, int], tuple[Algorithm, Any, TracedRound]] = {}
        for i, (algorithm, _, own) in enumerate(several):
            which = id(algorithm), id(own)
            known[which] = (
                known.get(which)
                or self._known.get(which)
                or (algorithm, own, self._traced(f"runs[{i}]", algorithm, own))
            )
        self._known = known  # and so keeps them, and their ids, alive
        each = enumerate(several)
        traced = [
            (f"runs[{i}]", known[id(algorithm), id(own)][2], rounds)
            for i, (algorithm, rounds, own) in each
        ]
        return certify_traced(traced, self._delta, view=self._view, honest=self._honest)

    def _traced(self, name: str, algorithm: Algorithm, own: Any) -> TracedRound:
        try:
            params = self._params if own is None else own
            traced = trace_round(algorithm, params, self._federation)
            check_twice(traced)
        except Exception as error:
            error.add_note(f"in {name}")
            raise
        return traced


def certify_traced(
    runs: Sequence[tuple[str, TracedRound, int]],
    delta: Probability,
    *,
    view: View,
    honest: Rate = 1.0,
    kind: UnitKind | None = None,
) -> Certificate:
    """As `certify_together`, of rounds as they were traced.

    Args:
        runs: (name, round, number of rounds) of each; the name says which of several hides nothing.
        delta, view, honest: as `certify_together`.
        kind: of the unit; by default all.
    """
    traced = [run for _, run, _ in runs]
    several = len(runs) > 1
    if any(run.persons is not None and run.persons.in_classes for run in traced):
        alike = len({run.classes for run in traced}) == 1
        remedy = "a person's clients are in groups, or take turns, in some of them; draw all alike"
        require(alike, "runs", [run.algorithm.sampler for run in traced], remedy)
    by_size = [run for run in traced if run.counts_persons_by_size]  # whose kinds cover all others
    every = [kind for run in by_size or traced for kind in run.kinds]
    kinds = dict.fromkeys(kind for kind in every if kind != ANY) or (ANY,)

    def of(kind: UnitKind) -> Certificate:
        by_run = [
            _naming(name if several else "", run.seen(rounds, kind, honest=honest))
            for name, run, rounds in runs
        ]
        every = [one for seen in by_run for one in seen]
        return certify_seen([one for one in every if one.shows] or every, delta, view)

    grouping_of(sampler for run in traced for sampler in run.samplers)
    certificate = by_group({one: of(one) for one in kinds}) if kind is None else of(kind)
    if several:
        certificate = _assuming_several_runs(certificate)
    return with_basis(certificate, traced, in_order=several)


def _naming(name: str, seen: Sequence[Seen]) -> tuple[Seen, ...]:
    """What is seen of the run with this name, which is said where nothing hides it; "": it is the only one."""
    return tuple(
        each if each.hidden or not name else replace(each, reason=f"{each.reason} ({name})")
        for each in seen
    )


def _checked(runs: Any) -> list[tuple[Algorithm, int, Any]]:
    """(algorithm, rounds, its own params or None) of each run."""
    several = isinstance(runs, Sequence) and not isinstance(runs, Algorithm | str)
    require(several and len(runs) > 0, "runs", runs, f"give a list; for each run {_RUN}")
    each = []
    for i, run in enumerate(runs):
        known = type(run) in (tuple, list) and len(run) in (2, 3)
        require(known, f"runs[{i}]", run, _RUN)
        require(isinstance(run[0], Algorithm), f"runs[{i}][0]", run[0], "give an fp.Algorithm")
        rounds = checked(f"rounds of runs[{i}]", run[1], CountOrZero)
        each.append((run[0], rounds, run[2] if len(run) == 3 else None))
    return each


def _assuming_several_runs(certificate: Certificate) -> Certificate:
    """The certificate of a single run as that of several."""
    texts = [OF_SEVERAL_RUNS.get(text, (text,)) for text in certificate.assumptions]
    return replace(
        certificate,
        assumptions=tuple(text for each in texts for text in each),
        of_groups={n: _assuming_several_runs(own) for n, own in certificate.of_groups.items()},
    )
