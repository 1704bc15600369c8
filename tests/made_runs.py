"""Run folders as a training leaves them, without training: what the items of `experiments.reproduce` read."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.config import modules
from fedpriv.experiments.papers.reproduce.item import Training
from fedpriv.experiments.runs.contents import Begun, Epsilons, Line, Summary
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.privacy import Certificate

NOTHING = Certificate(np.inf, 1e-5, "third_party", "client", "zero_out", "", "none", "none", ())


def run_folder(
    work: Training,
    accuracy: Sequence[Sequence[float]],
    *,
    status: str = "complete",
    megabytes: Sequence[float] = (),
    **metrics: float,
) -> RunFolder:
    """Of evaluations that lie evenly over the rounds.

    Args:
      accuracy: in 0..1, a row per evaluation with a number per seed.
      megabytes: uplink until each evaluation.
      metrics: diagnostics of every evaluation.
    """
    name, seeds = work.algorithm, np.array(accuracy)
    rounds = np.linspace(0, work.rounds, len(accuracy) + 1).round().astype(int)[1:]
    sent = megabytes or [0.1 * (i + 1) for i in range(len(accuracy))]
    others = {metric: Spread.of(np.array([value])) for metric, value in metrics.items()}
    lines = [
        Line(
            name,
            int(t),
            {"accuracy": Spread.of(at), "loss": Spread.of(1 - at)},
            *(mb, 0.0, {}),
            Epsilons(None, NOTHING),
            *(others, 0.0),
        )
        for t, at, mb in zip(rounds, seeds, sent, strict=True)
    ]
    ended = {"best": seeds.max(0), "final": seeds[-1]} if lines else {}
    said = {which: {name: {"accuracy": Spread.of(x)}} for which, x in ended.items()}
    settings = {"cohort": 20, "seeds": work.seeds, **work.settings}
    summary = Summary(
        config=work.config,
        settings=settings,
        algorithm_settings={},
        status=status,
        rounds={name: work.rounds} if lines else {},
        rounds_planned={name: work.rounds},
        metric="accuracy",
        best=said.get("best", {}),
        final=said.get("final", {}),
        uplink_mb_per_client={name: sent[-1]} if lines else {},
        downlink_mb_per_client={name: 0.0},
        privacy={name: None} if lines else {},
        privacy_notes=(),
        rounds_per_second={name: 1.0},
        compile_seconds={name: None},
        versions={},
        device={},
        git_revision=None,
    )
    by_name = {name: tuple(lines)} if lines else {}
    return RunFolder(Path(work.key), Begun(work.config, settings), by_name, summary)


def settled(work: Training) -> Any:
    """The config with the training's settings, which the config checks.

    Raises:
      ValueError: one is refused.
      TypeError: there is no such field.
    """
    config = modules.load(work.config).settings
    nested: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {"algorithms": (work.algorithm,), "rounds": work.rounds}
    for name, value in work.settings.items():
        group, _, inner = name.partition(".")
        if inner:
            nested.setdefault(group, {})[inner] = value
        else:
            flat[name] = tuple(value) if isinstance(value, list) else value
    groups = {f.name: getattr(config, f.name) for f in fields(config)}
    return replace(config, **flat, **{n: replace(groups[n], **own) for n, own in nested.items()})
