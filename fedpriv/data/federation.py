"""The federation: who holds which examples.

The examples are stored once, on the device; a partition is a table of row numbers, and a client's batch a gather.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, CountOrZero, checked, require
from fedpriv.data.client_ids import by_leaf
from fedpriv.data.labels import stored
from fedpriv.data.validation import check_lengths, held_rows, leaves_of

PyTree = Any


@flax.struct.dataclass
class Federation:
    """Examples, and their partition among clients and server; a pytree of device arrays.

    After `stack`, `rows`, `size` and `public` have a leading axis of seeds and `examples` has not.

    Attributes:
        examples: leaves [total, ...], in their own data type (uint8 stays uint8).
        rows: i32[clients, capacity], the rows of `examples` each client holds.
        size: i32[clients], how many of its rows count; those beyond are padding and repeat the client's own first row.
        public: i32[p], rows the server holds as public examples, and no client; may be empty.
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

    def records(self, ids: jax.Array, mask: jax.Array) -> Callable[[jax.Array], PyTree]:
        """i -> the examples of client i, one of `ids` (i32[slots]) where `mask`; leaves [capacity, ...]."""

        def of_client(i: jax.Array) -> PyTree:
            rows = self.rows[i]
            return jax.tree.map(lambda leaf: leaf[rows], self.examples)

        return of_client

    @classmethod
    def from_arrays(
        cls,
        examples: PyTree,
        clients: Sequence[ArrayLike] | str,
        *,
        public: ArrayLike = (),
        num_classes: Count | None = None,
    ) -> "Federation":
        """Checks the arrays and the partition, and puts them on the device.

        Args:
            examples: pytree of arrays with the same leading axis, by convention a dict such as
                `{"image": u8[N, 28, 28, 1], "label": i32[N]}`, or a table such as a pandas DataFrame,
                of which each column is a leaf. Lists of numbers are arrays; 64-bit leaves become 32-bit.
            clients: [rows] for each client, its row numbers; rows given to nobody are left out. Or the name of the leaf
                [N] that holds each record's client, of any one type; the clients come in order of first appearance, and
                that leaf is not stored.
            public: [p], the rows the server holds.
            num_classes: if given, the leaf `label` must hold integers in [0, num_classes), or booleans or floats that
                are such, which become integers.

        Raises:
            ValueError: leaves of different length; NaN or infinity; a label that is no class; an empty client; a record
                whose client is missing; a row out of range, or given twice.
        """
        num_classes = checked("num_classes", num_classes, Count | None)
        examples = leaves_of(examples)
        total = check_lengths(examples)
        if isinstance(clients, str):
            examples, clients = by_leaf(examples, clients, public, total)
        kept = stored(examples, num_classes)
        on_device = jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jnp.asarray(x), kept)
        return _assign(on_device, total, clients, public)

    @classmethod
    def blank(
        cls, example: PyTree, clients: Count, per_client: Count, *, public: CountOrZero = 0
    ) -> "Federation":
        """A federation of these shapes whose records are all 0: for what depends on shapes alone, such as `certify`.

        Args:
            example: one record's leaves, arrays or `jax.ShapeDtypeStruct`s.
            clients, per_client: how many clients, and how many records each holds.
            public: number of the server's examples.

        Raises:
            ValueError: numbers out of range.
        """
        clients = checked("clients", clients, Count)
        per_client = checked("per_client", per_client, Count)
        public = checked("public", public, CountOrZero)
        for leaf in jax.tree.leaves(example) or [example]:
            known = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
            require(known, "example", leaf, "give arrays, or jax.ShapeDtypeStruct of them")

        def of(value: int, *shape: int) -> Any:  # one number in memory, however many clients
            return np.broadcast_to(np.int32(value), shape)

        examples = jax.tree.map(lambda s: np.zeros((1, *s.shape), s.dtype), example)
        return cls(examples, of(0, clients, per_client), of(per_client, clients), of(0, public))

    def repartition(self, clients: Sequence[ArrayLike], *, public: ArrayLike = ()) -> "Federation":
        """The same stored examples (shared, not copied) under another partition; see `stack`.

        Args:
            clients, public: as `from_arrays`.

        Raises:
            ValueError: an empty client; a row out of range, or given twice.
        """
        total = len(jax.tree.leaves(self.examples)[0])
        return _assign(self.examples, total, clients, public)


def stack(federations: Sequence[Federation]) -> Federation:
    """One federation with a leading axis of seeds, from partitions of the same stored examples.

    Args:
        federations: with the same number of clients and of public rows, made by `repartition` of the first.

    Returns:
        Federation with rows i32[seeds, clients, capacity] (padded to the greatest capacity), size i32[seeds, clients],
        public i32[seeds, p], and the examples as they are.

    Raises:
        ValueError: nothing to stack; other examples; unequal numbers of clients or public rows.
    """
    require(len(federations) > 0, "federations", [], "give one federation per seed")
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


def _assign(
    examples: PyTree, total: int, clients: Sequence[ArrayLike], public: ArrayLike
) -> Federation:
    size, rows, shared = held_rows(clients, public, total)
    table = np.repeat(rows[np.cumsum(size) - size, None], size.max(), axis=1)  # first rows
    table[np.arange(size.max()) < size[:, None]] = rows
    return Federation(examples, *(jnp.asarray(x, jnp.int32) for x in (table, size, shared)))
