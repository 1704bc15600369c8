"""Streams of rows, such as a Hugging Face data set that is streamed, as columns in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from typing import Any

from fedpriv.core.complaints import require


def is_stream(dataset: Any) -> bool:
    """Whether it gives its rows one after another, and not how many there are."""
    return isinstance(dataset, Iterable) and not hasattr(dataset, "__len__")


def columns_of_stream(
    called: str, dataset: Any, wanted: Collection[str], most_rows: int
) -> dict[str, list[Any]]:
    """The columns of a stream that is read to its end, of each the values of all rows.

    Args:
        called: what a complaint calls the stream.
        wanted: names of the columns to read. Of those that are not there, none are returned.
        most_rows: that a stream may have.

    Raises:
        ValueError: no rows, or more; a row that is no dict; one without a column that the first has.
    """
    if hasattr(dataset, "select_columns") and set(wanted) <= set(dataset.column_names or ()):
        dataset = dataset.select_columns(list(wanted))  # others, such as pictures, are not decoded
    rows = iter(dataset)
    first = next(rows, None)
    require(first is not None, called, dataset, "give a stream that has rows")
    found: dict[str, list[Any]] = {}
    for i, row in enumerate(chain([first], islice(rows, most_rows - 1))):
        require(isinstance(row, Mapping), f"{called} row {i}", row, "give rows that are dicts")
        if i == 0:
            found = {name: [] for name in row}
        for name in wanted:
            if name in found:
                require(name in row, f"{called} row {i}", list(row), f"give it {name!r}, as row 0")
                found[name].append(row[name])
    if next(rows, None) is not None:
        raise ValueError(
            f"{called}: a stream of more than {most_rows:,} rows, which may have no end; give its first ones, "
            f"{called}.take({most_rows}), or a larger most_rows="
        )
    return found
