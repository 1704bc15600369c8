"""Epsilons that take longer than a cell may, and the rounds that a claimed epsilon allows."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

from experiments.compare import RunFolder
from experiments.reproduce.accounting import algorithm_of, certificate_of, claim_of
from experiments.reproduce.item import Computation, Read, Scale, Training, Value, folder_name
from fedpriv.privacy import VIEWS, calibrate_rounds


@cache
def allowed_rounds(training: Training, epsilon: float) -> int:
    """The most rounds of `training` that the paper's formula allows for `epsilon`."""
    algorithm, delta = algorithm_of(training)
    return calibrate_rounds(algorithm, epsilon=epsilon, delta=delta, claimed=True)


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
