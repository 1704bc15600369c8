"""Histograms over public bins, and what is read off them: quantiles, and the heavy hitters of a public list.

A unit adds at most 1 in all: a record 1 to its bin, a client the shares of its records in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.statistics.statistic import Asked, Crowd, Statistic
from fedpriv.statistics.tally import Part, Total, tallied
from fedpriv.statistics.values import (
    Values,
    check_values,
    checked_candidates,
    checked_edges,
    name_of,
    value_of,
)


def histogram(values: Values, *, bins: Any) -> Statistic:
    """How many units are in each bin, as `np.histogram`: values outside of all bins do not count.

    A unit of several numbers, such as a client of several records, adds to each bin the share of them that is there.
    Counts are unbiased, so some may be negative.

    Args:
      bins: the edges, rising, [bins + 1], which say nothing of the data; the last bin has both its edges.

    Raises:
      ValueError: no bins, or edges that do not rise.
    """
    edges = checked_edges(bins)
    return _counted(
        f"histogram({name_of(values)}, {_bins(edges)})", values, edges, _as_counts, float
    )


def quantile(values: Values, q: Probability | Sequence[Probability], *, bins: Any) -> Statistic:
    """Quantiles of all units, read off a histogram, within whose bins values are taken to be spread evenly.

    The standard error is that of an interval as R. S. Woodruff's ("Confidence Intervals for Medians and Other Position
    Measures", JASA 1952): 1.96 of them reach both ends of all bins that may hold the quantile, given the noisy counts.
    So it contains the width of the quantile's bin, and where noise hides everything, that of all bins.

    Args:
      q: such as 0.5, or several, which cost no more.
      bins: as `histogram`; values outside do not count.

    Raises:
      ValueError: as `histogram`; a q that is no probability.
    """
    edges = checked_edges(bins)
    wanted = np.asarray(checked("q", q, Probability | Sequence[Probability]), np.float64)

    def read(totals: list[Total]) -> tuple[np.ndarray, np.ndarray]:
        ((counts, error),) = totals
        return _quantiles(counts, error, edges, wanted)

    def span(units: int) -> float:
        return float(edges[-1] - edges[0])

    shown = f"quantile({name_of(values)}, {q}, {_bins(edges)})"
    return _counted(shown, values, edges, read, span)


class HeavyHitters(NamedTuple):
    """The items of a public list that occur most often, or their standard errors.

    Attributes:
      items: the items [most], the most frequent first, by a count of their own.
      counts: f64[most], how many units have each: unbiased, and so not quite in order.
    """

    items: Any
    counts: Any


def heavy_hitters(values: Values, *, candidates: Sequence[Any], most: Count) -> Statistic:
    """The `most` items of a public list that occur most often, released as `HeavyHitters`.

    All are counted twice, each time with noise of its own: a first count chooses the items and their order, and the
    second is released of those, so that it is not too large for having been chosen. Values that are not in the list do
    not count.

    Args:
      candidates: whole numbers, such as classes, or numbers of words.
      most: how many are wanted; all of them at most.

    Raises:
      ValueError: an empty list, items that are no whole numbers or are listed twice, or `most` above their number.
    """
    check_values(values)
    items = checked_candidates(candidates)
    most = checked("most", most, Count)
    require(
        most <= len(items), "most", most, f"give at most the number of candidates, {len(items)}"
    )

    def read(totals: list[Total]) -> tuple[HeavyHitters, HeavyHitters]:
        choosing, (counts, error) = totals
        first = np.argsort(-choosing.sum, kind="stable")[:most]
        return (
            HeavyHitters(items[first], counts[first]),
            HeavyHitters(items[first], np.full(most, error)),
        )

    def where(value: jax.Array) -> jax.Array:
        with np.errstate(all="ignore"):
            there = items.astype(value.dtype)
            is_same = there.astype(np.int64) == items  # 256 is no number of bytes
        return (value[:, None] == jnp.asarray(there)) & is_same

    shown = f"heavy_hitters({name_of(values)}, {len(items)} candidates, most={most})"

    def span(units: int) -> HeavyHitters:
        return HeavyHitters(math.inf, float(units))

    return _shared(shown, values, where, read, span, times=2)


_Z = 1.96
"""Standard errors that cover 95 times in 100."""
_SURE = 2.5
"""Deviations at which it is sure on which side of an edge a quantile lies: more, as there are many edges."""

_Read = Callable[[list[Total]], tuple[Any, Any]]
"""Counts f64[k] with the standard error of each, as often as they are counted -> (value, standard error)."""


def _as_counts(totals: list[Total]) -> tuple[np.ndarray, np.ndarray]:
    ((counts, error),) = totals
    return counts, np.full(len(counts), error)


def _bins(edges: np.ndarray) -> str:
    return f"{len(edges) - 1} bins from {edges[0]:g} to {edges[-1]:g}"


def _counted(
    name: str, values: Values, edges: np.ndarray, read: _Read, span: Callable[[int], Any]
) -> Statistic:
    check_values(values)

    def where(value: jax.Array) -> jax.Array:
        low, high = jnp.float32(edges[:-1]), jnp.float32(edges[1:])
        value = value.astype(jnp.float32)[:, None]
        last = (jnp.arange(len(low)) == len(low) - 1) & (value == high)
        return ((low <= value) & (value < high)) | last

    return _shared(name, values, where, read, span)


def _shared(
    name: str,
    values: Values,
    where: Callable[[jax.Array], jax.Array],
    read: _Read,
    span: Callable[[int], Any],
    times: int = 1,
) -> Statistic:
    """Of shares of k things, counted so many times.

    Args:
      where: numbers [n] -> bool[n, k], which of them each is.
      span: number of units -> as of `Asked`.
    """

    def ask(crowd: Crowd) -> Asked:
        def shares(record: Example) -> jax.Array:
            numbers = jnp.asarray(value_of(values, record)).reshape(-1)
            return jnp.mean(where(numbers).astype(jnp.float32), 0)

        return tallied(crowd, [Part(shares, 1.0)] * times, read, span(crowd.units))

    return Statistic(name, values, ask)


def _quantiles(
    counts: np.ndarray, error: float, edges: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(Quantiles, their standard errors), f64[...], as q, from noisy counts f64[k] of one standard error."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    # Noise makes it fall here and there: half way between the rising curves above and below.
    below = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
    total = max(float(below[-1] - below[0]), error, 1.0)
    share = (below - below[0]) / total

    def at(p: np.ndarray) -> np.ndarray:
        return np.interp(p, share, edges)

    value = at(q)
    return value, _errors(counts, error, edges, q, value)


def _errors(
    counts: np.ndarray, error: float, edges: np.ndarray, q: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Such that 1.96 of them reach both ends of the bins that may hold the quantile, f64[...], as q.

    Those may not that begin at an edge, or after one, which the quantile is surely left of; or end at, or before, one
    that it is surely right of.
    """
    k, share = len(counts), q.reshape(-1)
    below = np.concatenate([[0.0], np.cumsum(counts)])[:, None]
    excess = below - share * below[-1]  # [k + 1, quantiles], in truth below 0 left of the quantile
    bins_below = np.arange(k + 1.0)[:, None]
    deviation = error * np.sqrt((1 - share) ** 2 * bins_below + share**2 * (k - bins_below))
    is_left = np.maximum.accumulate(excess > _SURE * deviation)  # of this edge, or of one before
    is_right = np.maximum.accumulate((excess < -_SURE * deviation)[::-1])[::-1]
    may = ~is_left[:-1] & ~is_right[1:]
    its_bin = np.searchsorted(edges[1:-1], value.reshape(-1), "right")
    may[its_bin, np.arange(len(share))] = True
    low, high = edges[:-1][may.argmax(0)], edges[::-1][may[::-1].argmax(0)]
    reach = np.maximum(value.reshape(-1) - low, high - value.reshape(-1))
    return (reach / _Z).reshape(q.shape)
