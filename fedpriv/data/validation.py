"""What is checked of examples and of their partition, wherever they are stored."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

PyTree = Any


def name_of(path: Any) -> str:
    """Of a leaf of the examples, in words."""
    return "examples" + jax.tree_util.keystr(path)


def leaves_of(examples: PyTree) -> PyTree:
    """The columns of a table, such as a pandas DataFrame, by their names, as arrays; of anything else the same."""
    if not isinstance(examples, Mapping) and hasattr(examples, "columns"):
        examples = {str(name): examples[name] for name in examples.columns}
    return jax.tree.map(lambda x: np.asarray(x) if hasattr(x, "to_numpy") else x, examples)


def check_lengths(examples: PyTree) -> int:
    """The number of rows.

    Raises:
      ValueError: no leaves, scalars, or leaves of different length.
    """
    leaves = jax.tree_util.tree_leaves_with_path(examples)
    if not leaves:
        raise ValueError("examples has no leaves; give a dict of arrays [total, ...]")
    total = None
    for path, leaf in leaves:
        if np.ndim(leaf) == 0:
            raise ValueError(f"{name_of(path)} is a scalar; give an array [total, ...]")
        if total is None:
            total = len(leaf)
        if len(leaf) != total:
            raise ValueError(
                f"{name_of(path)} has {len(leaf)} rows, {name_of(leaves[0][0])} has {total}; "
                "give every leaf the same leading axis"
            )
    assert total is not None
    return total


def check_labels(examples: PyTree, num_classes: int) -> None:
    """Raises ValueError: the leaf `label` (i32[total]) is not there, or not of integers in [0, num_classes)."""
    if not isinstance(examples, Mapping) or "label" not in examples:
        raise ValueError(
            f'num_classes={num_classes} is given, but examples has no leaf "label"; '
            'name the labels "label", or leave num_classes out'
        )
    labels = np.asarray(examples["label"])
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"examples['label'] has data type {labels.dtype}; convert the labels to integers"
        )
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"examples['label'] is {labels[where]} in row {where[0]}, outside [0, {num_classes}); "
            "correct the labels or num_classes"
        )


def converted(path: Any, array: np.ndarray) -> np.ndarray:
    """The array [...] in at most 32 bits, with the same shape.

    Raises:
      ValueError: values that are NaN, infinite, beyond 32 bits, or no numbers.
    """
    if array.dtype in (np.int64, np.uint32, np.uint64):
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise ValueError(f"{name_of(path)} exceeds 32 bits; rescale it to fit into int32")
        array = array.astype(np.int32)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 4:  # long doubles, too
        with np.errstate(over="ignore"):  # an overflow to infinity is reported below
            array = array.astype(np.float32)
    if array.dtype.kind not in "biuf" and array.dtype != jnp.bfloat16:
        raise ValueError(
            f"{name_of(path)} has data type {array.dtype}; give numbers or booleans, or leave it out (a column that "
            "says who holds each record is named as `clients`)"
        )
    if jnp.issubdtype(array.dtype, jnp.floating):
        _check_finite(path, array)
    return array


def _check_finite(path: Any, array: np.ndarray) -> None:
    wrong = ~np.isfinite(array)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"{name_of(path)} is {array[where]} in row {where[0]}; "
            "remove or repair that row (values must be finite in float32)"
        )


def held_rows(
    clients: Sequence[ArrayLike], public: ArrayLike, total: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(i64[clients] how many rows each has, i64[...] all of them, i64[p] those of `public`), checked.

    Checked together, as there may be a million clients.

    Raises:
      ValueError: no clients, a client without rows, rows that are not there, or that are given twice.
    """
    if len(clients) == 0:
        raise ValueError("clients=[] is empty; give one array of row numbers per client")
    if isinstance(clients, np.ndarray) and clients.ndim == 1 and clients.dtype != object:
        raise ValueError(
            f"clients is {clients.dtype}[{len(clients)}], one value per record; give fp.partition.natural(clients), or "
            "the name of a leaf that holds them"
        )
    held = [np.asarray(rows) for rows in clients]
    plain = all(rows.ndim == 1 and rows.size and rows.dtype.kind in "iu" for rows in held)
    joined = np.concatenate(held) if plain else np.zeros(0)
    if joined.dtype.kind not in "iu" or joined.min() < 0 or joined.max() >= total:
        held = [_check_rows(f"clients[{i}]", rows, total) for i, rows in enumerate(held)]
        joined = np.concatenate(held)
    size = np.fromiter(map(len, held), np.int64, len(held))
    shared = _check_rows("public", public, total)
    _check_disjoint(size, joined, shared, total)
    return size, joined.astype(np.int64), shared


def _check_rows(name: str, rows: ArrayLike, total: int) -> np.ndarray:
    array = np.asarray(rows)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(
            f"{name} is {array.dtype}{list(array.shape)}; give a 1-d array of row numbers"
        )
    if array.size == 0 and name != "public":
        raise ValueError(f"{name} is empty; give it a row, or leave this client out")
    wrong = (array < 0) | (array >= total)
    if wrong.any():
        raise ValueError(
            f"{name} holds row {array[wrong][0]}, outside [0, {total}); "
            "give row numbers of the examples"
        )
    return array.astype(np.int64)


def _check_disjoint(size: np.ndarray, rows: np.ndarray, public: np.ndarray, total: int) -> None:
    count = np.bincount(rows, minlength=total) + np.bincount(public, minlength=total)
    if count.max(initial=0) > 1:
        row = int(np.argmax(count > 1))
        owners = [f"clients[{i}]" for i in np.repeat(np.arange(len(size)), size)[rows == row]]
        owners += ["public"] * int((public == row).sum())
        raise ValueError(
            f"row {row} is given to {owners[0]} and to {owners[1]}; give each row at most once"
        )
