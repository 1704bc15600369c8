"""Reports of epsilons that are equal, whatever algorithms they are of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from fedpriv.experiments.runs.contents import Report

T = TypeVar("T")


def alike(each: Iterable[tuple[Report, T]]) -> list[tuple[Report, list[T]]]:
    """What equal reports are of, in the order of the first of each."""
    found = list[tuple[Report, list[T]]]()
    for report, of in each:
        others = next((others for known, others in found if known == report), None)
        if others is None:
            found.append((report, others := []))
        others.append(of)
    return found
