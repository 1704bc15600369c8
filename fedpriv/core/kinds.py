"""Kinds of numbers that arguments may be, and a number as its kind.

Numbers of NumPy and JAX are taken for what they are worth, and come back as Python's.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax
import numpy as np

from fedpriv.core.complaints import require


class Range(NamedTuple):
    """The numbers that an argument may be.

    Attributes:
      wanted: what they are, in words.
      least, most: their bounds, which belong to them but for those in `without`.
      integer: whether they are integers.
    """

    wanted: str
    least: float
    most: float
    without: tuple[float, ...] = ()
    integer: bool = False

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int | float)
        return self.least <= number <= self.most and number not in self.without


LargeCount: TypeAlias = Annotated[
    int, Range("a whole number from 1 to 2^53", 1, 2**53, integer=True)
]
Rate: TypeAlias = Annotated[float, Range("a number above 0 and at most 1", 0, 1, (0,))]


def number(name: str, value: Any, kind: Any) -> Any:
    """A number as its kind, Python's.

    Raises:
      ValueError: it is not of that kind; names the argument, the value and the remedy.
    """
    found = number_in(value, kind.__metadata__[0])
    require(found is not None, name, value, f"give {kind.__metadata__[0].wanted}")
    return found


def number_in(value: Any, allowed: Range) -> Any:
    """The Python number; None: it is none of these."""
    found = _whole(value) if allowed.integer else _real(value)
    return found if found is not None and found in allowed else None


def plain_number(value: Any) -> Any:
    """The Python number in an array without axes, of NumPy or JAX; anything else the same."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or isinstance(value, jax.core.Tracer | np.ma.MaskedArray):
        return value
    if getattr(value, "ndim", True):
        return value
    kind = getattr(dtype, "kind", "?")
    if kind == "m":  # `np.timedelta64` says that it is an integer
        return None
    if kind in "biu":
        return bool(value) if kind == "b" else int(value)
    return float(value) if "float" in getattr(dtype, "name", "") else value  # bfloat16, too


def _whole(value: Any) -> int | None:
    value = plain_number(value)
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if fits else None


def _real(value: Any) -> float | None:
    """NaN, too, which no range holds."""
    value = plain_number(value)
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
