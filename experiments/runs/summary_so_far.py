"""The summary that evaluations alone give, of a run that has none yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.base.spread import Spread
from experiments.runs.contents import Begun, Line, NotFinite, Report, Summary
from experiments.runs.measured import best_note
from fedpriv.engine.client_metric_names import parsed
from fedpriv.engine.history import SHARES
from fedpriv.models.score import best, main_metric


def so_far(begun: Begun, lines: Mapping[str, Sequence[Line]], status: str) -> Summary:
    """The summary of evaluations alone: certificates are for a third party, what was planned is not known."""
    last = {name: of[-1] for name, of in lines.items() if of}
    names = _metrics(begun, next(iter(last.values()))) if last else []
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
        {},
        main_metric(names, begun.settings.get("metric")) if names else "",
        {name: {metric: _best(begun, lines[name], metric) for metric in names} for name in last},
        {n: {m: s for m in names if (s := line.metric(m))} for n, line in last.items()},
        {name: line.uplink_mb_per_client for name, line in last.items()},
        {name: line.downlink_mb_per_client for name, line in last.items()},
        {name: _report(line) for name, line in last.items()},
        (),
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
        own_test=begun.own_test,
        best_note=best_note(names, begun.own_test),
    )


def _metrics(begun: Begun, line: Line) -> list[str]:
    """The metrics of the score, and what the config shows in their place."""
    metric: Any = begun.settings.get("metric")
    return [*line.metrics, *[metric][: metric in line.diagnostics_not_private]]


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


def _report(line: Line) -> Report:
    certified, groups = line.privacy.certified, line.privacy.group_epsilons
    by_view = {certified.view: groups} if groups else {}
    report = Report(
        line.round, line.privacy.claimed, {certified.view: certified}, of_all_kinds=True
    )
    return replace(report, group_epsilons=by_view)
