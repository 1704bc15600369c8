"""Epsilons of a config's algorithm, claimed and certified, without training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments import config as configuration
from experiments.command_line import parse
from experiments.compare import RunFolder
from experiments.reproduce.item import Computation, Scale, Value, folder_name
from experiments.sweep_grid import flags
from fedpriv.privacy import VIEWS, calibrate_rounds, certify
from fedpriv.types import Algorithm

Settings = tuple[tuple[str, str], ...]
"""Fields of a config and their values, as on the command line."""


class Costed(NamedTuple):
    """An algorithm that is asked what it costs, for so many rounds."""

    algorithm: Algorithm
    rounds: int
    delta: float


def costed(config: str, algorithm: str, settings: Settings) -> Costed:
    """Of the config with these settings; needs no data."""
    module = configuration.load(config)
    every = (("algorithms", algorithm), *settings)
    given = [flag for name, value in every for flag in flags(module.config, name, value)]
    chosen = parse(module, config, given)
    found = configuration.ledger_of(module, chosen)
    return Costed(found.algorithms[algorithm], chosen.rounds, found.delta)


@cache
def allowed_rounds(config: str, algorithm: str, settings: Settings, epsilon: float) -> int:
    """The most rounds that the paper's formula allows for `epsilon`."""
    one = costed(config, algorithm, settings)
    return calibrate_rounds(one.algorithm, epsilon=epsilon, delta=one.delta, claimed=True)


@cache
def accounting(config: str, algorithm: str, settings: Settings = ()) -> Computation:
    """Claim and certificates, of all rounds whatever the scale: "claimed" and a number for every view."""
    key = folder_name("privacy", config, algorithm, *("=".join(item) for item in settings))
    return Computation(key, partial(_account, config, algorithm, settings))


def _account(
    config: str, algorithm: str, settings: Settings, scale: Scale, data_dir: Path | None
) -> dict[str, Any]:
    one = costed(config, algorithm, settings)
    claim = one.algorithm.claim(one.rounds, one.delta)
    certified = {v: certify(one.algorithm, one.rounds, one.delta, view=v).epsilon for v in VIEWS}
    return {"claimed": claim and claim.epsilon, **certified}


def epsilon(name: str) -> Callable[[RunFolder], Value]:
    """Reads "claimed" (infinite where nothing is) or that of a view."""

    def read(run: RunFolder) -> Value:
        found = run.summary[name]
        return Value(float("inf") if found is None else float(found))

    return read
