"""What fields of a config, and options, may be: each check names the field, its value and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from fedpriv.core.arguments import Range, checked
from fedpriv.mechanisms.mechanisms import gaussian

_MOST = 2**24  # of anything that is counted: beyond this, neither training nor accounting ends
_LARGEST = 1e38  # of the numbers that float32 computes with

Number: TypeAlias = Annotated[
    int, Range(f"a whole number from 1 to {_MOST}", 1, _MOST, integer=True)
]
NumberOrZero: TypeAlias = Annotated[
    int, Range(f"a whole number from 0 to {_MOST}", 0, _MOST, integer=True)
]
Clients: TypeAlias = Annotated[
    int, Range("a whole number from 1 to 2^31 - 2", 1, 2**31 - 2, integer=True)
]
Seed32: TypeAlias = Annotated[
    int, Range("a whole number from 0 to 2^32 - 1", 0, 2**32 - 1, integer=True)
]
Single: TypeAlias = Annotated[float, Range("a number from 1e-30 to 1e+38", 1e-30, _LARGEST)]
SingleOrZero: TypeAlias = Annotated[float, Range("a number from 0 to 1e+38", 0, _LARGEST)]


def check_each(kind: Any, **values: Any) -> None:
    """Raises ValueError naming the first of the settings that is given and not of the kind."""
    for name, value in values.items():
        checked(name, value, kind | None)


def each_once(names: Sequence[str], field: str = "algorithms") -> None:
    """Raises ValueError: of a field's names there are none, or one twice."""
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{field}: {names}; name at least one, and each once")


def mechanism(clip_norm: float | str, noise_multiplier: float) -> None:
    """Raises ValueError naming what no mechanism can be made of; a clip norm that is a rule's name is taken for 1."""
    gaussian(1.0 if isinstance(clip_norm, str) else clip_norm, noise_multiplier)
