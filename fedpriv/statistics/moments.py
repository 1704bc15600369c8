"""Counts, sums, means and variances.

Means are over units: every client counts equally, with the mean over its own records, or every record does. How many
clients there are is public; how many records is not, so that means over records divide by a noisy count.

A unit that is zeroed out adds nothing to counts, sums, and means over records. To means over clients, whose number
stays, it adds the middle of the bounds, from which no value is further than half of their width.
"""

from __future__ import annotations

import math
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
from fedpriv.statistics.tally import Part, Total, tallied
from fedpriv.statistics.values import (
    Values,
    check_values,
    checked_bounds,
    name_of,
    shape_of,
    value_of,
)


class Moments(NamedTuple):
    """Mean and variance, or their standard errors.

    Attributes:
      mean, variance: f64[...], of each number of a value.
    """

    mean: Any
    variance: Any


def count(where: Callable[[Example], Any] | None = None, *, most: Count = 1) -> Statistic:
    """How many records there are of which `where` is true, of each unit at most `most`.

    By default it is the number of units that have such a record: of clients, or of records.

    Args:
      where: ONE record -> bool; None: all records.

    Raises:
      ValueError: `where` is no function, or `most` is below 1; when asked, `where` that gives several values.
    """
    fits = where is None or callable(where)
    require(fits, "where", where, "give a function of one record, as lambda x: x['age'] > 64")
    most = checked("most", most, Count)

    def one(record: Example) -> jax.Array:
        is_there = jnp.asarray(
            True if where is None else asked("where", where, "(record)", record), bool
        )
        remedy = f"let it give one value, not {list(is_there.shape)}"
        require(is_there.shape == (), "where", where, remedy)
        return is_there.astype(jnp.float32)

    of = "" if where is None else f"{name_of(where)}, "
    return _summed(f"count({of}most={most})", one, (np.zeros(()), np.full((), float(most))))


def sum(values: Values, *, bounds: Any) -> Statistic:
    """The sum over all records; what one unit adds to it is clipped into `bounds`: one client, or one record.

    Args:
      bounds: (low, high), numbers, or arrays for the numbers of a value.

    Raises:
      ValueError: bounds that are reversed, or no bounds; when asked, a value of other shapes than the bounds.
    """
    check_values(values)
    limits = checked_bounds(bounds)
    return _summed(f"sum({name_of(values)}, bounds={bounds})", values, limits)


def _summed(name: str, values: Values, bounds: tuple[np.ndarray, np.ndarray]) -> Statistic:
    low, high = bounds

    def ask(crowd: Crowd) -> Asked:
        shape = _shape(values, crowd, bounds)
        reach = np.maximum(high, -low)

        def bounded(total: jax.Array) -> jax.Array:
            return jnp.clip(total, low, high) / jnp.float32(reach)

        def read(totals: list[Total]) -> tuple[np.ndarray, np.ndarray]:
            ((total, error),) = totals
            return reach * total, np.broadcast_to(reach * error, shape).copy()

        def each(record: Example) -> jax.Array:
            return jnp.asarray(value_of(values, record), jnp.float32)

        return tallied(crowd, [Part(each, _radius(shape), True, bounded)], read)

    return Statistic(name, values, ask)


def mean(
    values: Values, *, bounds: Any, axis: CountOrZero | Sequence[CountOrZero] = ()
) -> Statistic:
    """The mean over all units, of each number of a value by itself; values outside are clipped into `bounds`.

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
        shape = _shape(values, crowd, limits, axes)
        low, high = (np.broadcast_to(each, shape) for each in limits)
        middle, reach = (low + high) / 2, (high - low) / 2
        box = [np.expand_dims(each, axes) for each in (low, high, middle, reach)]

        def scaled(record: Example) -> jax.Array:
            """In [-1, 1]."""
            value = jnp.asarray(value_of(values, record), jnp.float32)
            return _scaled(jnp.clip(value, *box[:2]), *box[2:])

        def first(record: Example) -> jax.Array:
            return jnp.mean(scaled(record), axes)

        def second(record: Example) -> jax.Array:
            return jnp.mean(2 * scaled(record) ** 2 - 1, axes)

        powers = [first, second] if name == "mean_and_variance" else [first]
        parts = [Part(power, _radius(shape)) for power in powers]
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

        return tallied(crowd, parts, read)

    of_axes = f", axis={axes}" if axes else ""
    shown = f"{name}({name_of(values)}, bounds={bounds}{of_axes})"
    return Statistic(shown, values, ask, axis=axes)


def _moments(totals: list[Total], units: Total) -> tuple[tuple, tuple]:
    """((mean, its error), (variance, its error), or nothing), from the totals of u and of 2 u^2 - 1, u in [-1, 1].

    Errors are those of the delta method; the bias that noise has in the square of a mean is taken off.
    """
    n = max(float(units.sum), 1.0)
    of_n = units.error / n
    m, of_u = totals[0].sum / n, totals[0].error / n
    of_mean = np.sqrt(of_u**2 + (m * of_n) ** 2)
    if len(totals) == 1:
        return (m, of_mean), ()
    w, of_w = totals[1].sum / n, totals[1].error / n
    variance = (1 + w) / 2 - m**2 + of_mean**2
    square = np.maximum(m**2 - of_mean**2, 0)
    error = (of_w / 2) ** 2 + 4 * square * of_u**2 + 2 * of_mean**4
    error += ((2 * m**2 - w / 2) * of_n) ** 2
    return (m, of_mean), (variance, np.sqrt(error))


def _scaled(value: jax.Array, middle: np.ndarray, reach: np.ndarray) -> jax.Array:
    return (value - jnp.float32(middle)) / jnp.float32(reach)


def _radius(shape: tuple[int, ...]) -> float:
    """Of a box of sides from -1 to 1."""
    return math.sqrt(math.prod(shape))


def _shape(
    values: Values,
    crowd: Crowd,
    bounds: tuple[np.ndarray, np.ndarray],
    axes: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Of what is released.

    Raises:
      ValueError: the bounds do not go with it, or the axes.
    """
    whole = shape_of(values, crowd.record)
    remedy = f"give axes of a value, whose shape is {list(whole)}"
    fits = all(axis < len(whole) for axis in axes) and len(set(axes)) == len(axes)
    require(fits, "axis", axes, remedy)
    kept = tuple(size for axis, size in enumerate(whole) if axis not in axes)
    for each in bounds:
        try:
            fits = np.broadcast_shapes(each.shape, kept) == kept
        except ValueError:
            fits = False
        remedy = f"give numbers, or arrays for {list(kept)} numbers"
        require(fits, "bounds", each, remedy)
    return kept
