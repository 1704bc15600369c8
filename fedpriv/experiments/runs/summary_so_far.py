"""The summary that evaluations alone give, of a run that has none yet."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedpriv.engine.client_metric_names import parsed
from fedpriv.engine.history import SHARES
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.config.public import LAST, Public, allowed, by_what, sentences
from fedpriv.experiments.config.stopping import decided
from fedpriv.experiments.runs.contents import (
    HOURS,
    Begun,
    Line,
    NotFinite,
    Report,
    Summary,
)
from fedpriv.experiments.runs.measured import best_note
from fedpriv.models.score import best, main_metric


def so_far(begun: Begun, lines: Mapping[str, Sequence[Line]], status: str) -> Summary:
    """The summary of evaluations alone, which a run has before it has summary.json.

    Certificates are for a third party, of the rounds that were evaluated; `uncounted` says how many may have been
    trained since. What was planned is known where it is what the settings say.
    """
    last = {name: of[-1] for name, of in lines.items() if of}
    names = _metrics(begun, next(iter(last.values()))) if last else []
    public = begun.public([m for line in last.values() for m in line.of_score])
    chosen = by_what(begun.settings, public) if last else {}
    chosen_by = [m for m in names if m in public or m in allowed(begun.settings)]
    final = {n: {m: s for m in names if (s := line.metric(m))} for n, line in last.items()}
    best = {name: {m: _best(begun, lines[name], m) for m in chosen_by} for name in last}
    seconds = {name: sum(line.seconds for line in lines[name]) for name in last}
    rounds = {name: line.round for name, line in last.items()}
    solved = {name: found for name in last if (found := begun.solved_for(name))}
    settings = {name: begun.algorithm_settings.get(name, {}) for name in last}
    return Summary(
        begun.config,
        begun.settings,
        {name: of | solved.get(name, {}) for name, of in settings.items()},
        status,
        rounds,
        {name: most for name in last if (most := _planned(begun, name)) and most >= rounds[name]},
        main_metric(names, begun.settings.get("metric")) if names else "",
        _part(best, public, True),
        _part(final, public, True),
        {name: line.uplink_mb_per_client for name, line in last.items()},
        {name: line.downlink_mb_per_client for name, line in last.items()},
        {name: _not_covered(_report(begun, line), chosen) for name, line in last.items()},
        sentences(chosen),
        {
            name: rounds[name] * line.seeds / seconds[name] if seconds[name] else math.nan
            for name, line in last.items()
        },
        dict.fromkeys(last),
        {},
        {},
        None,
        per_client_not_private=_per_client(last),
        not_finite_not_private={name: x for name in last if (x := _not_finite(lines[name]))},
        solved=solved,
        names=begun.names,
        secret_seed=begun.secret_seed,
        own_test=begun.tests_clients,
        public_held_out=begun.public_held_out,
        best_note=best_note(chosen_by, public),
        best_not_private=_part(best, public, False),
        final_not_private=_part(final, public, False),
        of_score=tuple(public.of_score),
        not_covered=sentences(chosen),
    )


def _part(
    found: Mapping[str, Mapping[str, Spread]], public: Public, wanted: bool
) -> dict[str, Any]:
    """By algorithm, the metrics that are public, or those that are not, of which there may be none."""
    parts = {n: {m: s for m, s in of.items() if (m in public) is wanted} for n, of in found.items()}
    return {name: of for name, of in parts.items() if wanted or of}


def placed(summary: Summary, begun: Begun, lines: Mapping[str, Sequence[Line]]) -> Summary:
    """A summary with its numbers where they belong; those of older versions mix what is private with what is not.

    Where a private number could choose the last round there, no epsilon is left.
    """
    of_score = [m for of in lines.values() for line in of[-1:] for m in line.of_score]
    if (
        not of_score
    ):  # metrics.jsonl is lost; in an older version what is shown may be another measure
        shown, known = summary.settings.get("metric"), summary.of_score
        of_score = [*known] or [m for n in summary.final for m in summary.last(n) if m != shown]
    public = begun.public(of_score)
    final = {name: summary.last(name) for name in summary.final}
    named = allowed(summary.settings)
    best = {
        name: {m: s for m, s in summary.bests(name).items() if m in public or m in named}
        for name in summary.best
    }
    ended = [name for said in summary.stopped.values() if (name := decided(said)) not in public]
    chosen = by_what(summary.settings, public)
    if ended:
        chosen |= {LAST: tuple(dict.fromkeys([*chosen.get(LAST, ()), *ended]))}
    privacy = {name: _not_covered(of, chosen) for name, of in summary.privacy.items()}
    return replace(
        summary,
        best=_part(best, public, True),
        final=_part(final, public, True),
        best_not_private=_part(best, public, False),
        final_not_private=_part(final, public, False),
        best_note=best_note(dict.fromkeys(m for of in best.values() for m in of), public),
        of_score=tuple(public.of_score),
        not_covered=sentences(chosen),
        privacy=privacy,
        privacy_notes=tuple(dict.fromkeys([*summary.privacy_notes, *sentences(chosen)])),
        own_test=begun.tests_clients,
        public_held_out=begun.public_held_out,
    )


def _not_covered(report: Report, chosen: Mapping[str, Collection[str]]) -> Report:
    """A report whose certificates say what private numbers chose."""
    certified = dict(report.certified)
    for what, names in chosen.items():
        certified = {view: c.not_covered(names, what) for view, c in certified.items()}
    if not chosen or certified == report.certified:
        return report
    claimed = report.claimed and replace(report.claimed, sound=False)
    return Report(report.rounds, claimed, certified, statistics=report.statistics)


def _metrics(begun: Begun, line: Line) -> list[str]:
    """The metrics of the score, and what the config shows in their place."""
    metric: Any = begun.settings.get("metric")
    return [*line.of_score, *[metric][: metric in line.diagnostics_not_private]]


def _not_finite(lines: Sequence[Line]) -> dict[str, NotFinite]:
    rounds, found = np.diff([line.round for line in lines], prepend=0), {}
    for name in SHARES:
        each = [line.diagnostics_not_private.get(name) for line in lines]
        if there := [line.round for line, spread in zip(lines, each, strict=True) if spread]:
            shares = [s.per_seed if s else (0.0,) * lines[0].seeds for s in each]
            found[name] = NotFinite(there[0], Spread.of(np.average(shares, 0, rounds)))
    return found


def _per_client(last: Mapping[str, Line]) -> dict[str, dict[str, Spread]]:
    found = {
        name: {k: s for k, s in line.diagnostics_not_private.items() if parsed(k)}
        for name, line in last.items()
    }
    return {name: spreads for name, spreads in found.items() if spreads}


def _best(begun: Begun, lines: Sequence[Line], metric: str) -> Spread:
    each = np.array([spread.per_seed for line in lines if (spread := line.metric(metric))])
    return Spread.of(best(each, metric, begun.higher))


def _planned(begun: Begun, algorithm: str) -> int | None:
    """Rounds that were to be trained; None where only the config's code can say that, as in runs of older versions."""
    if algorithm in begun.rounds_planned:
        return begun.rounds_planned[algorithm]
    own = begun.algorithm_settings.get(algorithm, {})
    if begun.settings.get("stop_at_epsilon") is not None or HOURS in own:
        return None
    return _of_settings(begun, algorithm)


