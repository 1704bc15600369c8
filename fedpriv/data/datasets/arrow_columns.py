"""Columns of Arrow's tables, as a reader of Parquet returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def values_of(column: Any) -> np.ndarray | Sequence[Any]:
    """The N values of a table's column, whichever library's the table is.

    Of Arrow's columns numbers and dates keep their type, [N, ...] also in lists of one length. Of others, and where
    values are missing (None), a list.
    """
    if not hasattr(column, "to_pylist"):
        return column if isinstance(column, np.ndarray) else list(column)
    import pyarrow.compute as pc
    from pyarrow import types

    shape, inside = [len(column)], column
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    while any(is_list(inside.type) for is_list in lists):
        sizes = pc.unique(pc.list_value_length(inside)).to_pylist()
        if len(sizes) != 1 or None in sizes:
            return column.to_pylist()
        shape, inside = shape + sizes, pc.list_flatten(inside)
    kind = inside.type
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if inside.null_count or not (numbers or types.is_timestamp(kind) or types.is_date(kind)):
        return column.to_pylist()
    return np.array(inside).reshape(shape)
