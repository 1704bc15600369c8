"""An attacker's two errors: those that scores show, and the least that a certificate allows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedpriv.privacy import Certificate

THRESHOLDS = 12
"""Points of the curve that is seen."""


def certified_errors(certificate: Certificate) -> dict[str, Any] | None:
    """The trade-off curve that no attacker is below; None where nothing is certified."""
    if not math.isfinite(certificate.epsilon):
        return None
    numbers = certificate.operational_numbers()
    return {
        "false_positive_rates": numbers.false_positive_rates,
        "false_negative_rates": numbers.false_negative_rates,
    }


def seen_errors(
    present: np.ndarray, absent: np.ndarray, significance: float = 0.05
) -> list[dict[str, Any]]:
    """Rates with their Clopper-Pearson intervals, of guessing "present" from a threshold on, for some thresholds.

    Each interval holds with probability 1 - significance, for a threshold that was fixed in advance; these are read off
    the scores, for a picture.
    """
    few = 1 / max(len(absent), 2)
    wanted = np.unique(np.quantile(absent, 1 - np.geomspace(few, 0.99, THRESHOLDS)))
    return [
        {
            "false_positives": _rate(int((absent >= at).sum()), len(absent), significance),
            "false_negatives": _rate(int((present < at).sum()), len(present), significance),
        }
        for at in wanted
    ]


def _rate(count: int, n: int, significance: float) -> dict[str, float]:
    from scipy.stats import binomtest

    interval = binomtest(count, n).proportion_ci(1 - significance, method="exact")
    return {"rate": count / n, "low": float(interval.low), "high": float(interval.high)}
