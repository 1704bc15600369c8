"""Examples on the scale of released statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.data.federation import Federation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.data.validation import leaves_of
from fedpriv.statistics.moments import Moments
from fedpriv.statistics.statistic import Released, Statistic

Examples = TypeVar("Examples", Federation, StreamedFederation, Any)


def normalised(examples: Examples, *, by: Released | Sequence[Released]) -> Examples:
    """Examples whose leaf that was asked for is (x - mean) / deviation, in float32; all others are as they are.

    A variance below its own standard error is taken for that, as noise would make it too small, or negative, and what
    is divided by it too large.

    Formal guarantees: post-processing costs nothing more than the statistics. What is trained on such a federation
    costs that beside its own epsilon: `fp.certify_together` counts both, and `fp.certify` says that it does not.

    Args:
      examples: a federation, with its held-out and public records, or a dict of arrays, such as the test examples. A
        streamed federation's leaf is then in the host's memory.
      by: `fp.statistics.mean_and_variance` of a leaf, as it was released; or one for each of several leaves.

    Raises:
      ValueError: a statistic that is not released, or is no mean and variance of a leaf; a leaf that is not there.
    """
    several = [by] if isinstance(by, Released | Statistic) else by
    sequence = isinstance(several, Sequence) and not isinstance(several, str) and len(several) > 0
    remedy = "give what fp.statistics.mean_and_variance(...).release(...) gave"
    require(sequence, "by", by, remedy)
    for each in several:
        unreleased = isinstance(each, Statistic)
        remedy_first = "it is not released; give what its .release(...) gives"
        require(not unreleased, "by", getattr(each, "name", each), remedy_first)
        moments = isinstance(each, Released) and isinstance(each.value, Moments)
        given = each.statistic.name if isinstance(each, Released) else each
        otherwise = ", or scale in a function of a record, as by an observed_mean of x and x²"
        require(moments, "by", given, remedy + otherwise)
        examples = _by_one(examples, each)
    return examples


def _by_one(examples: Any, released: Released) -> Any:
    if isinstance(examples, Federation | StreamedFederation):
        scaled = _of_leaf(examples.examples, released)
        leaves = dict.fromkeys((*examples.normalised, str(released.statistic.values)))
        return replace(examples, examples=scaled, normalised=tuple(leaves))
    return _of_leaf(leaves_of(examples), released)


def _of_leaf(examples: Example, released: Released) -> dict[str, Any]:
    name = released.statistic.values
    remedy = "give statistics of a leaf by its name, as mean_and_variance('age', ...)"
    require(isinstance(name, str), "by", released.statistic, remedy)
    given = isinstance(examples, Mapping)
    remedy = "give a federation, or a dict of arrays"
    require(given, "examples", examples, remedy)
    require(name in examples, "by", name, f"give statistics of one of {list(examples)}")
    leaf, (mean, variance) = examples[name], released.value
    deviation = np.sqrt(np.maximum(variance, released.standard_error.variance))
    deviation = np.where(deviation > 0, deviation, 1.0)  # of what is the same everywhere
    mean, deviation = (
        np.expand_dims(np.float32(each), released.statistic.axis) for each in (mean, deviation)
    )
    library: Any = jnp if isinstance(leaf, jax.Array) else np
    scaled = (library.asarray(leaf, np.float32) - mean) / deviation
    return {**examples, name: scaled}
