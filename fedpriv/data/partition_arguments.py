"""What partitions are given: a generator, the rows to distribute, labels, numbers of clients."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, CountOrZero, Positive, checked
from fedpriv.core.complaints import require, shown
from fedpriv.data.labels import class_numbers
from fedpriv.data.validation import array_of, on_host


def check_generator(rng: Generator) -> None:
    """Raises ValueError: what a partition is given is no generator."""
    require(isinstance(rng, Generator), "rng", rng, "give one such as np.random.default_rng(0)")


def check_spawning(rng: Generator) -> None:
    """Raises ValueError: what a partition is given is no generator, or can have none beside it."""
    check_generator(rng)
    able = hasattr(rng.bit_generator.seed_seq, "spawn")
    require(able, "rng", rng, "it cannot spawn another; give one such as np.random.default_rng(0)")


def rows_of(total_or_rows: CountOrZero | ArrayLike, rows: ArrayLike | None) -> np.ndarray:
    """The row numbers to partition, i64[n], of which there may be a number, or some of those numbers."""
    own = as_rows("total_or_rows", total_or_rows)
    return own if rows is None else as_rows("rows", rows, len(own))


def as_rows(
    name: str, total_or_rows: CountOrZero | ArrayLike, total: int | None = None
) -> np.ndarray:
    """A partition's row numbers, distinct and below `total`, i64[n], of an array or of their number.

    Raises:
        ValueError: they are none.
    """
    numbers = array_of(name, total_or_rows)
    if np.ndim(numbers) == 0:
        numbers = np.arange(checked(name, total_or_rows, CountOrZero))
    rows = on_host(name, numbers)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(f"{name}: {shown(rows)}; give a 1-d array of row numbers")
    rows = rows.astype(np.int64) if rows.size else np.zeros(0, np.int64)
    if rows.size and (rows.min() < 0 or (total is not None and rows.max() >= total)):
        raise ValueError(
            f"{name}: it holds {rows.min()} to {rows.max()}, outside [0, {total}); give row numbers"
        )
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"{name}: it holds a row number twice; give each at most once")
    return rows


def labels_and_rows(
    rng: Generator, labels: ArrayLike, rows: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """The classes of all examples, i[N], and the rows to distribute, i64[n].

    Raises:
        ValueError: labels that are not integers, or floats and booleans that are such; as `as_rows`.
    """
    check_spawning(rng)
    array = on_host("labels", labels)
    require(np.ndim(array) == 1, "labels", array, "give one class per example")
    classes = np.asarray(class_numbers("labels", array))
    return classes, as_rows("rows", len(classes) if rows is None else rows, len(classes))


def checked_clients(clients: Count, rows: int) -> int:
    """The number of clients of a partition, each of which has a row.

    Raises:
        ValueError: there are too few rows.
    """
    number: int = checked("clients", clients, Count)
    require(number <= rows, "clients", number, f"use at most as many as there are rows, {rows}")
    return number


def checked_skew(alpha: Positive, min_size: Count, clients: int, rows: int) -> tuple[float, int]:
    """A concentration, and the records that each client has at least.

    Raises:
        ValueError: they are out of range.
    """
    alpha, min_size = checked("alpha", alpha, Positive), checked("min_size", min_size, Count)
    fits = clients * min_size <= rows
    require(fits, "min_size", min_size, f"give 1 to {rows // clients} for {clients} clients")
    return alpha, min_size
