"""Epsilons of a paper's full training, for cells that need nothing trained.

Their unit, view, adjacency and delta belong into the column's name: `meaning` says them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from experiments import config as configuration
from experiments.command_line import parse
from experiments.config import Ledger, ledger_of
from experiments.reproduce.item import Read, Scale, Training, Value
from experiments.reproduce.perform import arguments
from fedpriv.privacy import Certificate, Claim, Release
from fedpriv.privacy.certify import certify_releases
from fedpriv.types import Algorithm

LedgerOf = Callable[[Any], Ledger]  # of the config's own type


def claimed(training: Training, ledger: LedgerOf | None = None) -> Read:
    """Reads the epsilon that the paper's formula gives after all rounds; by `ledger` in place of the config's own."""

    def read() -> Value | str:
        claim = claim_of(training, ledger)
        return "none" if claim is None else Value(claim.epsilon)

    return read


def certified(
    training: Training, ledger: LedgerOf | None = None, view: str = "third_party"
) -> Read:
    """Reads the certified epsilon after all rounds."""
    return lambda: Value(certificate_of(training, ledger, view).epsilon)


def claim_of(training: Training, ledger: LedgerOf | None = None) -> Claim | None:
    """The paper's claim for the full training."""
    algorithm, delta = algorithm_of(training, ledger)
    return algorithm.claim(training.rounds, delta)


def certificate_of(
    training: Training, ledger: LedgerOf | None = None, view: str = "third_party"
) -> Certificate:
    """The certificate of the full training."""
    algorithm, delta = algorithm_of(training, ledger)
    return _certified(tuple(algorithm.releases(training.rounds)), delta, view)


def meaning(number: Claim | Certificate) -> str:
    """ "client, third party, add-or-remove, delta 7e-05"."""
    words = [number.unit, number.view.replace("_", " "), number.relation.replace("_", "-")]
    return ", ".join([*words, f"delta {number.delta:.2g}"])


@lru_cache
def _certified(releases: tuple[Release, ...], delta: float, view: str) -> Certificate:
    """Computed once for all trainings that release the same."""
    return certify_releases(releases, delta, view=view)


def algorithm_of(training: Training, ledger: LedgerOf | None = None) -> tuple[Algorithm, float]:
    """The algorithm of the training's ledger, and the guarantee's delta."""
    module = configuration.load(training.config)
    _, *given = arguments(training, Scale(), None)
    config = parse(module, training.config, given, "reproduce")
    made = ledger(config) if ledger else ledger_of(module, config)
    return made.algorithms[training.algorithm], made.delta
