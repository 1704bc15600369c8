"""Fixed points: what a step leaves as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def fixed_point(step: Callable[[T], T], start: T) -> T:
    """What repeated steps from `start` come to, once a further one changes nothing."""
    now = start
    while (after := step(now)) != now:
        now = after
    return now
