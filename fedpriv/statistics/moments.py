"""Counts, sums, means and variances.

Means are over units: every client counts equally, with the mean over its own records, or every record does. How many
clients there are is public; how many records is not, so that means over records divide by a noisy count.

A unit that is zeroed out adds nothing to counts, sums, and means over records. To means over clients, whose number
stays, it adds the middle of the bounds, from which no value is further than half of their width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, CountOrZero, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.core.user_functions import asked
from fedpriv.statistics.statistic import Asked, Crowd, Statistic
from fedpriv.statistics.tally import Part, Total, ratio, tallied
from fedpriv.statistics.values import (
    Values,
    check_values,
    checked_bounds,
    name_of,
    numbers_of,
    observed,
    radius_of,
    scaled_to,
    shape_within,
)


class Moments(NamedTuple):
    """Mean and variance, or their standard errors.

    Attributes:
      mean, variance: f64[...], of each number of a value.
    """

    mean: Any
    variance: Any


def count(where: Callable[[Example], Any] | None = None, *, most: Count = 1) -> Statistic:
    """How many records there are of which `where` is true, of each client at most `most`.

    By default it is the number of units that have such a record: of clients, or of records. A record adds at most 1,
    and a client no more than it has room for, whatever `most` is.

    Args:
      where: ONE record -> bool, or a number, which is false where it is 0 or missing (NaN); None: all records.

    Raises:
      ValueError: `where` is no function, or `most` is below 1; when asked, `where` that gives several values.
    """
    fits = where is None or callable(where)
    require(fits, "where", where, "give a function of one record, as lambda x: x['age'] > 64")
    most = checked("most", most, Count)

    def one(record: Example) -> jax.Array:
        value = jnp.asarray(True if where is None else asked("where", where, "(record)", record))
        remedy = f"let it give one value, not {list(value.shape)}"
        require(value.shape == (), "where", where, remedy)
        return (observed(value) != 0).astype(jnp.float32)

    def ask(crowd: Crowd) -> Asked:
        reach = min(most, crowd.per_client) if crowd.unit == "client" else 1
        return _summed(crowd, one, (np.zeros(()), np.full((), float(reach))))

    of = "" if where is None else f"{name_of(where)}, "
    return Statistic(f"count({of}most={most})", one, ask)


def sum(values: Values, *, bounds: Any) -> Statistic:
    """The sum over all records; what one unit adds to it is clipped into `bounds`: one client, or one record.

    A record whose value is missing (NaN) adds nothing; of a client that has no value, 0 is clipped.

    Args:
      bounds: (low, high), numbers, or arrays for the numbers of a value.

    Raises:
      ValueError: bounds that are reversed, or no bounds; when asked, a value of other shapes than the bounds.
    """
    check_values(values)
    limits = checked_bounds(bounds)

    def ask(crowd: Crowd) -> Asked:
        return _summed(crowd, values, limits)

    return Statistic(f"sum({name_of(values)}, bounds={bounds})", values, ask)


def _summed(crowd: Crowd, values: Values, bounds: tuple[np.ndarray, np.ndarray]) -> Asked:
    """The sum of what units add, each clipped into the bounds."""
    low, high = bounds
    shape = shape_within(values, crowd.record, bounds)
    reach = np.maximum(high, -low)

    of_records = crowd.unit == "record"

    def within(numbers: jax.Array) -> jax.Array:
        return jnp.clip(numbers, low, high)

    def bounded(total: jax.Array) -> jax.Array:
        return (total if of_records else within(total)) / jnp.float32(reach)

    def read(totals: list[Total]) -> tuple[np.ndarray, np.ndarray]:
        ((total, error),) = totals
        return reach * total, np.broadcast_to(reach * error, shape).copy()

    def each(record: Example) -> jax.Array:
        numbers = numbers_of(values, record)
        return observed(within(numbers) if of_records else numbers)

    span = crowd.units * np.broadcast_to(high - low, shape)
    return tallied(crowd, [Part(each, radius_of(shape), True, bounded)], read, span)


def mean(
    values: Values, *, bounds: Any, axis: CountOrZero | Sequence[CountOrZero] = ()
) -> Statistic:
    """The mean over all units, of each number of a value by itself; values outside are clipped into `bounds`.

    Where values are missing (NaN), nothing is released: ask `observed_mean`.

    Args:
      bounds: (low, high), numbers, or arrays for the numbers of a value.
      axis: axes of ONE record's value that are averaged over, too, such as the pixels' (0, 1) of an image.

    Raises:
      ValueError: as `sum`; an axis that values do not have.
    """
    return _of_moments("mean", values, bounds, axis)


def mean_and_variance(
    values: Values, *, bounds: Any, axis: CountOrZero | Sequence[CountOrZero] = ()
) -> Statistic:
    """As `mean`, with the variance: released as `Moments`. Over clients' records, each client counts equally.

    The variance is unbiased, so one that is small beside its standard error may be negative.

    Args:
      values, bounds, axis: as `mean`.

    Raises:
      ValueError: as `mean`.
    """
    return _of_moments("mean_and_variance", values, bounds, axis)


def _of_moments(name: str, values: Values, bounds: Any, axis: Any) -> Statistic:
    check_values(values)
    limits = checked_bounds(bounds)
    given = checked("axis", axis, CountOrZero | Sequence[CountOrZero])
    axes = given if isinstance(given, tuple) else (given,)

    def ask(crowd: Crowd) -> Asked:
        shape = shape_within(values, crowd.record, limits, axes)
        low, high = (np.broadcast_to(each, shape) for each in limits)
        middle, reach = (low + high) / 2, (high - low) / 2
        box = np.expand_dims(low, axes), np.expand_dims(high, axes)

        def scaled(record: Example) -> jax.Array:
            """In [-1, 1]."""
            return scaled_to(numbers_of(values, record), box)

        def first(record: Example) -> jax.Array:
            return jnp.mean(scaled(record), axes)

        def second(record: Example) -> jax.Array:
            return jnp.mean(2 * scaled(record) ** 2 - 1, axes)

        powers = [first, second] if name == "mean_and_variance" else [first]
        parts = [Part(power, radius_of(shape)) for power in powers]
        if crowd.unit == "record":
            parts.append(Part(lambda record: jnp.float32(1), 1.0))

        def read(totals: list[Total]) -> tuple[Any, Any]:
            units = (
                totals.pop()
                if crowd.unit == "record"
                else Total(np.array(float(crowd.clients)), 0.0)
            )
            means, spreads = _moments(totals, units)
            of_mean = middle + reach * means[0], np.abs(reach * means[1])
            if not spreads:
                return of_mean
            of_variance = reach**2 * spreads[0], reach**2 * spreads[1]
            value, error = zip(of_mean, of_variance, strict=True)
            return Moments(*value), Moments(*error)

        wide = high - low
        span = Moments(wide, wide**2 / 4) if len(powers) > 1 else wide
        return tallied(crowd, parts, read, span)

    of_axes = f", axis={axes}" if axes else ""
    shown = f"{name}({name_of(values)}, bounds={bounds}{of_axes})"
    return Statistic(shown, values, ask, axis=axes)


def _moments(totals: list[Total], units: Total) -> tuple[tuple, tuple]:
    """((mean, its error), (variance, its error), or nothing), from the totals of u and of 2 u^2 - 1, u in [-1, 1].

    Errors are those of the delta method; the bias that noise has in the square of a mean is taken off.
    """
    m, of_mean = ratio(totals[0], units)
    if len(totals) == 1:
        return (m, of_mean), ()
    n = max(float(units.sum), 1.0)
    of_u, of_n = totals[0].error / n, units.error / n
    w, of_w = totals[1].sum / n, totals[1].error / n
    variance = (1 + w) / 2 - m**2 + of_mean**2
    square = np.maximum(m**2, of_mean**2)  # of a mean that may be anywhere near
    error = (of_w / 2) ** 2 + 4 * square * of_u**2 + 2 * of_mean**4
    error += ((2 * m**2 - w / 2) * of_n) ** 2
    return (m, of_mean), (variance, np.sqrt(error))
