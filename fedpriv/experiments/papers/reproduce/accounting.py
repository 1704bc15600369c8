"""Epsilons of a paper's full training: claimed, certified, and the rounds that a claimed one allows.

Their unit, view, adjacency and delta belong into the column's name: `meaning` says them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from fedpriv.certification.calibration import calibrate_rounds
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.papers.reproduce.item import (
    Computation,
    Computed,
    Read,
    Scale,
    Training,
    Value,
    folder_name,
)
from fedpriv.experiments.papers.reproduce.work import settings_of
from fedpriv.privacy import VIEWS, Certificate, Claim
from fedpriv.privacy.epsilon_words import hyphenated

LedgerOf = Callable[[Any], Ledger]  # of the settings' own type


@cache
def ledger_for(training: Training, ledger: LedgerOf | None = None) -> Ledger:
    """The training's ledger, by `ledger` in place of the config's own."""
    module = modules.load(training.config)
    settings = changed(module.settings, settings_of(training, Scale(), None))
    return ledger(settings) if ledger else ledger_of(module, settings)


def claim_of(training: Training, ledger: LedgerOf | None = None) -> Claim | None:
    """The claim for a paper's full training."""
    return ledger_for(training, ledger).claim(training.algorithm, training.rounds)


def certificate_of(
    training: Training, ledger: LedgerOf | None = None, view: str = "third_party"
) -> Certificate:
    """The certificate of a paper's full training."""
    return ledger_for(training, ledger).certify(training.algorithm, training.rounds, view=view)


def claimed(training: Training, ledger: LedgerOf | None = None) -> Read:
    """For a cell that needs nothing trained: the claimed epsilon."""
    return lambda: _value(claim_of(training, ledger))


def certified(training: Training, ledger: LedgerOf | None = None) -> Read:
    """For a cell that needs nothing trained: the epsilon certified towards a third party."""
    return lambda: _value(certificate_of(training, ledger))


def _value(number: Claim | Certificate | None) -> Value | str:
    return "none" if number is None else Value(number.epsilon)


def meaning(number: Claim | Certificate) -> str:
    """What an epsilon of a full training is, as "client, third party, add-or-remove, delta 7e-05"."""
    words = [number.unit, number.view.replace("_", " "), hyphenated(number.relation)]
    return ", ".join([*words, f"delta {number.delta:.2g}"])


@cache
def allowed_rounds(training: Training, epsilon: float) -> int:
    """The most rounds of a paper's `training` that its formula allows for `epsilon`."""
    ledger = ledger_for(training)
    options: dict[str, Any] = {"epsilon": epsilon, "delta": ledger.delta, "claimed": True}
    return calibrate_rounds(*ledger.of(training.algorithm), **options)


@cache
def accounted(training: Training) -> Computation:
    """Claim and certificates of the full training, where they take longer than a cell may: "claimed", and the views."""
    return Computation(folder_name("privacy", training.key), partial(_account, training))


def _account(training: Training, scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    claim = claim_of(training)
    certified = {view: certificate_of(training, view=view).epsilon for view in VIEWS}
    return {"claimed": claim and claim.epsilon, **certified}


def epsilon(name: str) -> Read:
    """For a cell: reads "claimed" or the epsilon of a view from what was `accounted`."""

    def read(found: Computed) -> Value | str:
        number = found.summary[name]
        return "none" if number is None else Value(float(number))

    return read
