"""Records that a client keeps for evaluation: which of its rows they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.complaints import require
from fedpriv.core.types import PyTree
from fedpriv.data.validation import on_host, row_numbers


class Rows(NamedTuple):
    """Held-out rows of every client, those of the first client first.

    Attributes:
      size: i64[clients], how many rows each client has.
      rows: i64[sum of the sizes], row numbers of the examples.
    """

    size: np.ndarray
    rows: np.ndarray


NOTHING_HELD_OUT = "held_out: no records are held out; give from_arrays(..., held_out=...)"


def without_column(examples: PyTree, name: str) -> tuple[PyTree, np.ndarray]:
    """The other leaves, and the one of booleans that says of each record whether it is held out, bool[N].

    Raises:
      ValueError: there is no such leaf, or it is not one of booleans.
    """
    if not isinstance(examples, Mapping) or name not in examples:
        names = ", ".join(map(str, examples)) if isinstance(examples, Mapping) else "no names"
        raise ValueError(
            f"held_out: there is no leaf {name!r} in examples, only {names}; give one of these"
        )
    flags = on_host(f"examples[{name!r}]", examples[name])
    if flags.ndim != 1 or flags.dtype != bool:
        raise ValueError(
            f"held_out: {name!r} is {flags.dtype}{list(flags.shape)}; give a boolean for each record, such as "
            "frame['split'] == 'test'"
        )
    return {key: leaf for key, leaf in examples.items() if key != name}, flags


def split_rows(
    clients: Rows, held_out: Sequence[ArrayLike] | ArrayLike | None, public: np.ndarray, total: int
) -> tuple[Rows, Rows | None]:
    """(the rows that clients train on, those that are held out: None where there are none), checked.

    Args:
      clients: their rows; with a column, those of both kinds.
      held_out: [rows] for each client, or a column, bool[total].

    Raises:
      ValueError: a client trains on nothing, rows that are not there, or that are given twice.
    """
    if held_out is None:
        return clients, None
    if isinstance(held_out, np.ndarray) and held_out.shape == (total,) and held_out.dtype == bool:
        if held_out[public].any():
            row = int(public[np.argmax(held_out[public])])
            raise ValueError(
                f"held_out: row {row} is the server's, for training; leave it out of public, or do not hold it out"
            )
        return _divided(clients, held_out)
    return clients, _of_each(held_out, clients, public, total)


def _divided(all_rows: Rows, flags: np.ndarray) -> tuple[Rows, Rows]:
    """(those to train on, those that are held out), by bool[N].

    Raises:
      ValueError: a client has none to train on, or nothing is held out.
    """
    size, rows = all_rows
    out = flags[rows]
    require(bool(out.any()), "held_out", flags, "no client's record is held out; mark some")
    owner = np.repeat(np.arange(len(size)), size)
    number = np.bincount(owner[out], minlength=len(size))
    if (number == size).any():
        i = int(np.argmax(number == size))
        raise ValueError(
            f"held_out: all {size[i]} records of client {i} are held out; leave it one to train on, or leave this "
            "client out"
        )
    return Rows(size - number, rows[~out]), Rows(number, rows[out])


def _of_each(held_out: Any, training: Rows, public: np.ndarray, total: int) -> Rows:
    """The rows that are held out, checked; a client may have none.

    Args:
      held_out: [rows] for each client.
      training, public: the rows that they may not be.
      total: number of examples.

    Raises:
      ValueError: not one array for each client, nothing at all, rows that are not there, or that are given twice.
    """
    clients = len(training.size)
    several = isinstance(held_out, list | tuple) or getattr(held_out, "ndim", 0) == 2
    remedy = f"give an array of row numbers for each of {clients} clients, or the name of a leaf"
    require(several and len(held_out) == clients, "held_out", held_out, remedy)
    parts = [row_numbers(f"held_out[{i}]", rows, total) for i, rows in enumerate(held_out)]
    rows = np.concatenate(parts)
    require(len(rows) > 0, "held_out", held_out, "it holds no row; leave it out")
    taken = np.bincount(np.concatenate([training.rows, public, rows]), minlength=total)
    if (taken[rows] > 1).any():
        row = int(rows[np.argmax(taken[rows] > 1)])
        raise ValueError(
            f"held_out: row {row} is given twice, or to a client or the server for training; give each row once"
        )
    return Rows(np.fromiter(map(len, parts), np.int64, clients), rows)
