"""Reads of several run folders: how much better one method is than another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.compare import RunFolder
from experiments.reproduce.item import Cell, Read, Training, Value


def gap(read: Read) -> Read:
    """What the first half of the runs has more than the second half, on average; no spread."""

    def gap_of(*runs: RunFolder) -> Value:
        values = [read(run).mean for run in runs]
        half = len(values) // 2
        return Value(float(np.mean(values[:half]) - np.mean(values[half:])))

    return gap_of


def change(read: Read) -> Read:
    """What the first run has more than the second, less what the third has more than the fourth."""

    def change_of(*runs: RunFolder) -> Value:
        a, b, c, d = (read(run).mean for run in runs)
        return Value((a - b) - (c - d))

    return change_of


def span(read: Read) -> Read:
    """The largest less the smallest of the runs' numbers."""

    def span_of(*runs: RunFolder) -> Value:
        values = [read(run).mean for run in runs]
        return Value(max(values) - min(values))

    return span_of


def claim(
    row: str,
    column: str,
    published: str,
    read: Read,
    ours: Sequence[Training],
    theirs: Sequence[Training],
) -> Cell:
    """A cell for the `gap` between two methods, each by a training or by several."""
    return Cell(row, column, published, (*ours, *theirs), gap(read))
