"""Runs that differ in their noise or budget alone, as one whose evaluations are their ends: by epsilon or by mu."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

from experiments.runs.contents import NOISE, Begun, Epsilons, Line
from experiments.runs.run_folder import RunFolder
from experiments.runs.run_names import interesting

SETTING_EPSILON = (NOISE, "target_epsilon", "stop_at_epsilon")


def ends_by_epsilon(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """A run for each group of runs that differ in their noise or budget alone; none if any run is in no such group.

    An evaluation is what one of them ended with, its epsilon that of its summary, towards the view it was run for.
    """
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        alike = {k: v for k, v in interesting(run.settings).items() if k not in SETTING_EPSILON}
        groups.setdefault(json.dumps([run.config, alike], sort_keys=True), []).append(run)
    return (
        [_merged(group) for group in groups.values()] if all(map(_swept, groups.values())) else []
    )


def _swept(group: Sequence[RunFolder]) -> bool:
    given = {json.dumps([run.settings.get(field) for field in SETTING_EPSILON]) for run in group}
    return len(given) == len(group) > 1


def _merged(group: Sequence[RunFolder]) -> RunFolder:
    first = group[0]
    settings = {k: v for k, v in first.settings.items() if k not in SETTING_EPSILON}
    found: dict[str, list[Line]] = {}
    for run in group:
        for name, own in run.lines.items():
            found.setdefault(name, []).append(_end(run, name, own[-1]))
    lines = {n: tuple(sorted(of, key=_epsilon)) for n, of in found.items()}
    begun = Begun(first.config, settings, higher=first.begun.higher, names=first.begun.names)
    return RunFolder(first.path, begun, lines, None)


def _end(run: RunFolder, name: str, last: Line) -> Line:
    report, view = run.results.privacy[name], run.settings.get("view")
    view = view if view in report.certified else "third_party"
    numbers = report.operational.get(view)
    mu = numbers.mu if numbers else None
    return replace(last, privacy=Epsilons(None, report.certified[view], mu))


def _epsilon(line: Line) -> float:
    epsilon = line.privacy.certified.epsilon
    return math.inf if math.isnan(epsilon) else epsilon
