"""What canaries in an algorithm are scored by, and what is proved and claimed of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from experiments.config.experiment import Ledger
from fedpriv.privacy import Certificate, Claim, Release

SEEN = ("third_party", "server_secagg")
"""Views that see models, or sums: whose noise hides a canary."""
CERTIFIED = {"last_model": "third_party"}
"""Whose certificate holds for a view of canaries that no certificate names: who sees the last model alone sees less."""


def release_of(ledger: Ledger, name: str, rounds: int) -> Release | None:
    """The first with noise that those see who look at models or sums; None where there is none."""
    releases = ledger.trace(name).releases(rounds)
    noisy = (r for r in releases if r.view in SEEN and r.mechanism is not None and r.multiplier > 0)
    return next(noisy, None)


class Bounded(NamedTuple):
    """What is said of an algorithm towards one view."""

    certificate: Certificate
    claim: Claim | None


def bounded(ledger: Ledger, name: str, rounds: int, view: str, delta: float) -> Bounded:
    """The certificate for a view of canaries at `delta`, and the paper's claim if it is about that view."""
    seen_as: Any = CERTIFIED.get(view, view)
    at_delta = replace(ledger, delta=delta)
    claim = at_delta.claim(name, rounds)
    same = claim is not None and claim.view == seen_as
    return Bounded(at_delta.certify(name, rounds, view=seen_as), claim if same else None)
