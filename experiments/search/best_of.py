"""The best of a random number of trials (`sweep --best-of MEAN`): what is drawn, what it costs, what is kept.

Papernot and Steinke 2022 (arXiv:2110.03620): K trials, K geometric, each with settings and noise of its own; only the
best is released. What that costs is certified before anything trains, by `fedpriv.privacy.certify_choice`.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.base.files import write_text
from experiments.base.formats import NAMES, setting
from experiments.runs.contents import Summary
from experiments.runs.run_folder import SWEEP
from experiments.runs.unfinished import decisive_settings
from experiments.search.choose import best
from experiments.search.sweep_grid import Point
from experiments.search.training_together import Prepared
from fedpriv.core.json_values import plain
from fedpriv.models.kept_model import model_folder
from fedpriv.models.score import main_metric
from fedpriv.privacy import Certificate, certify_choice

RELEASE = "release.json"


def drawn(points: int, mean: float, rng: random.Random) -> list[tuple[int, int]]:
    """(point, key) of each trial: Pr[K = k] = (1 - 1 / mean)^(k-1) / mean; points in range(points), keys of 63 bits.

    A model still shows what its key made of its first weights, so that a key of 32 bits is found by trying them all.
    """
    found: list[tuple[int, int]] = []
    while not found or rng.random() * mean >= 1:
        found.append((rng.randrange(points), rng.getrandbits(63)))
    return found


def require_settings(points: Sequence[Point], mean: float) -> None:
    """Raises ValueError: a mean or settings that do not go with a choice among trials."""
    if not 1 < mean < math.inf:
        raise ValueError(f"best_of: {mean:g} is not a finite mean above 1; give one, such as 5")
    for settings in (point.settings for point in points):
        if settings.target_epsilon is not None or settings.view != "third_party":
            raise ValueError(
                "target_epsilon, view: best_of certifies its choice towards a third party, at the given noise; leave "
                "these out"
            )


def certified(points: Sequence[Prepared], mean: float) -> Certificate:
    """The certificate of the best of trials that are each at one of these points.

    Raises:
      ValueError: there is none, or none for all of the points.
    """
    first = points[0].experiment
    releases, own = [], []
    for point, _, experiment, planned, _ in points:
        ((name, rounds), *others) = planned.items()
        if others:
            raise ValueError(f"best_of: {' '.join(planned)} are several algorithms; name one")
        metric = main_metric(experiment.selectable(point.settings), point.settings.metric)
        if metric not in experiment.public:
            raise ValueError(
                f"best_of: {metric} is of {experiment.public.where(metric)}, and no certificate covers a choice by it; "
                "give a metric on public test records"
            )
        if experiment.delta != first.delta or _clients(experiment) != _clients(first):
            raise ValueError(
                f"best_of: delta and clients must be those of the other points (at {point.title})"
            )
        own.append(experiment.ledger.certify(name, rounds, best_of=mean))
        if math.isinf(own[-1].epsilon):
            why = own[-1].assumptions[0]
            raise ValueError(f"best_of: {name} has no finite epsilon ({why}); leave it out")
        traced = experiment.ledger.trace(name)
        if len(traced.kinds) > 1 or traced.grouping is not None:
            raise ValueError(
                "best_of: certifies a choice for units that are all alike, not in groups, nor for persons who hold "
                f"different records (at {point.title}); leave groups.names out, or bound what a person holds"
            )
        releases.append(traced.releases(rounds))
    return replace(
        certify_choice(releases, first.delta, mean),
        basis=max(c.basis for c in own),  # declared, if one of them is
        assumptions=tuple(dict.fromkeys(text for c in own for text in c.assumptions)),
    )


def _clients(experiment: Any) -> list[int]:
    """Which arrays hold the clients' records, of which equal ones are the same, see `SharedArrays`."""
    ((federation,),) = (entry.federations for entry in experiment.entries.values())
    return [id(leaf) for leaf in jax.tree.leaves(federation)]


def keep_best(
    folder: Path,
    found: Sequence[tuple[Point, Summary]],
    higher: bool,
    certificate: Certificate,
) -> dict[str, Any]:
    """Leaves the model of the best trial and its certificate in a sweep's folder, and nothing else of the trials."""
    ends = [_end(summary) for _, summary in found]
    about: dict[str, Any] = {"certified": certificate}
    if (at := best(ends, higher)) is not None:
        point, summary = found[at]
        ((name, rounds),) = summary.rounds.items()
        about |= {"config": summary.config, "algorithm": name, "rounds": rounds}
        about |= {"settings": decisive_settings(point.settings), "values": point.values}
        about |= {"metric": summary.metric, "value": ends[at], "notes": summary.privacy_notes}
        model = model_folder(folder / point.name, name, point.seeds[0])
        shutil.copytree(model, model_folder(folder, name, 0), dirs_exist_ok=True)
    write_text(folder / RELEASE, json.dumps(plain(about), indent=2) + "\n")
    for point, _ in found:
        shutil.rmtree(folder / point.name)
    (folder / SWEEP).unlink()
    return about


def _end(summary: Summary) -> float | None:
    """The score of a trial's one algorithm after the last round; None if it diverged."""
    (final,) = [None] if summary.diverged else summary.final.values()
    return final[summary.metric].mean if final else None  # public, or `certified` has refused


def said(about: Mapping[str, Any]) -> str:
    """What was kept of the trials and what it costs, for people."""
    lines = ["every trial diverged: there is no model"]
    if name := about.get("algorithm"):
        values = ", ".join(setting(*item) for item in about["values"].items())
        score = f"{about['metric']} {about['value']:.4g} on the test set"
        lines = [
            f"chosen: {NAMES.get(name, name)}, {values}; {score} after round {about['rounds']}"
        ]
    certificate = about["certified"]
    assumed = [f"  {text}" for text in certificate.assumptions]
    notes = [f"note: {note}" for note in about.get("notes", ())]
    return "\n".join([*lines, str(certificate), "on the assumption that", *assumed, *notes])
