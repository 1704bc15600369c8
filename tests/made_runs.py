"""Run folders as a training leaves them, without training: what the items of `experiments.reproduce` read."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from experiments import config as configuration
from experiments.compare import RunFolder
from experiments.reproduce.item import Training


def spread(values: Sequence[float]) -> dict[str, Any]:
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": std, "per_seed": list(values)}


def run_folder(
    work: Training,
    accuracy: Sequence[Sequence[float]],
    *,
    status: str = "complete",
    **metrics: float,
) -> RunFolder:
    """Of evaluations that lie evenly over the rounds.

    Args:
      accuracy: in 0..1, a row per evaluation with a number per seed.
      metrics: diagnostics of every evaluation.
    """
    rounds = np.linspace(0, work.rounds, len(accuracy) + 1).round().astype(int)[1:]
    others = {name: spread([value]) for name, value in metrics.items()}
    lines = [
        {
            "algorithm": work.algorithm,
            "round": int(t),
            "accuracy": spread(at),
            "loss": spread([1 - np.mean(at)]),
            "diagnostics_not_private": others,
        }
        for t, at in zip(rounds, accuracy, strict=True)
    ]
    seeds = np.array(accuracy)
    said = {"best": seeds.max(0), "final": seeds[-1]}
    summary = {
        "status": status,
        "rounds": {work.algorithm: work.rounds},
        "settings": {"cohort": 20, **work.settings},
        "accuracy": {which: {work.algorithm: spread(x)} for which, x in said.items()},
    }
    return RunFolder(summary, lines)


def settled(work: Training) -> Any:
    """The config with the training's settings, which the config checks.

    Raises:
      ValueError: one is refused.
      TypeError: there is no such field.
    """
    config = configuration.load(work.config).config
    nested: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {"algorithms": (work.algorithm,), "rounds": work.rounds}
    for name, value in work.settings.items():
        group, _, inner = name.partition(".")
        if inner:
            nested.setdefault(group, {})[inner] = value
        else:
            flat[name] = tuple(value) if isinstance(value, list) else value
    groups = {f.name: getattr(config, f.name) for f in fields(config)}
    assert all(is_dataclass(groups[name]) for name in nested)
    return replace(config, **flat, **{n: replace(groups[n], **own) for n, own in nested.items()})
