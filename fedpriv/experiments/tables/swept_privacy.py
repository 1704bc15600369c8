"""Runs that differ in their noise, budget or bits alone, as one whose evaluations are their ends."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from fedpriv.experiments.runs.contents import NOISE, Begun, Epsilons, Line
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.runs.run_names import interesting

BITS = ("bits",)
SETTING_EPSILON = (NOISE, "target_epsilon", "stop_at_epsilon")
_End: TypeAlias = Callable[[RunFolder, str], Line | None]


def ends_by_bits(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """A run for each group of runs that differ in the bits of their messages alone; none if a run is in no such group.

    An evaluation is what one of them ended with.
    """
    return _ends(runs, BITS, lambda run, name: run.lines[name][-1], _uplink)


def ends_by_epsilon(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """A run for each group of runs that differ in their noise or budget alone; none if any run is in no such group.

    An evaluation is what one of them ended with, its epsilon that of its summary, towards the view it was run for. What
    was killed, or still trains, has not ended, and is left out: its epsilon is but a lower bound.
    """
    return _ends(runs, SETTING_EPSILON, _end, _epsilon)


def _ends(
    runs: Sequence[RunFolder], swept: Sequence[str], end: _End, place: Callable[[Line], float]
) -> list[RunFolder]:
    """Of runs that differ in the settings `swept` alone, in the order of `place`."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        alike = {k: v for k, v in interesting(run.settings).items() if k not in swept}
        groups.setdefault(json.dumps([run.config, alike], sort_keys=True), []).append(run)
    if not all(_swept(group, swept) for group in groups.values()):
        return []
    merged = [_merged(group, swept, end, place) for group in groups.values()]
    return [run for run in merged if run.lines]


def _swept(group: Sequence[RunFolder], swept: Sequence[str]) -> bool:
    given = {json.dumps([run.settings.get(field) for field in swept]) for run in group}
    return len(given) == len(group) > 1


def _merged(
    group: Sequence[RunFolder], swept: Sequence[str], end: _End, place: Callable[[Line], float]
) -> RunFolder:
    first = group[0]
    settings = {k: v for k, v in first.settings.items() if k not in swept}
    found: dict[str, list[Line]] = {}
    for run in group:
        for name in run.lines:
            if last := end(run, name):
                found.setdefault(name, []).append(last)
    lines = {n: tuple(sorted(of, key=place)) for n, of in found.items()}
    begun = Begun(first.config, settings, higher=first.begun.higher, names=first.begun.names)
    return RunFolder(first.path, begun, lines, None)


def _end(run: RunFolder, name: str) -> Line | None:
    last = run.lines[name][-1]
    report, view = run.results.privacy[name], run.settings.get("view")
    if report.uncounted:
        return None
    view = view if view in report.certified else "third_party"
    numbers = report.operational.get(view)
    mu = numbers.mu if numbers else None
    return replace(last, privacy=Epsilons(None, report.certified[view], mu))


def _uplink(line: Line) -> float:
    return line.uplink_mb_per_client


def _epsilon(line: Line) -> float:
    epsilon = line.privacy.certified.epsilon
    return math.inf if math.isnan(epsilon) else epsilon
