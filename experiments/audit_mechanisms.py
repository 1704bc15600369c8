"""Part of experiments.audit: what is claimed and certified of a mechanism, beside what draws of it show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax

from experiments.config import Ledger
from experiments.ledger import Account, accounts
from fedpriv.attacks.bounds import LowerBounds, lower_bounds
from fedpriv.attacks.mechanism import draw_scores
from fedpriv.certification.certificate import Looked
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.privacy import Certificate, Claim, Release

AFFORDABLE = 8e8
"""Normal numbers per row: 10 to 20 s."""
FEWEST = 2000
"""Draws: where a whole run allows only fewer, they are of fewer rounds, which bound the whole from below too."""


class Audited(NamedTuple):
    """Algorithms that release and claim the same, in the eyes of some views.

    Attributes:
      names: of the algorithms.
      views: to which they are the same.
      rounds, drawn_rounds: of the run, and of the draws.
      draws: of each neighbour.
      claim: the paper's, if it is about one of these views.
      certificate: what is proved.
      bounds: what was found, at 95 % confidence.
      surely: what epsilon is at least, wrong with probability 1e-6 at most.
    """

    names: tuple[str, ...]
    views: tuple[str, ...]
    rounds: int
    drawn_rounds: int
    draws: int
    claim: Claim | None
    certificate: Certificate
    bounds: LowerBounds
    surely: float

    @property
    def least(self) -> float:
        return self.bounds.least

    @property
    def refuted(self) -> bool:
        """Whether epsilon is larger than the certificate says; rows are many, so that it has to be beyond doubt."""
        return self.surely > self.certificate.epsilon

    @property
    def claim_refuted(self) -> bool:
        return refutes(self.least, self.certificate, self.claim)

    @property
    def powerless(self) -> bool:
        """Whether less than a tenth of what is certified was seen, or of what so many draws can show at most."""
        return self.least < 0.1 * min(self.certificate.epsilon, math.log(self.draws))


class Undrawn(NamedTuple):
    """Algorithms with nothing to draw: what is claimed of them, and why epsilon is infinite."""

    names: tuple[str, ...]
    claim: Claim | None
    reason: str


def refutes(least: float, certificate: Certificate, claim: Claim | None) -> bool:
    """Whether epsilon, at least `least` for the certificate's neighbours and delta, is larger than claimed of those."""
    if claim is None or claim.unit != certificate.unit or claim.delta > certificate.delta:
        return False
    removed = {"zero_out", "add_or_remove"}
    alike = {claim.relation, certificate.relation}
    return least > claim.epsilon and (len(alike) == 1 or alike <= removed)


def audit_mechanisms(ledger: Ledger, rounds: int, draws: int, seed: int) -> list[Audited | Undrawn]:
    """Every view of every algorithm, each distinct one once."""
    found: list[Audited | Undrawn] = []
    for account in _by_mechanism(ledger, accounts(ledger, rounds)):
        looked = ledger.looked(account.names[0])
        for views in _alike(looked, account, rounds):
            found.append(_audited(account, looked, views, rounds, draws, seed))
        if not _drawable(looked.releases(1)):
            reasons = [r.reason for r in looked.releases(1) if r.reason]
            found.append(Undrawn(account.names, account.claim, "; ".join(dict.fromkeys(reasons))))
    return found


def _by_mechanism(ledger: Ledger, found: Sequence[Account]) -> list[Account]:
    """Equal multipliers do not make equal mechanisms."""
    parts = []
    for account in found:
        groups: dict[object, list[str]] = {}
        for name in account.names:
            used = [r.mechanism for r in ledger.looked(name).releases(1) if r.mechanism]
            same = tuple((_levels(m), m.dimension, m.scales is None) for m in used)
            groups.setdefault(same, []).append(name)
        parts += [account._replace(names=tuple(names)) for names in groups.values()]
    return parts


def _levels(used: Mechanism) -> tuple[float, ...]:
    return tuple(float(x) for x in jax.tree.leaves((used.clip_norm, used.noise_multiplier)))


def _drawable(releases: Sequence[Release]) -> list[Release]:
    return [r for r in releases if r.multiplier > 0 and r.mechanism is not None]


def _alike(looked: Looked, account: Account, rounds: int) -> list[tuple[str, ...]]:
    """The views with something to draw; those that see the same of a record together."""
    groups: dict[object, list[str]] = {}
    for certificate in account.certificates:
        seen = [r for r in looked.releases(rounds) if r.view == certificate.view]
        if _drawable(seen):
            same = tuple(replace(r, view="server") for r in seen)
            by_record = all(r.unit == "record" for r in seen)
            groups.setdefault(same if by_record else certificate.view, []).append(certificate.view)
    return [tuple(views) for views in groups.values()]


def _audited(
    account: Account,
    looked: Looked,
    views: tuple[str, ...],
    rounds: int,
    draws: int,
    seed: int,
) -> Audited:
    view = views[0]
    drawn, some = affordable(looked, view, rounds, draws)
    scores = draw_scores(looked.releases(some), view, draws=drawn, seed=seed)
    certificate = next(c for c in account.certificates if c.view == view)
    claim = account.claim if account.claim and account.claim.view in views else None
    bounds = lower_bounds(scores, certificate.delta)
    surely = lower_bounds(scores, certificate.delta, 1e-6).least
    return Audited(account.names, views, rounds, some, drawn, claim, certificate, bounds, surely)


def affordable(looked: Looked, view: str, rounds: int, draws: int) -> tuple[int, int]:
    """(draws, rounds) that `AFFORDABLE` allows."""
    fits = int(AFFORDABLE / _cost(looked, view, rounds))
    if fits >= min(draws, FEWEST):
        return min(draws, fits), rounds
    one = int(AFFORDABLE / _cost(looked, view, 1))
    some = max(1, min(rounds, one // min(draws, FEWEST)))
    return min(draws, max(100, one // some)), some


def _cost(looked: Looked, view: str, rounds: int) -> float:
    """Normal numbers per draw of both neighbours."""
    seen = _drawable([r for r in looked.releases(rounds) if r.view == view])
    return 2.0 * sum(
        r.steps * r.local_steps * (r.mechanism.dimension or 4) for r in seen if r.mechanism
    )
