"""Rows drawn from a data set or from each client's, to be kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from fedpriv.core.arguments import CountOrZero, Rate, checked, require
from fedpriv.data.partition_arguments import as_rows, check_generator
from fedpriv.data.validation import array_of


def hold_out(
    rng: Generator,
    total_or_rows: CountOrZero | ArrayLike | Sequence[ArrayLike],
    count: CountOrZero | Rate,
    *,
    stratify: ArrayLike | None = None,
) -> tuple[Any, Any]:
    """Draws rows without replacement, for the server or for validation; from a partition, rows of each client.

    ::

        held_out, clients = hold_out(rng, clients, 0.2)
        federation = Federation.from_arrays(examples, clients, held_out=held_out)

    Args:
        total_or_rows: the number of examples; or [n], the row numbers to draw from; or [n] for each client.
        count: how many; or, as a float, which share, rounded, so that a client with few rows may give none.
        stratify: [N], the labels of all examples. As many rows as without it are held out of each client, and of each
            of its labels the same share, to within one row: largest remainders first, equal ones by lot. The only row
            of a label stays where most rows stay; then metrics such as recall may be undefined for that client.

    Returns:
        (i64[count], the rows held out; i64[n - count], the remaining rows), both in the given order; for a partition,
        two lists with an entry per client.

    Raises:
        ValueError: count outside [0, number of rows], or a share outside (0, 1]; a client left without a row; rows
            without a label.
    """
    check_generator(rng)
    count = checked("count", count, CountOrZero | Rate)
    labels = None if stratify is None else array_of("stratify", stratify)
    from_rows: Any = total_or_rows
    if not _is_partition(from_rows):
        rows = as_rows("total_or_rows", from_rows)
        return _drawn_out(rng, rows, _number(count, len(rows)), labels)
    clients = [as_rows(f"total_or_rows[{i}]", rows) for i, rows in enumerate(from_rows)]
    numbers = [_number(count, len(rows)) for rows in clients]
    for i, (rows, number) in enumerate(zip(clients, numbers, strict=True)):
        remedy = f"it leaves client {i} none of its {len(rows)} rows; hold out less, or leave this client out"
        require(number < len(rows), "count", count, remedy)
    parts = [_drawn_out(rng, *each, labels) for each in zip(clients, numbers, strict=True)]
    return [held for held, _ in parts], [rest for _, rest in parts]


def _is_partition(rows: Any) -> bool:
    """Whether it is an array of rows for each client."""
    several = isinstance(rows, list | tuple) and len(rows) > 0
    return np.ndim(rows[0]) > 0 if several else getattr(rows, "ndim", 0) == 2


def _number(count: CountOrZero | Rate, total: int) -> int:
    """How many of so many rows are held out."""
    if isinstance(count, float):
        return int(count * total + 0.5)
    require(count <= total, "count", count, f"hold out at most the {total} rows")
    return count


def _drawn_out(
    rng: Generator, rows: np.ndarray, count: int, labels: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """(those that are drawn, the others), in the given order; of each label its share, where there are labels."""
    out = np.zeros(len(rows), bool)
    if labels is None:
        out[rng.choice(len(rows), count, replace=False)] = True
        return rows[out], rows[~out]
    fits = labels.ndim == 1 and np.max(rows, initial=-1) < len(labels)
    require(fits, "stratify", labels, "give the labels of all examples, [N], one for each row")
    _, of_row, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    for label, number in enumerate(_shared_out(rng, count, sizes)):
        out[rng.choice(np.flatnonzero(of_row == label), number, replace=False)] = True
    return rows[out], rows[~out]


def _shared_out(rng: Generator, count: int, sizes: np.ndarray) -> np.ndarray:
    """i64[labels] that sum to `count`, in proportion to sizes i64[labels], by largest remainder."""
    shares, remainder = np.divmod(count * sizes, max(1, sizes.sum()))
    lot = rng.permutation(len(sizes))
    most = lot[np.argsort(-remainder[lot], kind="stable")]
    shares[most[: count - shares.sum()]] += 1
    return shares
