"""Epsilons that take longer than a cell may, and the rounds that a claimed epsilon allows."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

from experiments.compare import RunFolder
from experiments.reproduce.accounting import certificate_of, claim_of, ledger_for
from experiments.reproduce.item import Computation, Read, Scale, Training, Value, folder_name
from fedpriv.certification.calibration import calibrate_rounds
from fedpriv.privacy import VIEWS


@cache
def allowed_rounds(training: Training, epsilon: float) -> int:
    """The most rounds of `training` that the paper's formula allows for `epsilon`."""
    ledger = ledger_for(training)
    options = {"epsilon": epsilon, "delta": ledger.delta, "claimed": True}
    return calibrate_rounds(*ledger.of(training.algorithm), **options)


@cache
def accounted(training: Training) -> Computation:
    """Claim and certificates of the full training: "claimed" and a number for every view."""
    return Computation(folder_name("privacy", training.key), partial(_account, training))


def _account(training: Training, scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    claim = claim_of(training)
    certified = {view: certificate_of(training, view=view).epsilon for view in VIEWS}
    return {"claimed": claim and claim.epsilon, **certified}


def epsilon(name: str) -> Read:
    """Reads "claimed" or that of a view from what was `accounted`."""

    def read(run: RunFolder) -> Value | str:
        found = run.summary[name]
        return "none" if found is None else Value(float(found))

    return read
