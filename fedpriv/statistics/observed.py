"""The mean of what was observed, and the share that is missing, in one release."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import Example
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


class Observed(NamedTuple):
    """The mean of what is not missing, and how much is, or their standard errors.

    Attributes:
      mean: f64[...], of each number of a value.
      missing: f64[...], the share of each that is missing, in 0..1 but for the noise.
    """

    mean: Any
    missing: Any


def observed_mean(values: Values, *, bounds: Any) -> Statistic:
    """The mean of the values that are not missing (NaN), with the share that is: released as `Observed`.

    Each number of a value counts by itself. Over clients, every client counts by the share of its records that have the
    number, so that one without any does not count, and `missing` is the mean over clients of the share that has none.

    The mean divides by a noisy count of what was observed, which its standard error contains.

    Args:
      values: the name of a leaf, or ONE record -> numbers, NaN where they are missing.
      bounds: (low, high), numbers, or arrays for the numbers of a value, which is clipped into them.

    Raises:
      ValueError: as `mean`.
    """
    check_values(values)
    limits = checked_bounds(bounds)

    def ask(crowd: Crowd) -> Asked:
        shape = shape_within(values, crowd.record, limits)
        low, high = (np.broadcast_to(each, shape) for each in limits)
        of_records = crowd.unit == "record"

        def scaled(record: Example) -> jax.Array:
            return observed(scaled_to(numbers_of(values, record), limits))

        def there(record: Example) -> jax.Array:
            """Of which a record has one or the other; of clients, whose number is known, the difference is enough."""
            missing = jnp.isnan(numbers_of(values, record))
            each = jnp.stack([~missing, missing]) if of_records else 1 - 2 * missing
            return each.astype(jnp.float32)

        def read(totals: list[Total]) -> tuple[Observed, Observed]:
            total, number = totals
            of_one = number.error
            if of_records:
                has, lacks = number.sum
                all_of_them = np.maximum(has + lacks, 1.0)
                missing = lacks / all_of_them
                of_missing = of_one / all_of_them * np.hypot(1 - missing, missing)
            else:
                has, of_one = (crowd.clients + number.sum) / 2, of_one / 2
                missing = 1 - has / crowd.clients
                of_missing = np.full(shape, of_one / crowd.clients)
            mean, of_mean = ratio(total, Total(has, of_one))
            value = (low + high) / 2 + (high - low) / 2 * mean
            return Observed(value, missing), Observed((high - low) / 2 * of_mean, of_missing)

        radius = radius_of(shape)
        span = Observed(high - low, np.ones(shape))
        return tallied(crowd, [Part(scaled, radius), Part(there, radius)], read, span)

    return Statistic(f"observed_mean({name_of(values)}, bounds={bounds})", values, ask)
