"""What runs are called in tables and figures: by label, or by what tells them from the others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedpriv.core.json_values import flat
from fedpriv.experiments.base.formats import setting
from fedpriv.experiments.runs.run_folder import RunFolder

UNINTERESTING = (
    "output",
    "data_dir",
    "layout",
    "algorithms",
    "every",
    "keep_model",
    "views",
    "metric",
)
# A run is named by the settings in which it differs where they are few, and short in characters.
MOST_SETTINGS, LONGEST_NAME = 3, 40


def labelled(runs: Sequence[RunFolder], labels: Sequence[str] | None) -> list[RunFolder]:
    """The runs with these labels, one each, and with names of algorithms, as in "fed_avg=Ours"; None: without.

    Raises:
      ValueError: there are more or fewer, or an empty one, or one twice.
    """
    algorithms = {name for run in runs for name in run.algorithms}
    pairs = [label.partition("=")[::2] for label in labels or ()]
    own = {key: name for key, name in pairs if name and key in algorithms}
    runs = with_names(runs, own)
    given = zip(labels or (), pairs, strict=True)
    labels = [label for label, (key, name) in given if not (name and key in algorithms)]
    if wrong := [label for label in labels if re.match(r"\w+=.", label)]:
        raise ValueError(
            f"names: {wrong[0]!r} is no algorithm of these runs; choose one of {', '.join(sorted(algorithms))}"
        )
    if not labels and own:
        return list(runs)
    return _labelled(runs, labels or None)


def with_names(runs: Sequence[RunFolder], own: Mapping[str, str] | None) -> list[RunFolder]:
    """With names for algorithms, beside those that they have recorded.

    Raises:
      ValueError: of an algorithm that is in none.
    """
    there = {name for run in runs for name in run.algorithms}
    if unknown := sorted(set(own or {}) - there):
        raise ValueError(
            f"names: no {unknown[0]!r} in these runs; there are {', '.join(sorted(there))}"
        )
    if len({*(own or {}).values()}) < len(own or {}):
        raise ValueError(
            f"names: {', '.join((own or {}).values())}; give each algorithm its own name"
        )
    return [named(run, own or {}) for run in runs]


def named(run: RunFolder, own: Mapping[str, str]) -> RunFolder:
    if not own:
        return run
    begun = replace(run.begun, names={**run.begun.names, **own})
    summary = run.summary and replace(run.summary, names={**run.summary.names, **own})
    return replace(run, begun=begun, summary=summary)


def _labelled(runs: Sequence[RunFolder], labels: Sequence[str] | None) -> list[RunFolder]:
    if labels is None:
        return list(runs)
    if len(labels) != len(runs) or len({*labels, ""}) <= len(labels):
        folders = ", ".join(run.path.name for run in runs)
        raise ValueError(
            f"names: {' '.join(map(repr, labels))} for {folders}; give each run its own name, in this order"
        )
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def titles(runs: Sequence[RunFolder]) -> list[str]:
    """What runs are called by the settings in which they differ, one title per run."""
    return [", ".join(parts) for parts in _differences(runs)]


def _differences(runs: Sequence[RunFolder]) -> list[list[str]]:
    """One "field = value" for each setting in which the runs differ, per run."""
    settings = [{"config": run.config} | interesting(run.settings) for run in runs]
    names = {name: None for of in settings for name in of}
    differing = [n for n in names if len({json.dumps(of.get(n)) for of in settings}) > 1]
    return [[setting(n, of[n]) for n in differing if n in of] for of in settings]


def swept(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """The settings in which runs of one config differ, as of the points of a sweep, by dotted names; per run."""
    configs = {run.config: [each for each in runs if each.config == run.config] for run in runs}
    of_config = {}
    for config, own in configs.items():
        fields = [interesting(run.settings) for run in own]
        every = dict.fromkeys(name for of in fields for name in of)
        of_config[config] = [
            n for n in every if len({json.dumps(of.get(n), sort_keys=True) for of in fields}) > 1
        ]
    return [{n: interesting(run.settings).get(n) for n in of_config[run.config]} for run in runs]


def interesting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """For runs' names: the settings on which results depend, flat."""
    fields = flat(settings)
    return {n: v for n, v in fields.items() if n.partition(".")[0] not in UNINTERESTING}


def names(runs: Sequence[RunFolder]) -> list[str]:
    """What a run is called: its label, or a few settings that tell it apart; else its folder, and those above it."""
    said, parts = _differences(runs), [run.path.resolve().parts for run in runs]
    found = []
    for run, differences, own in zip(runs, said, parts, strict=True):
        if run.label:
            found.append(run.label)
            continue
        title = ", ".join(differences)
        short = len(differences) <= MOST_SETTINGS and len(title) <= LONGEST_NAME
        if title and short and said.count(differences) == 1:
            found.append(title)
            continue
        many = next(
            (k for k in range(1, len(own)) if sum(p[-k:] == own[-k:] for p in parts) == 1), len(own)
        )
        found.append("/".join(own[-many:]))
    return found
