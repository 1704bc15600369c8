"""The rows of an audit of trainings, by one run or by many: one for each delta, of what a view saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from experiments.attacks.audit.canary import bounded
from experiments.attacks.audit.exact_pair import of_limits
from experiments.attacks.audit.row import LIKELY, SURE, Row
from experiments.config.experiment import Ledger
from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.privacy import Certificate


class Seen(Protocol):
    """What one view saw of the trainings of an algorithm."""

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
    """What `view` saw, beside what is said of the algorithm."""
    for delta in deltas:
        said = bounded(ledger, name, rounds, view, delta)
        least = seen.bound(delta, LIKELY)
        found = of_limits(least, seen.limits(delta))
        yield Row(
            (name,),
            (view,),
            said.claim,
            said.certificate,
            least=least,
            surely=seen.bound(delta, SURE),
            most=seen.most(delta, found["limit"]),
            about=seen.about,
            audited={
                "method": seen.method,
                "significance": LIKELY,
                **found,
                "estimate": gaussian_estimate(seen.scores, seen.present, delta)._asdict(),
                **seen.beside(said.certificate),
            },
        )
