"""Whose each record is, by a column of ids: names, numbers, dates, of any one type."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.complaints import require, shown
from fedpriv.core.types import PyTree
from fedpriv.data.validation import on_host, row_numbers


def by_leaf(
    examples: PyTree, name: str, public: ArrayLike, total: int
) -> tuple[PyTree, list[np.ndarray]]:
    """The other leaves, and the rows of each value of this one that are not public.

    Raises:
      ValueError: there is no such leaf; as `rows_of_each`.
    """
    named = isinstance(examples, Mapping)
    if not named or name not in examples:
        names = ", ".join(map(str, examples)) if named else "no names"
        raise ValueError(
            f"clients: there is no leaf {name!r} in examples, only {names}; give one of these"
        )
    rows = np.setdiff1d(np.arange(total), row_numbers("public", public, total))
    others = {key: leaf for key, leaf in examples.items() if key != name}
    return others, rows_of_each(f"examples[{name!r}]", examples[name], rows)


def rows_of_each(name: str, ids: ArrayLike, rows: np.ndarray) -> list[np.ndarray]:
    """Rows by an id: of every distinct one, in order of first appearance; i64[...] for each, in the given order.

    Args:
      name: what an error calls the column.
      ids: [N], of all examples.
      rows: i64[n], those that count.

    Raises:
      ValueError: no column; an id among them that is missing (None, NaN, NaT, an empty string), or of another type than
        the first.
    """
    array = on_host(name, ids)
    if array.ndim != 1:
        raise ValueError(f"{name}: it has the shape {list(array.shape)}; give one id per example")
    require(len(rows) > 0, "rows", [], "give at least one row to distribute")
    own = array[rows]
    if own.dtype.kind == "T":  # strings of any length, of which some may be missing
        own = own.astype(object)
    lacking = are_missing(own)
    if lacking.any():
        i = int(np.argmax(lacking))
        what = shown(own[i]) if own.dtype.kind == "O" else str(own[i]) or "an empty string"
        raise ValueError(
            f"{name}: {what} in row {rows[i]}, so nobody holds it; leave such rows out, or give each an id"
        )
    client, first = _numbered(name, own, rows) if own.dtype == object else _sorted(own)
    order = np.argsort(client, kind="stable")
    groups = np.split(rows[order], np.cumsum(np.bincount(client))[:-1])
    return [groups[c] for c in np.argsort(first)]


def numbered(name: str, ids: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(i64[n], the number of each id; the ids by their numbers), in order of first appearance.

    Args:
      name, rows: as `rows_of_each`.
      ids: [n], none missing.

    Raises:
      ValueError: an id of another type than the first.
    """
    client, first = _numbered(name, ids, rows) if ids.dtype == object else _sorted(ids)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    number = place[client]
    return number, ids[np.unique(number, return_index=True)[1]]


def are_missing(ids: np.ndarray) -> np.ndarray:
    """bool[n], of ids or other labels: whether it is None, NaN, NaT or an empty string."""
    if ids.dtype == object:
        return np.fromiter(map(_is_missing, ids), bool, len(ids))
    if ids.dtype.kind in "US":
        return np.asarray(ids == ids.dtype.type())
    return np.asarray(ids != ids)  # NaN and NaT


def _is_missing(value: Any) -> bool:
    if value is None or isinstance(value, str | bytes):
        return not value
    try:
        same = value == value
    except ArithmeticError:  # a signalling NaN
        return True
    if isinstance(same, bool | np.bool_):
        return not same
    return same is value  # pandas.NA


def _sorted(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """i64[n], the number of each id, and i64[clients], where each number is first."""
    _, first, client = np.unique(ids, return_index=True, return_inverse=True)
    return client, first


def _numbered(name: str, ids: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `_sorted`, of objects that need not sort, in order of first appearance."""
    numbers: dict[Any, int] = {}
    client = np.zeros(len(rows), np.int64)
    kind = _kind(ids[0])
    for i, value in enumerate(ids):
        if _kind(value) is not kind:
            raise ValueError(
                f"{name}: {shown(value)} in row {rows[i]} is of another type than earlier ids; give all of one type, "
                "as astype(str) does"
            )
        try:
            client[i] = numbers.setdefault(value, len(numbers))
        except TypeError:
            raise ValueError(
                f"{name}: {shown(value)} in row {rows[i]} is no id; give numbers or strings"
            ) from None
    return client, np.arange(len(numbers))


def _kind(value: Any) -> type:
    known = (Number, str, bytes)
    return next((kind for kind in known if isinstance(value, kind)), type(value))
