"""Histograms over public bins, and what is read off them: quantiles, and the heavy hitters of a public list.

A unit adds at most 1 in all: a record 1 to its bin, a client the shares of its records in each.
"""

from __future__ import annotations

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
    return _counted(f"histogram({name_of(values)}, {_bins(edges)})", values, edges, _as_counts)


def quantile(values: Values, q: Probability | Sequence[Probability], *, bins: Any) -> Statistic:
    """Quantiles of all units, read off a histogram, within whose bins values are taken to be spread evenly.

    The standard error is half the width of R. S. Woodruff's interval ("Confidence Intervals for Medians and Other
    Position Measures", JASA 1952): from the quantiles a standard error of the share below each further down and up.
    What the bins' width hides is not in it. Where noise is as large as the count beyond a quantile, two of them cover
    it less often than 95 times in 100: 80 to 90 times in the outermost twentieth of a few hundred units.

    Args:
      q: such as 0.5, or several, which cost no more.
      bins: as `histogram`; values outside do not count.

    Raises:
      ValueError: as `histogram`; a q that is no probability.
    """
    edges = checked_edges(bins)
    wanted = np.asarray(checked("q", q, Probability | Sequence[Probability]), np.float64)

    def read(counts: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
        return _quantiles(counts, error, edges, wanted)

    shown = f"quantile({name_of(values)}, {q}, {_bins(edges)})"
    return _counted(shown, values, edges, read)


class HeavyHitters(NamedTuple):
    """The items of a public list that occur most often, or their standard errors.

    Attributes:
      items: the items [most], the most frequent first.
      counts: f64[most], how many units have each.
    """

    items: Any
    counts: Any


def heavy_hitters(values: Values, *, candidates: Sequence[Any], most: Count) -> Statistic:
    """The `most` items of a public list that occur most often, released as `HeavyHitters`.

    All are counted and the largest noisy counts are named, which are a little too large for their being chosen. Values
    that are not in the list do not count.

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

    def read(counts: np.ndarray, error: float) -> tuple[HeavyHitters, HeavyHitters]:
        first = np.argsort(-counts, kind="stable")[:most]
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
    return _shared(shown, values, len(items), where, read)


_Read = Callable[[np.ndarray, float], tuple[Any, Any]]
"""(counts f64[k], the standard error of each) -> (value, standard error)."""


def _as_counts(counts: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    return counts, np.full(len(counts), error)


def _bins(edges: np.ndarray) -> str:
    return f"{len(edges) - 1} bins from {edges[0]:g} to {edges[-1]:g}"


def _counted(name: str, values: Values, edges: np.ndarray, read: _Read) -> Statistic:
    check_values(values)

    def where(value: jax.Array) -> jax.Array:
        low, high = jnp.float32(edges[:-1]), jnp.float32(edges[1:])
        value = value.astype(jnp.float32)[:, None]
        last = (jnp.arange(len(low)) == len(low) - 1) & (value == high)
        return ((low <= value) & (value < high)) | last

    return _shared(name, values, len(edges) - 1, where, read)


def _shared(
    name: str, values: Values, k: int, where: Callable[[jax.Array], jax.Array], read: _Read
) -> Statistic:
    """Of shares of k things. `where`: numbers [n] -> bool[n, k], which of the things each is."""

    def ask(crowd: Crowd) -> Asked:
        def shares(record: Example) -> jax.Array:
            numbers = jnp.asarray(value_of(values, record)).reshape(-1)
            return jnp.mean(where(numbers).astype(jnp.float32), 0)

        def of_totals(totals: list[Total]) -> tuple[Any, Any]:
            ((total, error),) = totals
            return read(total, error)

        return tallied(crowd, [Part(shares, 1.0)], of_totals)

    return Statistic(name, values, ask)


def _quantiles(
    counts: np.ndarray, error: float, edges: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(Quantiles, their standard errors), f64[...], as q, from noisy counts f64[k] of one standard error."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    # Noise makes it fall here and there: half way between the rising curves above and below.
    below = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
    total, k = max(float(below[-1] - below[0]), error, 1.0), len(counts)
    share = (below - below[0]) / total

    def at(p: np.ndarray) -> np.ndarray:
        return np.interp(p, share, edges)

    value = at(q)
    bins_below = np.interp(value, edges, np.arange(k + 1.0))
    # Of (count below) - q (count): (1 - q)^2 for each bin below, q^2 for each above.
    deviation = error / total * np.sqrt((1 - q) ** 2 * bins_below + q**2 * (k - bins_below))
    return value, (at(q + deviation) - at(q - deviation)) / 2
