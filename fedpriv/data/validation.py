"""What is checked of examples and of their partition, wherever they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.complaints import require, shown

PyTree = Any


def name_of(path: Any) -> str:
    """The name of a leaf of the examples, in words."""
    return "examples" + jax.tree_util.keystr(path)


def leaves_of(examples: PyTree) -> PyTree:
    """The examples with an array [total, ...] as every leaf, of whatever type.

    A table, such as a pandas DataFrame, gives its columns by their names; a list of numbers or strings, as JSON has
    them, is one array, nested or not. Arrays of NumPy and JAX stay as they are.

    Raises:
      ValueError: a leaf that is ragged, sparse, masked in some row, or an array of another library that gives no
        values; a table with two columns of one name.
    """
    if isinstance(examples, Mapping):
        _check_names(examples)
        single = jax.tree_util.all_leaves([examples])  # of a type that JAX does not look into
        examples = dict(examples) if single else examples
    elif hasattr(examples, "columns"):
        names = columns_of_table("examples", examples)
        examples = {str(name): examples[name] for name in names}
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: array_of(name_of(path), leaf), examples, is_leaf=_is_list
    )


def _check_names(examples: Mapping) -> None:
    try:
        sorted(examples)
    except TypeError:
        names = ", ".join(map(repr, examples))
        raise ValueError(f"examples: its names are {names}; give all as strings") from None


def columns_of_table(name: str, table: Any) -> list[Any]:
    """The names of its columns, whichever library's the table is.

    Raises:
      ValueError: two columns have one name.
    """
    for listed in ("column_names", "columns"):  # Arrow's; those of pandas and polars
        if getattr(table, listed, None) is not None:
            return check_columns(name, list(getattr(table, listed)))
    return check_columns(name, list(table))


def check_columns(table: str, names: list[Any]) -> list[Any]:
    """The names; raises ValueError: two columns of the table, which is called so, have one."""
    words = [str(name) for name in names]
    if twice := next((name for name in words if words.count(name) > 1), None):
        raise ValueError(f"{table}: two columns are called {twice!r}; rename or drop one")
    return names


def _is_list(node: Any) -> bool:
    """Whether it is a list of numbers, strings or other values, or of lists of them, not one of arrays."""
    if not isinstance(node, list):
        return False
    while isinstance(node, list | tuple) and node:
        node = node[0]
    if node is None or isinstance(node, list | tuple | str | bytes):
        return True
    scalar = getattr(node, "ndim", int(hasattr(node, "__len__"))) == 0
    return scalar and jax.tree_util.all_leaves([node])


def array_of(name: str, leaf: Any) -> Any:
    """A leaf as an array of NumPy or JAX; a Python number as it is. Objects become numbers if they all are.

    Raises:
      ValueError: as `leaves_of`.
    """
    if isinstance(leaf, jax.Array | bool | int | float | complex | str | bytes):
        return leaf
    if hasattr(leaf, "toarray") and not hasattr(leaf, "to_numpy"):
        raise ValueError(f"{name}: a sparse {type(leaf).__name__}; give its .toarray()")
    if isinstance(leaf, np.ma.MaskedArray):
        return unmasked(name, leaf)
    try:
        array = np.asarray(leaf)
        if isinstance(leaf, list) and array.dtype.kind in "US":
            array = np.array(leaf, object)  # or NaN beside strings would be the string "nan"
        return _numbers(array) if array.dtype == object else array
    except (ValueError, TypeError, RuntimeError):  # what NumPy and other libraries raise
        kind = "a list" if isinstance(leaf, list) else f"a {type(leaf).__name__}"
        raise ValueError(
            f"{name}: {kind} that NumPy cannot make an array of; give rows of one shape"
        ) from None


def on_host(name: str, leaf: Any) -> np.ndarray:
    """As `array_of` an example's leaf, of NumPy; raises ValueError: random keys, too."""
    array = array_of(name, leaf)
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.extended):
        raise ValueError(f"{name}: its data type is {array.dtype}; give numbers")
    return np.asarray(array)


def _numbers(array: np.ndarray) -> np.ndarray:
    """Objects [total, ...] as numbers if each is a number, or each an array of one shape; else the same.

    Tuples are values, as they are in a column of ids.
    """
    if array.size and isinstance(array.flat[0], tuple):
        return array
    try:
        numbers = np.asarray(array.tolist())
    except (ValueError, TypeError, OverflowError):
        return array
    same = numbers.dtype.kind in "biuf" and numbers.shape[: array.ndim] == array.shape
    return numbers if same and array.size else array


def unmasked(name: str, array: ArrayLike) -> np.ndarray:
    """The plain array of one that may be masked.

    Raises:
      ValueError: a value is masked.
    """
    if isinstance(array, np.ma.MaskedArray):
        _refuse(name, np.ma.getmaskarray(array), "masked", "fill it, or remove that row")
    return np.asarray(array)


def _refuse(name: str, wrong: np.ndarray, what: str, remedy: str) -> None:
    """Raises ValueError with the first row that is wrong, if any is."""
    if wrong.any():
        raise ValueError(f"{name}: {what} in row {np.argwhere(wrong)[0][0]}; {remedy}")


