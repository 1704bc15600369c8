"""What features lie between, as --statistics-bounds has it: one interval for all, or one for each that is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from fedpriv.core.complaints import require

FIELD = "statistics_bounds"
Interval: TypeAlias = tuple[float, float]
Bounds: TypeAlias = Interval | tuple[str, ...]
"""LOW HIGH, or NAME=LOW:HIGH for each feature."""


def intervals_of(given: Bounds) -> Interval | Mapping[str, Interval]:
    """Of all features, or by name.

    Raises:
      ValueError: what is no interval; a feature that is named twice.
    """
    if given and not isinstance(given[0], str):
        return _checked(given, tuple(map(float, given)))
    each = [_named(str(text)) for text in given]
    found = dict(each)
    require(0 < len(found) == len(each), FIELD, " ".join(map(str, given)), "name each feature once")
    return found


def _named(text: str) -> tuple[str, Interval]:
    name, _, interval = text.rpartition("=")
    try:
        ends = tuple(map(float, interval.split(":")))
    except ValueError:
        ends = ()
    remedy = "give two numbers, LOW HIGH, or NAME=LOW:HIGH for each feature, as age=0:110"
    require(bool(name) and len(ends) == 2, FIELD, text, remedy)
    return name, _checked(text, ends)


def _checked(given: object, ends: tuple[float, ...]) -> Interval:
    low, high = ends
    fits = -math.inf < low < high < math.inf
    require(fits, FIELD, given, "give two numbers, the lower one first")
    return low, high
