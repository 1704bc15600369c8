"""Epsilons of a paper's full training, for cells that need nothing trained.

Their unit, view, adjacency and delta belong into the column's name: `meaning` says them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from experiments import config as configuration
from experiments.command_line import parse
from experiments.config import Ledger, ledger_of
from experiments.reproduce.item import Read, Scale, Training, Value
from experiments.reproduce.perform import arguments
from fedpriv.privacy import Certificate, Claim

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
    return ledger_for(training, ledger).claim(training.algorithm, training.rounds)


def certificate_of(
    training: Training, ledger: LedgerOf | None = None, view: str = "third_party"
) -> Certificate:
    """The certificate of the full training."""
    return ledger_for(training, ledger).certify(training.algorithm, training.rounds, view=view)


def meaning(number: Claim | Certificate) -> str:
    """ "client, third party, add-or-remove, delta 7e-05"."""
    words = [number.unit, number.view.replace("_", " "), number.relation.replace("_", "-")]
    return ", ".join([*words, f"delta {number.delta:.2g}"])


@cache
def ledger_for(training: Training, ledger: LedgerOf | None = None) -> Ledger:
    """The training's ledger, by `ledger` in place of the config's own."""
    module = configuration.load(training.config)
    _, *given = arguments(training, Scale(), None)
    config = parse(module, training.config, given, "reproduce")
    return ledger(config) if ledger else ledger_of(module, config)
