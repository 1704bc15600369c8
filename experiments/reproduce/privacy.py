"""What the trainings of an item cost: claimed beside certified, each with unit, view, adjacency and delta."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.compare import RunFolder
from experiments.reproduce.item import Training
from experiments.show import NAMES, epsilon
from fedpriv.privacy import VIEWS

HEAD = ["trained", "rounds", "unit", "delta", "claimed by the paper's formula"]
HEAD += [f"certified, {view.replace('_', ' ')}" for view in VIEWS]


def markdown(results: Mapping[Training, RunFolder]) -> str:
    """A line for each group of trainings that cost the same; "" where none hides anything."""
    groups: dict[str, list[Training]] = {}
    said: dict[str, dict[str, Any]] = {}
    for training, run in results.items():
        for privacy in run.summary["privacy"].values():
            key = json.dumps(privacy, sort_keys=True)
            groups.setdefault(key, []).append(training)
            said[key] = privacy
    private = {key: of for key, of in groups.items() if _private(said[key])}
    if not private:
        return ""
    rows = [HEAD, ["---"] * len(HEAD)]
    rows += [_row(trainings, said[key]) for key, trainings in private.items()]
    reasons: dict[str, None] = {}
    for key in private:
        if claim := said[key]["claimed"]:
            verdict = "holds" if claim["sound"] else "not proved"
            text = f"claim by {claim['source']}: {verdict} here: {' '.join(claim['reasons'])}"
            reasons[text] = None
    notes = {note: None for run in results.values() for note in run.summary["privacy_notes"]}
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"- {text}" for text in [*reasons, *notes])])


def _private(privacy: dict[str, Any]) -> bool:
    numbers = [certificate["epsilon"] for certificate in privacy["certified"].values()]
    claim = privacy["claimed"]
    return any(n != "inf" for n in [*numbers, claim["epsilon"] if claim else "inf"])


def _row(trainings: Sequence[Training], privacy: dict[str, Any]) -> list[str]:
    claim, certified = privacy["claimed"], privacy["certified"]
    first = certified[VIEWS[0]]
    numbers = [f"{epsilon(certified[v]['epsilon'])} ({_adjacency(certified[v])})" for v in VIEWS]
    said = "-"
    if claim:
        said = f"{epsilon(claim['epsilon'])} ({claim['unit']}, {_view(claim)}, {_adjacency(claim)}"
        said += f", delta {claim['delta']:.3g})" if claim["delta"] != first["delta"] else ")"
    unit, delta = first["unit"], f"{first['delta']:.3g}"
    return [_name(trainings), str(privacy["rounds"]), unit, delta, said, *numbers]


def _name(trainings: Sequence[Training]) -> str:
    """The group's configs and algorithms, and the settings that all of it shares."""
    shrunk = {name for t in trainings for name in (*t.shrinking, *t.rounds_in)}  # not as written
    shared = {k: v for k, v in trainings[0].settings.items() if k not in shrunk}
    for training in trainings:
        shared = {k: v for k, v in shared.items() if training.settings.get(k) == v}
    configs = ", ".join(dict.fromkeys(t.config for t in trainings))
    names = ", ".join(dict.fromkeys(NAMES.get(t.algorithm, t.algorithm) for t in trainings))
    return "; ".join([configs, names, *(f"{k} {v}" for k, v in shared.items())])


def _view(number: dict[str, Any]) -> str:
    return str(number["view"]).replace("_", " ")


def _adjacency(number: dict[str, Any]) -> str:
    return str(number["relation"]).replace("_", "-")
