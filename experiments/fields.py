"""What fields of a config, and options, may be: each check names the field, its value and what it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedpriv.mechanisms.mechanisms import gaussian

MOST = 2**24  # of anything that is counted: beyond this, neither training nor accounting ends
MOST_CLIENTS = 2**31 - 2
SMALLEST, LARGEST = 1e-30, 1e38  # of the numbers that float32 computes with


def at_least_one(**values: int | None) -> None:
    """Raises ValueError naming the first of the settings that is given and below 1, or beyond what ends."""
    for name, value in values.items():
        if value is None:
            continue
        if value < 1:
            raise ValueError(f"{name}: {value} is not at least 1")
        if value > MOST:
            raise ValueError(f"{name}: {value} exceeds {MOST}; choose fewer")


def population(clients: int) -> None:
    """Raises ValueError: below 1, or more than 32-bit numbers can tell apart, with one to spare for an empty slot."""
    if not 1 <= clients <= MOST_CLIENTS:
        raise ValueError(f"clients: {clients} is not from 1 to {MOST_CLIENTS}")


def positive(**values: float | None) -> None:
    """Raises ValueError naming the first of the settings that is given and not above 0 and finite, in float32, too."""
    for name, value in values.items():
        if value is None:
            continue
        if not 0 < value < math.inf:
            raise ValueError(f"{name}: {value} is not positive and finite")
        if not SMALLEST <= value <= LARGEST:
            raise ValueError(
                f"{name}: {value} is beyond float32; give one from {SMALLEST:g} to {LARGEST:g}"
            )


def each_once(algorithms: Sequence[str]) -> None:
    """Raises ValueError: none are named, or one twice."""
    if not algorithms or len(set(algorithms)) < len(algorithms):
        raise ValueError(f"algorithms: {algorithms}; name at least one, and each once")


def mechanism(clip_norm: float | str, noise_multiplier: float) -> None:
    """Raises ValueError naming what no mechanism can be made of; a clip norm that is a rule's name is taken for 1."""
    gaussian(1.0 if isinstance(clip_norm, str) else clip_norm, noise_multiplier)


def probability(**values: float | None) -> None:
    """Raises ValueError naming the first of the settings that is given and not in (0, 1)."""
    for name, value in values.items():
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{name}: {value} is not in (0, 1)")


def share(**values: float) -> None:
    """Raises ValueError naming the first of the settings that is not in (0, 1]."""
    for name, value in values.items():
        if not 0 < value <= 1:
            raise ValueError(f"{name}: {value} is not in (0, 1]")


def below_one(**values: float) -> None:
    """Raises ValueError naming the first of the settings that is not in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name}: {value} is not in [0, 1)")