def _of_settings(begun: Begun, algorithm: str) -> int | None:
    """Rounds that the settings allow, of which a budget may leave fewer."""
    found = begun.algorithm_settings.get(algorithm, {}).get("rounds", begun.settings.get("rounds"))
    return found if isinstance(found, int) else None


def _uncounted(begun: Begun, line: Line) -> int:
    """Rounds after the last evaluation that may have been trained, before this stop or one before it.

    Where the models say when to stop, that is all that were planned, or could have been.
    """
    every, planned = begun.settings.get("every"), _planned(begun, line.algorithm) or math.inf
    if not isinstance(every, int) or line.round >= planned:
        return 0
    if any(begun.settings.get(x) for x in ("stop_at", "patience")):
        most = planned if planned < math.inf else _of_settings(begun, line.algorithm) or math.inf
        if line.round < most < math.inf:
            return int(most) - line.round
    reached = [line.round, *(again.reached.get(line.algorithm, 0) for again in begun.resumed)]
    return int(min(max(reached) + every, planned)) - line.round


def _report(begun: Begun, line: Line) -> Report:
    certified, groups = line.privacy.certified, line.privacy.group_epsilons
    if uncounted := _uncounted(begun, line):
        last = f"that no round was trained after {line.round}, the last that was evaluated"
        but = f"{uncounted} more may have been, and count as well"
        own, said = certified.assumptions, (f"{last}: {but}",)
        # What an infinite epsilon assumes begins with why it is.
        both = (*said, *own) if math.isfinite(certified.epsilon) else (*own, *said)
        certified = replace(certified, assumptions=both)
    by_view = {certified.view: groups} if groups else {}
    return Report(
        line.round,
        line.privacy.claimed,
        {certified.view: certified},
        group_epsilons=by_view,
        of_all_kinds=True,
        uncounted=uncounted,
    )
