"""The federation: who holds which examples.

The examples are stored once, on the device; a partition among the clients is a table of row
numbers. So several partitions (one per seed) cost only their index tables, and a client's batch is
a gather.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

PyTree = Any


@flax.struct.dataclass
class Federation:
    """Examples, and their partition among clients and server; a pytree of device arrays.

    Attributes:
        examples: leaves [total, ...], in their own data type (uint8 stays uint8).
        rows: i32[clients, capacity], the rows of `examples` each client holds.
        size: i32[clients], how many of its rows count; those beyond are padding and repeat the
            client's own first row, so that a gather never touches another client's data.
        public: i32[p], rows the server holds as public examples, and no client; may be empty.

    After `stack`, `rows`, `size` and `public` have a leading axis of seeds and `examples` has not:
    `jax.vmap(f, in_axes=(Federation(examples=None, rows=0, size=0, public=0),))`.
    """

    examples: PyTree
    rows: jax.Array
    size: jax.Array
    public: jax.Array

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return int(self.rows.shape[-2])

    @property
    def capacity(self) -> int:
        """How many rows the largest client has room for."""
        return int(self.rows.shape[-1])

    @classmethod
    def from_arrays(
        cls,
        examples: PyTree,
        clients: Sequence[ArrayLike],
        *,
        public: ArrayLike = (),
        num_classes: int | None = None,
    ) -> "Federation":
        """Checks the arrays and the partition, and puts them on the device.

        Args:
            examples: pytree of arrays with the same leading axis, by convention a dict such as
                `{"image": u8[N, 28, 28, 1], "label": i32[N]}`. 64-bit leaves become 32-bit.
            clients: one 1-d array of row numbers per client. Rows given to nobody are left out.
            public: 1-d array of the rows the server holds.
            num_classes: if given, the leaf `label` must hold integers in [0, num_classes).

        Raises:
            ValueError: leaves of different length; NaN or infinity in a leaf; a label that is no
                class; an empty client; a row out of range, or given twice.
        """
        total = _check_lengths(examples)
        if num_classes is not None:
            _check_labels(examples, num_classes)
        stored = jax.tree_util.tree_map_with_path(_to_device, examples)
        return _assign(stored, total, clients, public)

    def repartition(self, clients: Sequence[ArrayLike], *, public: ArrayLike = ()) -> "Federation":
        """The same stored examples (shared, not copied) under another partition; see `stack`."""
        total = len(jax.tree.leaves(self.examples)[0])
        return _assign(self.examples, total, clients, public)


def stack(federations: Sequence[Federation]) -> Federation:
    """One federation with a leading axis of seeds, from partitions of the same stored examples.

    Args:
        federations: partitions with the same number of clients and of public rows; make the first
            with `from_arrays` and the others with its `repartition`.

    Returns:
        Federation with rows i32[seeds, clients, capacity] (padded to the greatest capacity),
        size i32[seeds, clients], public i32[seeds, p], and the examples as they are.

    Raises:
        ValueError: nothing to stack; other examples; unequal numbers of clients or public rows.
    """
    if not federations:
        raise ValueError("federations=[] is empty; give one federation per seed")
    first = federations[0]
    for i, other in enumerate(federations):
        _check_same(first, other, i)
    capacity = max(f.capacity for f in federations)
    return Federation(
        examples=first.examples,
        rows=_stack([_widen(np.asarray(f.rows), capacity) for f in federations]),
        size=_stack([f.size for f in federations]),
        public=_stack([f.public for f in federations]),
    )


def _stack(arrays: Sequence[ArrayLike]) -> jax.Array:
    """On the host: on the device, every shape would be a program to compile."""
    return jnp.asarray(np.stack([np.asarray(array) for array in arrays]))


def _widen(rows: np.ndarray, capacity: int) -> np.ndarray:
    missing = capacity - rows.shape[1]
    return np.concatenate([rows, np.repeat(rows[:, :1], missing, axis=1)], axis=1)


def _check_same(first: Federation, other: Federation, i: int) -> None:
    ours, theirs = jax.tree.leaves(first.examples), jax.tree.leaves(other.examples)
    if len(ours) != len(theirs) or any(a is not b for a, b in zip(ours, theirs, strict=True)):
        raise ValueError(
            f"federations[{i}].examples are not the examples of federations[0]; "
            "make it with federations[0].repartition(clients)"
        )
    for field, a, b in [
        ("num_clients", first.num_clients, other.num_clients),
        ("public rows", first.public.shape[-1], other.public.shape[-1]),
    ]:
        if a != b:
            raise ValueError(
                f"federations[{i}] has {field}={b}, federations[0] has {a}; "
                "give every seed the same number"
            )


def _name(path: Any) -> str:
    return "examples" + jax.tree_util.keystr(path)


def _check_lengths(examples: PyTree) -> int:
    leaves = jax.tree_util.tree_leaves_with_path(examples)
    if not leaves:
        raise ValueError("examples has no leaves; give a dict of arrays [total, ...]")
    total = None
    for path, leaf in leaves:
        if np.ndim(leaf) == 0:
            raise ValueError(f"{_name(path)} is a scalar; give an array [total, ...]")
        if total is None:
            total = len(leaf)
        if len(leaf) != total:
            raise ValueError(
                f"{_name(path)} has {len(leaf)} rows, {_name(leaves[0][0])} has {total}; "
                "give every leaf the same leading axis"
            )
    assert total is not None
    return total


def _check_labels(examples: PyTree, num_classes: int) -> None:
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


def _to_device(path: Any, leaf: Any) -> jax.Array:
    if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf  # already stored: keep that buffer
    array = np.asarray(leaf)
    if array.dtype in (np.int64, np.uint32, np.uint64):
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise ValueError(f"{_name(path)} exceeds 32 bits; rescale it to fit into int32")
        array = array.astype(np.int32)
    elif array.dtype == np.float64:
        with np.errstate(over="ignore"):  # an overflow to infinity is reported below
            array = array.astype(np.float32)
    if array.dtype.kind not in "biuf" and array.dtype != jnp.bfloat16:
        raise ValueError(f"{_name(path)} has data type {array.dtype}; give numbers or booleans")
    if jnp.issubdtype(array.dtype, jnp.floating):
        _check_finite(path, array)
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(array)


def _check_finite(path: Any, array: np.ndarray) -> None:
    wrong = ~np.isfinite(array)
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"{_name(path)} is {array[where]} in row {where[0]}; "
            "remove or repair that row (values must be finite in float32)"
        )


def _assign(
    examples: PyTree, total: int, clients: Sequence[ArrayLike], public: ArrayLike
) -> Federation:
    if len(clients) == 0:
        raise ValueError("clients=[] is empty; give one array of row numbers per client")
    size, rows = _joined(clients, total)
    shared = _check_rows("public", public, total)
    _check_disjoint(size, rows, shared, total)
    table = np.repeat(rows[np.cumsum(size) - size, None], size.max(), axis=1)  # first rows
    table[np.arange(size.max()) < size[:, None]] = rows
    return Federation(examples, jnp.asarray(table), jnp.asarray(size), jnp.asarray(shared))


def _joined(clients: Sequence[ArrayLike], total: int) -> tuple[np.ndarray, np.ndarray]:
    """(i32[clients] how many rows each has, i32[...] all of them); checked together, as there may be a million."""
    held = [np.asarray(rows) for rows in clients]
    plain = all(rows.ndim == 1 and rows.size and rows.dtype.kind in "iu" for rows in held)
    joined = np.concatenate(held) if plain else np.zeros(0)
    if joined.dtype.kind not in "iu" or joined.min() < 0 or joined.max() >= total:
        held = [_check_rows(f"clients[{i}]", rows, total) for i, rows in enumerate(held)]
        joined = np.concatenate(held)
    size = np.fromiter(map(len, held), np.int32, len(held))
    return size, joined.astype(np.int32)


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
    return array.astype(np.int32)


def _check_disjoint(size: np.ndarray, rows: np.ndarray, public: np.ndarray, total: int) -> None:
    count = np.bincount(rows, minlength=total) + np.bincount(public, minlength=total)
    if count.max(initial=0) > 1:
        row = int(np.argmax(count > 1))
        owners = [f"clients[{i}]" for i in np.repeat(np.arange(len(size)), size)[rows == row]]
        owners += ["public"] * int((public == row).sum())
        raise ValueError(
            f"row {row} is given to {owners[0]} and to {owners[1]}; give each row at most once"
        )
