"""Data sets that are parted already, such as by `flwr-datasets`: a part is a client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.data.datasets.importers import BY_DEFAULT, Arrays, imported_values, stacked

CLIENT = "client"


def from_partitions(partitions: Any, **columns: str) -> Arrays:
    """Tables of which each is a client's, such as Flower's partitions: columns, as `from_huggingface` makes them.

    The leaf `client` (i32[N]) has the number of each row's table, for `Federation.from_arrays(data, "client")`.

    Args:
        partitions: tables such as `[fds.load_partition(i) for i in range(100)]` of a `FederatedDataset`; or what has
            `num_partitions` and `load_partition(i)`, as a partitioner of `flwr-datasets` with a data set.
        columns: as for `from_huggingface`.

    Raises:
        ValueError: neither tables nor a partitioner; no table, or one without rows; a column for `client`; as
            `from_huggingface`.
    """
    require(CLIENT not in columns, CLIENT, columns.get(CLIENT), "it is the table's number")
    tables = _tables(partitions)
    parts = [imported_values(f"partitions[{i}]", table, columns) for i, table in enumerate(tables)]
    require(len(parts) > 0, "partitions", parts, "give a table of each client")
    leaves = list(columns or BY_DEFAULT)
    sizes = [len(part[leaves[0]]) for part in parts]
    for i, size in enumerate(sizes):
        require(size > 0, f"partitions[{i}]", [], "it has no rows; leave it out")
    found = {leaf: stacked(leaf, _joined([part[leaf] for part in parts])) for leaf in leaves}
    return {**found, CLIENT: np.repeat(np.arange(len(parts), dtype=np.int32), sizes)}


def _tables(partitions: Any) -> Iterable[Any]:
    """The tables, one after another, so that a partitioner's need not be held together."""
    if hasattr(partitions, "load_partition"):
        counted = hasattr(partitions, "num_partitions")
        remedy = "it does not say how many; give [fds.load_partition(i) for i in range(100)]"
        require(counted, "partitions", partitions, remedy)
        return (partitions.load_partition(i) for i in range(partitions.num_partitions))
    listed = isinstance(partitions, Sequence) and not isinstance(partitions, str)
    require(listed, "partitions", partitions, "give a list of tables, or a partitioner")
    return partitions


def _joined(columns: Sequence[Any]) -> np.ndarray | list[Any]:
    """The values of all, as an array if they are arrays of one type and shape of rows."""
    arrays = all(isinstance(column, np.ndarray) for column in columns)
    if arrays and len({(column.dtype, column.shape[1:]) for column in columns}) == 1:
        return np.concatenate(columns)
    return [value for column in columns for value in column]
