"""The best of a random number of trials (`sweep --best-of MEAN`): what is drawn, what it costs, what is kept.

Papernot and Steinke 2022 (arXiv:2110.03620): K trials, K geometric, each with settings and noise of its own; only the
best is released. What that costs is certified before anything trains, by `fedpriv.privacy.certify_choice`; with
`target_epsilon` the noise of all trials is such that it costs the target.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from fedpriv.certification.groups import by_group, grouping_of
from fedpriv.certification.monotone_search import Range, search
from fedpriv.certification.traced_round import TracedRound, with_basis
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.complaints import require
from fedpriv.core.json_values import plain
from fedpriv.experiments.accounting.budget import only
from fedpriv.experiments.accounting.found import Found, given, noise_of
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.formats import NAMES, setting
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.runs.released import RELEASE
from fedpriv.experiments.runs.run_folder import SWEEP
from fedpriv.experiments.runs.unfinished import decisive_settings
from fedpriv.experiments.search.choose import best
from fedpriv.experiments.search.sweep_grid import Point
from fedpriv.experiments.search.training_together import Prepared
from fedpriv.models.kept_model import model_folder
from fedpriv.models.score import main_metric
from fedpriv.privacy import Certificate, certify_choice

_MORE = Range(dearest=1.0, cheapest=1e6, begin=(1.0, 1.0), factor=2.0)
"""What the noise of all trials is multiplied with."""
_TOLERANCE = 1e-4  # of it, relative


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
    if others := {point.settings.view for point in points} - {"third_party"}:
        raise ValueError(
            f"view: {min(others)}; best_of certifies its choice towards a third party; leave it out"
        )
    if len(targets := {point.settings.target_epsilon for point in points}) > 1:
        said = " and ".join(map(str, targets))
        raise ValueError(
            f"target_epsilon: {said}; best_of certifies one choice among all points; give one"
        )


def with_noise_for_all(
    module: Config, points: Sequence[Point], each: Sequence[Mapping[str, Found]], mean: float
) -> list[dict[str, Found]]:
    """The noise of each point with which the best of trials, at any of them, costs at most `target_epsilon`.

    A choice counts, at every Rényi order, the settings that cost most there. So it may cost more than the best of
    trials at each point alone, all at the same target. Then all noises are multiplied by the least number with which it
    does not.

    Args:
      each: of each point, the noise with which the best of trials at it alone costs the target.

    Raises:
      ValueError: no noise reaches the target; as `certified`.
    """
    target = points[0].settings.target_epsilon
    if target is None or any(len(found) != 1 for found in each):
        return [dict(found) for found in each]  # and `certified` says what is wrong

    def more(factor: float) -> list[dict[str, Found]]:
        return [{name: factor * noise_of(it) for name, it in found.items()} for found in each]

    def cost(factor: float) -> float:
        trials = []
        for point, found in zip(points, more(factor), strict=True):
            ((name, noise),) = found.items()
            own = given(only(point.settings, [name]), name, noise)
            ledger = ledger_of(module, own)
            trials.append((ledger.trace(name), own.rounds_of(name)))
        return _choice(trials, ledger.delta, mean).epsilon

    def refusal(factor: float) -> str:
        return (
            f"target_epsilon: {target:g}; with {factor:g} times the noise that each point needs alone the choice still "
            f"costs {cost(factor):.4g}; choose among points that differ less"
        )

    return more(search(cost, target, _MORE, refusal, tolerance=_TOLERANCE))


def _choice(trials: Sequence[tuple[TracedRound, int]], delta: float, mean: float) -> Certificate:
    """Of the best of trials that are each one of these, with each group's own.

    Args:
      trials: (round, number of rounds) of each.

    Raises:
      ValueError: they are of different kinds of unit, such as other groups; as `certify_choice`.
    """
    rounds = [traced for traced, _ in trials]
    grouping_of(sampler for traced in rounds for sampler in traced.samplers)
    kinds, classes = rounds[0].kinds, rounds[0].classes
    alike = all((traced.kinds, traced.classes) == (kinds, classes) for traced in rounds)
    remedy = "certifies a choice among points of the same clients and groups; give those"
    require(alike, "best_of", [kind.group for kind in kinds], remedy)

    def of(kind: UnitKind) -> Certificate:
        return certify_choice([traced.seen(n, kind) for traced, n in trials], delta, mean)

    return with_basis(by_group({kind: of(kind) for kind in kinds}), rounds)


def certified(points: Sequence[Prepared], mean: float) -> Certificate:
    """The certificate of the best of trials that are each at one of these points.

    Raises:
      ValueError: there is none, or none for all of the points, or it costs more than their target.
    """
    first, target = points[0].experiment, points[0].point.settings.target_epsilon
    trials, own = [], []
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
        trials.append((experiment.ledger.trace(name), rounds))
    choice = _choice(trials, first.delta, mean)
    if target is not None and choice.epsilon > target:
        raise ValueError(
            f"target_epsilon: {target:g} was solved for other clients than the data's, for which the choice costs "
            f"{choice.epsilon:.4g}; set the config's clients to the data's"
        )
    return choice


def _clients(experiment: Any) -> list[int]:
    """Which arrays hold the clients' records, of which equal ones are the same, see `SharedArrays`."""
    ((federation,),) = (entry.federations for entry in experiment.entries.values())
    return [id(leaf) for leaf in jax.tree.leaves(federation)]


def keep_best(
    folder: Path,
    found: Sequence[tuple[Point, Summary]],
    higher: bool,
    certificate: Certificate,
    mean: float,
) -> dict[str, Any]:
    """Leaves the model of the best trial and its certificate in a sweep's folder, and nothing else of the trials."""
    ends = [_end(summary) for _, summary in found]
    about: dict[str, Any] = {"certified": certificate, "best_of": mean}
    if (at := best(ends, higher)) is not None:
        point, summary = found[at]
        ((name, rounds),) = summary.rounds.items()
        about |= {"config": summary.config, "algorithm": name, "rounds": rounds}
        about |= {"settings": decisive_settings(point.settings), "values": point.values}
        about |= {"solved": summary.solved.get(name, {})}
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
        if solved := about["solved"]:
            target = about["settings"]["target_epsilon"]
            noise = ", ".join(f"{field} {value:.6g}" for field, value in solved.items())
            lines += [f"noise: {noise}, solved for eps {target:g} of the choice"]
    certificate = about["certified"]
    assumed = [f"  {text}" for text in certificate.assumptions]
    notes = [f"note: {note}" for note in about.get("notes", ())]
    return "\n".join([*lines, str(certificate), "on the assumption that", *assumed, *notes])
