"""Streams of rows, such as a Hugging Face data set that is streamed, as columns in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from itertools import chain, islice
from typing import Any

from fedpriv.core.complaints import require


def is_stream(dataset: Any) -> bool:
    """Whether it gives its rows one after another: it is a list, or does not say how many there are."""
    endless = isinstance(dataset, Iterable) and not isinstance(dataset, Sized)
    return endless or isinstance(dataset, Sequence)


def columns_of_stream(
    called: str,
    dataset: Any,
    wanted: Collection[str],
    most_rows: int,
    check: Callable[[Collection[str]], Any],
) -> dict[str, list[Any]]:
    """The columns of a stream that is read to its end, of each the values of all rows.

    Args:
        called: what a complaint calls the stream.
        wanted: names of the columns to read.
        most_rows: that a stream of unknown length may have.
        check: refuses names of columns, before more than the first row is read.

    Raises:
        ValueError: no rows, or more; a row that is no dict; one without a column that the first has; of `check`.
    """
    if hasattr(dataset, "select_columns") and set(wanted) <= set(dataset.column_names or ()):
        dataset = dataset.select_columns(list(wanted))  # others, such as pictures, are not decoded
    if isinstance(dataset, Sized):
        most_rows = max(most_rows, len(dataset))
    rows = iter(dataset)
    first = next(rows, None)
    require(first is not None, called, dataset, "give a stream that has rows")
    found: dict[str, list[Any]] = {}
    for i, row in enumerate(chain([first], islice(rows, most_rows - 1))):
        require(isinstance(row, Mapping), f"{called} row {i}", row, "give rows that are dicts")
        if i == 0:
            check(list(row))
            found = {name: [] for name in wanted}
        for name, column in found.items():
            require(name in row, f"{called} row {i}", list(row), f"give it {name!r}, as row 0")
            column.append(row[name])
    if next(rows, None) is not None:
        raise ValueError(
            f"{called}: a stream of more than {most_rows:,} rows, which may have no end; give its first ones, "
            f"{called}.take({most_rows}), or a larger most_rows="
        )
    return found
