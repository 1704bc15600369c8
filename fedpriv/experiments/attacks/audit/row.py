"""The lines of an audit: claimed, certified and audited epsilon, and whether the audit refutes the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.experiments.attacks.audit.canary import bounded
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.privacy import Certificate, Claim

LIKELY = 0.05
"""Chance that a bound is wrong."""
SURE = 1e-6
"""Chance that a right certificate is refuted: rows are many."""
REJECTED = 0.01
"""Of an estimate's assumption: the probability of scores that speak as much against it."""


@dataclass(frozen=True)
class Row:
    """A line of an audit: algorithms that release and claim the same, in the eyes of views that see the same.

    Attributes:
      names: of the algorithms.
      views: of which the first is the certificate's.
      claim: the paper's, if it is about one of these views.
      certificate: what is proved.
      least: what epsilon is at least, with 95 % confidence.
      surely: what it is at least at 1 - 1e-6, by which certificates and claims are refuted: rows are many.
      most: what such an audit can show at most.
      about: what was done; as JSON.
      audited: what else was found; as JSON.
    """

    names: tuple[str, ...]
    views: tuple[str, ...]
    claim: Claim | None
    certificate: Certificate
    least: float
    surely: float
    most: float
    about: dict[str, Any]
    audited: dict[str, Any]

    @property
    def refuted(self) -> bool:
        """Whether epsilon is larger than the certificate says, or its whole curve impossible."""
        impossible = self.audited.get("p_value", 1.0) <= SURE
        return self.surely > self.certificate.epsilon or impossible

    @property
    def claim_refuted(self) -> bool:
        """Whether epsilon is larger than claimed, surely; for neighbours and delta that the claim is about as well."""
        claim, certificate = self.claim, self.certificate
        if claim is None or claim.unit != certificate.unit or claim.delta > certificate.delta:
            return False
        alike = {claim.relation, certificate.relation}
        return self.surely > claim.epsilon and (
            len(alike) == 1 or alike <= {"zero_out", "add_or_remove"}
        )

    @property
    def powerless(self) -> bool:
        """Whether less than a tenth was seen of what is certified, or of what can be shown at most."""
        return self.most == 0 or self.least < 0.1 * min(self.certificate.epsilon, self.most)

    @property
    def assumption_holds(self) -> bool:
        """Whether scores may be Gaussian, as the estimate assumes; too few are not tested."""
        return not self.audited["estimate"]["p_value"] < REJECTED

    @property
    def suspicious(self) -> bool:
        """Whether an estimate, or a bound that does not refute the certificate, lies above it.

        An estimate whose assumption is rejected means nothing.
        """
        low = 0.0
        if "estimate" in self.audited and self.assumption_holds:
            low = self.audited["estimate"]["low"]
        return not self.refuted and max(self.least, low) > self.certificate.epsilon


class Unaudited(NamedTuple):
    """Algorithms with nothing to audit, and why; what is claimed of them."""

    names: tuple[str, ...]
    reason: str
    claim: Claim | None = None


class Seen(Protocol):
    """What one view saw of the audited trainings of an algorithm."""

    @property
    def scores(self) -> np.ndarray:
        """f32[...]."""

    @property
    def present(self) -> np.ndarray:
        """bool[...]."""

    @property
    def method(self) -> str:
        """Of the bound."""

    @property
    def about(self) -> dict[str, Any]:
        """What was done; as JSON."""

    def bound(self, delta: float, significance: float) -> float:
        """What epsilon is at least."""

    def limits(self, delta: float) -> list[float]:
        """The same bound (95 %) of as many draws of the exact pair, several times; none where there are no draws."""

    def most(self, delta: float, limit: float | None) -> float:
        """What such an audit can show at most; `limit` is the mean of `limits`."""

    def beside(self, certificate: Certificate) -> dict[str, Any]:
        """What else was found at the certificate's delta; as JSON."""


def rows_of(
    seen: Seen, name: str, view: str, ledger: Ledger, rounds: int, deltas: Sequence[float]
) -> Iterator[Row]:
    """Lines of an audit: what `view` saw, beside what is said of the algorithm."""
    for delta in deltas:
        said = bounded(ledger, name, rounds, view, delta)
        least = seen.bound(delta, LIKELY)
        limits = seen.limits(delta)
        limit = float(np.mean(limits)) if limits else None
        yield Row(
            (name,),
            (view,),
            said.claim,
            said.certificate,
            least=least,
            surely=seen.bound(delta, SURE),
            most=seen.most(delta, limit),
            about=seen.about,
            audited={
                "method": seen.method,
                "significance": LIKELY,
                "limit": limit,
                "limits": limits,
                "share": least / limit if limit else None,
                "estimate": gaussian_estimate(seen.scores, seen.present, delta)._asdict(),
                **seen.beside(said.certificate),
            },
        )
