"""Which evaluations of a long run are drawn: a picture cannot show more than so many points of a curve."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

MOST = 1000  # points of a curve, or rows of a page's table


def drawn(values: np.ndarray, most: int = MOST) -> np.ndarray:
    """Evaluations to draw, i64[k], rising: the first, the last, and the extremes in between; all of them up to `most`.

    A stretch without a number keeps a place, so that a curve has its gaps.

    Args:
      values: f64[n], by which extremes are found.
      most: at least 4.
    """
    if len(values) <= most:
        return np.arange(len(values))
    parts = np.array_split(np.arange(1, len(values) - 1), (most - 2) // 2)
    missing = np.isnan(values)
    low, high = np.where(missing, np.inf, values), np.where(missing, np.inf, -values)
    kept = [part[of[part].argmin()] for part in parts for of in (low, high)]
    return np.unique([0, *kept, len(values) - 1])


def said(lengths: Iterable[int], most: int = MOST) -> str:
    """How evaluations were thinned, for a caption; "" where nothing was left out."""
    if max(lengths, default=0) <= most:
        return ""
    return f"Of a curve at most {most:,} points are drawn, with its ends and extremes; metrics.jsonl has all."
