"""Arguments as people hand them in: which numbers and choices there are, and one line for what is none of them.

A public function names the kinds of its arguments in its signature, and checks them in its first lines:

    def poisson(population: Count, rate: Rate) -> Sampler:
        population = checked("population", population, Count)
        rate = checked("rate", rate, Rate)

Numbers of NumPy and JAX are taken for what they are worth, and come back as Python's.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import types
from collections.abc import Callable, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import jax
import numpy as np

from fedpriv.core.complaints import require, shown
from fedpriv.core.kinds import LargeCount as LargeCount
from fedpriv.core.kinds import Range, number_in, plain_number
from fedpriv.core.kinds import Rate as Rate
from fedpriv.core.trees import holds_numbers

INF = math.inf
LARGEST = 2**31 - 1  # what a compiled program counts with

Count: TypeAlias = Annotated[
    int, Range(f"a whole number from 1 to {LARGEST}", 1, LARGEST, integer=True)
]
CountOrZero: TypeAlias = Annotated[
    int, Range(f"a whole number from 0 to {LARGEST}", 0, LARGEST, integer=True)
]
Seed: TypeAlias = Annotated[
    int, Range("a whole number from -2^63 to 2^63 - 1", -(2**63), 2**63 - 1, integer=True)
]
Bits: TypeAlias = Annotated[int, Range("a whole number of bits from 1 to 32", 1, 32, integer=True)]
Finite: TypeAlias = Annotated[float, Range("a finite number", -INF, INF, (-INF, INF))]
Positive: TypeAlias = Annotated[float, Range("a finite number above 0", 0, INF, (0, INF))]
NonNegative: TypeAlias = Annotated[float, Range("a finite number, 0 or more", 0, INF, (INF,))]
Norm: TypeAlias = Annotated[float, Range("a number above 0 (inf: no bound)", 0, INF, (0,))]
Multiplier: TypeAlias = Annotated[
    float, Range("noise over sensitivity, 0 or more (0 hides nothing)", 0, INF)
]
Budget: TypeAlias = Annotated[float, Range("an epsilon above 0, in nats", 0, INF, (0, INF))]
Probability: TypeAlias = Annotated[
    float, Range("a probability strictly between 0 and 1", 0, 1, (0, 1))
]
MeanRuns: TypeAlias = Annotated[float, Range("a mean number of runs, 1 or more", 1, INF, (INF,))]
Decay: TypeAlias = Annotated[float, Range("a number from 0 to below 1", 0, 1, (1,))]
Fraction: TypeAlias = Annotated[float, Range("a number from 0 to 1", 0, 1)]
Percent: TypeAlias = Annotated[float, Range("a percentage from 0 to 100", 0, 100)]

_UNIONS = (types.UnionType, Union)
_NEITHER = object()


def checked(name: str, value: Any, kind: Any) -> Any:
    """An argument as its kind; a number comes back as Python's.

    Args:
      kind: one of the numbers above, `Literal` choices, `bool`, or several of these; optionally with `| None`, `|
        Callable`, or `| jax.Array` for computed values, which are returned unchanged. Or a sequence of a kind, which is
        returned as a tuple.

    Raises:
      ValueError: it is not of that kind; names the argument, the value and the remedy.
    """
    kinds = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    if value is None and type(None) in kinds:
        return None
    for one in kinds:
        taken = _taken(name, value, one)
        if taken is not _NEITHER:
            return taken
    wanted = " or ".join(filter(None, (_wanted(kind, kinds) for kind in kinds)))
    raise ValueError(f"{name}: {shown(value)}; give {wanted}")


def _taken(name: str, value: Any, kind: Any) -> Any:
    if kind is type(None):
        return _NEITHER
    if kind is jax.Array:
        return value if _is_computed(value) else _NEITHER
    if get_origin(kind) is Callable:
        return value if callable(value) and not isinstance(value, type) else _NEITHER
    if get_origin(kind) is Literal:
        known = isinstance(value, str) and value in get_args(kind)
        return str(value) if known else _NEITHER
    if kind is bool:
        python_value = plain_number(value)
        return python_value if isinstance(python_value, bool) else _NEITHER
    if get_origin(kind) is not Annotated:
        return _each(name, value, get_args(kind))
    number = number_in(value, kind.__metadata__[0])
    return _NEITHER if number is None else number


def _wanted(kind: Any, beside: Sequence[Any] = ()) -> str:
    """A kind in words, and after such as stand `beside` it."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    if get_origin(kind) is Annotated:
        return str(kind.__metadata__[0].wanted)
    if get_origin(kind) is Callable:
        return "a function"
    if get_origin(kind) in (Sequence, tuple):
        inner = get_args(kind)[0]
        return "several, in a list" if inner in beside else f"a list, each {_wanted(inner)}"
    return "True or False" if kind is bool else ""


def check_fields(self: Any) -> None:
    """Checks those fields of a dataclass whose types are kinds of arguments, for its `__post_init__`.

    Raises:
      ValueError: as `checked`.
    """
    for name, kind in kinds_of_fields(type(self)).items():  # type: ignore[arg-type]
        object.__setattr__(self, name, checked(name, getattr(self, name), kind))


def check_path(name: str, value: object, remedy: str) -> None:
    """Raises ValueError: the argument is no name of a file or folder."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else b""
    require(isinstance(path, str) and "\0" not in path, name, value, remedy)


def is_name(value: object) -> bool:
    """Whether it can name a number: a text in one line that neither is empty nor begins or ends with a space."""
    return isinstance(value, str) and value.isprintable() and value.strip() == value != ""


def kind_of(hint: Any) -> Any:
    """The kind that a type hint names, for `checked`; None where it names none."""
    if get_origin(hint) in _UNIONS:
        beside = (type(None), jax.Array)
        inner = [one for one in get_args(hint) if one not in beside]
        inner = [one for one in inner if get_origin(one) is not Callable]
        return hint if inner and all(map(kind_of, inner)) else None
    if get_origin(hint) is Annotated:
        return hint if isinstance(hint.__metadata__[0], Range) else None
    if get_origin(hint) in (Sequence, tuple):
        return hint if kind_of(get_args(hint)[0]) else None
    return hint if hint is bool or get_origin(hint) is Literal else None


@functools.cache
def kinds_of_fields(cls: Any) -> dict[str, Any]:
    """Name -> kind, of those fields of a dataclass or named tuple whose types are kinds of arguments."""
    hints = get_type_hints(cls, include_extras=True)
    names = getattr(cls, "_fields", None)
    names = names or [field.name for field in dataclasses.fields(cls)]
    return {name: hints[name] for name in names if kind_of(hints[name])}


def _each(name: str, value: Any, kinds: tuple) -> Any:
    row = getattr(value, "ndim", 0) == 1
    several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not (row or several) or isinstance(value, jax.core.Tracer):
        return _NEITHER
    any_number = len(kinds) == 1 or kinds[1] is Ellipsis
    fits = any_number or len(value) == len(kinds)
    require(fits, name, value, f"give {len(kinds)} of them")
    if row and getattr(value.dtype, "kind", "?") in "biuf":
        value = np.asarray(value).tolist()
    return tuple(checked(f"{name}[{i}]", one, kinds[0]) for i, one in enumerate(value))


def _is_computed(value: Any) -> bool:
    """Whether it is an array of real numbers that a program computes, or that has axes."""
    if not isinstance(value, jax.Array) or not (isinstance(value, jax.core.Tracer) or value.ndim):
        return False
    return holds_numbers(value.dtype)