def check_lengths(examples: PyTree) -> int:
    """The number of rows, the same in all leaves of the examples.

    Raises:
      ValueError: no leaves, scalars, or leaves of different length.
    """
    leaves = jax.tree_util.tree_leaves_with_path(examples, is_leaf=lambda leaf: leaf is None)
    if not leaves:
        raise ValueError("examples: there are no leaves; give a dict of arrays [total, ...]")
    total = None
    for path, leaf in leaves:
        if np.ndim(leaf) == 0:
            raise ValueError(
                f"{name_of(path)}: {shown(leaf)} is not an array; give one of [total, ...]"
            )
        if total is None:
            total = len(leaf)
        if len(leaf) != total:
            raise ValueError(
                f"{name_of(path)}: {len(leaf)} rows, {name_of(leaves[0][0])} has {total}; "
                "give every leaf the same leading axis"
            )
    assert total is not None
    return total


def converted(path: Any, leaf: Any) -> Any:
    """The array [...] in at most 32 bits, with the same shape; one of JAX as it is.

    Raises:
      ValueError: values that are masked, NaN, infinite, beyond 32 bits, or no numbers.
    """
    if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf  # already stored: keep that buffer
    name, array = name_of(path), unmasked(name_of(path), leaf)
    if array.dtype in (np.int64, np.uint32, np.uint64):
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise ValueError(f"{name}: it exceeds 32 bits; rescale it to fit into int32")
        array = array.astype(np.int32)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 4:  # long doubles, too
        with np.errstate(over="ignore"):  # an overflow to infinity is reported below
            array = array.astype(np.float32)
    if array.dtype.kind not in "biuf" and array.dtype != jnp.bfloat16:
        raise ValueError(
            f"{name}: {_no_numbers(array)}; give numbers or booleans, or leave it out (fp.datasets.encode_text turns "
            "texts into numbers; to say who holds each record, give a column's name as `clients`)"
        )
    if jnp.issubdtype(array.dtype, jnp.floating):
        wrong = ~np.isfinite(array)
        if wrong.any():
            what = str(array[tuple(np.argwhere(wrong)[0])])
            _refuse(
                name, wrong, what, "remove or repair that row (values must be finite in float32)"
            )
    return leaf if isinstance(leaf, jax.Array) else array


def _no_numbers(array: np.ndarray) -> str:
    """Says why an array is none of numbers: the first value that is none, or its type."""
    if array.dtype == object:
        for row, value in enumerate(array.ravel()):
            if not isinstance(value, int | float | np.number | np.bool_):
                return f"{shown(value)} in row {row * len(array) // max(1, array.size)}"
    return f"its data type is {array.dtype}"


def held_rows(
    clients: Sequence[ArrayLike], public: ArrayLike, total: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(i64[clients] how many rows each has, i64[...] all of them, i64[p] those of `public`), checked.

    Checked together, as there may be a million clients.

    Raises:
      ValueError: no clients, a client without rows, rows that are not there, or that are given twice.
    """
    axes = getattr(clients, "ndim", 1)
    several = axes > 0 and hasattr(clients, "__len__") and not isinstance(clients, Mapping | str)
    some = several and len(clients) > 0
    require(some, "clients", clients, "give one array of row numbers per client")
    if axes == 1 and getattr(clients, "dtype", np.dtype(object)) != np.dtype(object):
        raise ValueError(
            f"clients: {shown(clients)}, one value per record; give fp.partition.natural(clients), or the name of "
            "the leaf that holds them"
        )
    try:
        held = [np.asarray(rows) for rows in clients]
        for i, rows in enumerate(clients):
            if isinstance(rows, np.ma.MaskedArray):
                unmasked(f"clients[{i}]", rows)
    except (ValueError, TypeError):  # which of them, is said below
        held = [array_of(f"clients[{i}]", rows) for i, rows in enumerate(clients)]
    plain = all(rows.ndim == 1 and rows.size and rows.dtype.kind in "iu" for rows in held)
    joined = np.concatenate(held) if plain else np.zeros(0)
    if joined.dtype.kind not in "iu" or joined.min() < 0 or joined.max() >= total:
        held = [_some(f"clients[{i}]", rows, total) for i, rows in enumerate(held)]
        joined = np.concatenate(held)
    size = np.fromiter(map(len, held), np.int64, len(held))
    shared = row_numbers("public", public, total)
    _check_disjoint(size, joined, shared, total)
    return size, joined.astype(np.int64), shared


def _some(name: str, rows: ArrayLike, total: int) -> np.ndarray:
    if np.shape(rows) == (0,):
        raise ValueError(f"{name}: it is empty; give it a row, or leave this client out")
    return row_numbers(name, rows, total)


def row_numbers(name: str, rows: ArrayLike, total: int) -> np.ndarray:
    """Row numbers of the examples, i64[n], checked.

    Raises:
      ValueError: they are not integers in [0, total).
    """
    array = on_host(name, rows)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{name}: {array.dtype}{list(array.shape)}; give a 1-d array of row numbers"
        )
    wrong = (array < 0) | (array >= total)
    if wrong.any():
        raise ValueError(
            f"{name}: row {array[wrong][0]} is outside [0, {total}); give row numbers of the examples"
        )
    return array.astype(np.int64) if array.size else np.zeros(0, np.int64)


def _check_disjoint(size: np.ndarray, rows: np.ndarray, public: np.ndarray, total: int) -> None:
    count = np.bincount(rows, minlength=total) + np.bincount(public, minlength=total)
    if count.max(initial=0) > 1:
        row = int(np.argmax(count > 1))
        owners = [f"clients[{i}]" for i in np.repeat(np.arange(len(size)), size)[rows == row]]
        owners += ["public"] * int((public == row).sum())
        raise ValueError(
            f"clients: row {row} is given to {owners[0]} and to {owners[1]}; give each row at most once"
        )
