"""An interval for a metric of one client, over its own records: how another draw of such records might have judged."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
_ROUNDING = 1e-6
"""Of a fraction in float32: what is this near to 0 or 1 is 0 or 1."""


def own_interval(
    value: ArrayLike,
    error: ArrayLike,
    units: ArrayLike,
    share: ArrayLike,
    records: ArrayLike,
    fraction: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of an interval of 95 %, conditional on the trained model; arrays of one shape.

    Of a fraction (an accuracy, an AUC) it is C. J. Clopper and E. S. Pearson's of so many records as would have its
    standard error (E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", Survey Methodology, 1998): of independent records Clopper and Pearson's
    own, and never narrower than that of the records behind the fraction. It is wide for few records, and where all of
    them are right. Of another metric it is Student's t over the units.

    Args:
      value: the metric.
      error, units, share: as `fedpriv.engine.own_errors.OwnErrors`.
      records: the weight of the records.
      fraction: whether the metric's name says that it is one, in 0..1. Where any value is not, as of an accuracy in
        percent, it is none.

    Returns:
      (low, high); NaN where the value is, or nothing is known: where the share is NaN; of a metric that is no fraction
      also of fewer than two units, and where all records are alike.
    """
    from scipy import stats

    value, error, units, share, records = (
        np.asarray(x, float) for x in (value, error, units, share, records)
    )
    tail, enough = (1 - LEVEL) / 2, units > 1
    freedom = np.where(enough, units - 1, 1.0)
    reach = stats.t.isf(tail, freedom)
    if not fraction or np.any((value < -_ROUNDING) | (value > 1 + _ROUNDING)):
        half = np.where(enough & (error > 0), reach * error, np.nan)
        return value - half, value + half
    value = np.where(
        np.minimum(np.abs(value), np.abs(1 - value)) <= _ROUNDING, np.rint(value), value
    )
    count = np.maximum(records, units)  # weights below 1 are no fewer records
    inside = (value > 0) & (value < 1)
    known = inside & enough & (error > 0)
    loss = (stats.t.isf(tail, np.maximum(count - 1, 1.0)) / reach) ** 2  # of few persons
    alike = value * (1 - value) / np.where(known, error, 1.0) ** 2 * loss
    alike = np.minimum(alike * count / np.maximum(count - 1, 1.0), share * count)
    alike = np.where(known, alike, np.where(inside, 0.0, share * units))
    right = value * alike
    low = np.where(right > 0, stats.beta.ppf(tail, right, alike - right + 1), 0.0)
    high = np.where(alike - right > 0, stats.beta.isf(tail, right + 1, alike - right), 1.0)
    there = np.isfinite(value) & (units > 0) & np.isfinite(share)
    return np.where(there, low, np.nan), np.where(there, high, np.nan)
