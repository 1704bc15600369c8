"""The federation: who holds which examples.

The examples are stored once, on the device; a partition is a list of row numbers, and a client's batch a gather.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, CountOrZero, Seed, checked
from fedpriv.core.complaints import counted, require
from fedpriv.core.leaves import sizes
from fedpriv.core.trees import same_structure
from fedpriv.data.bounding import Bounded, kept_rows
from fedpriv.data.client_ids import by_leaf
from fedpriv.data.client_rows import ClientRows, stacked
from fedpriv.data.client_rows import stack as stack_arrays
from fedpriv.data.held_out import NOTHING_HELD_OUT, Rows, split_rows, without_column
from fedpriv.data.labels import stored
from fedpriv.data.person_ids import Person, column_of
from fedpriv.data.persons import Persons
from fedpriv.data.validation import check_lengths, held_rows, leaves_of

PyTree = Any


@flax.struct.dataclass
class Federation:
    """Examples and their partition among clients and server, a pytree of device arrays.

    After `stack`, all fields except `examples` have a leading axis of seeds.

    Attributes:
        examples: leaves [total, ...], in their original data type (uint8 stays uint8).
        client_rows: the rows of `examples` that each client holds.
        public: i32[p], rows that only the server holds, as public examples; may be empty.
        held_out_rows: as `client_rows`, for held-out records, which clients are evaluated on and never train on; None
            if there are none.
        persons: whose each record is, where that was said: certificates are then of a person. No array of a program.
        normalised: leaves that are on the scale of released statistics (`fp.normalised`), whose cost comes on top.
    """

    examples: PyTree
    client_rows: ClientRows
    public: jax.Array
    held_out_rows: ClientRows | None = None
    persons: Persons | None = flax.struct.field(pytree_node=False, default=None)
    normalised: tuple[str, ...] = flax.struct.field(pytree_node=False, default=())

    def __repr__(self) -> str:
        """Without a record, which a notebook would show."""
        counts = (
            f"{counted(self.num_clients, 'client')}, up to {counted(self.capacity, 'record')} each"
        )
        whose = "" if self.persons is None else f", {self.persons.shown(self)}"
        return f"Federation({counts}{whose}, {sizes(self.examples)})"

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return int(self.client_rows.start.shape[-1])

    @property
    def capacity(self) -> int:
        """The largest number of rows that a client can hold."""
        return self.client_rows.capacity

    @property
    def size(self) -> jax.Array:
        """i32[clients], how many rows each client holds."""
        return self.client_rows.size

    @property
    def rows(self) -> jax.Array:
        """i32[clients, capacity], the rows of each client, filled with its first one; made whenever it is asked for.

        Where one client holds most records it is large, and `client_rows` is not.
        """
        return self.client_rows.table

    @property
    def held_out(self) -> Federation:
        """The same clients with their held-out records, of which a client may have none.

        Raises:
            ValueError: nothing is held out.
        """
        if self.held_out_rows is None:
            raise ValueError(NOTHING_HELD_OUT)
        none = self.public[..., :0]
        return Federation(self.examples, self.held_out_rows, none, persons=self.persons)

    @property
    def for_training(self) -> Federation:
        """The same without the held-out records: what a round is given."""
        return replace(self, held_out_rows=None)

    @property
    def rows_on_host(self) -> list[Rows]:
        """The rows that clients train on, of each seed."""
        return self.client_rows.each_on_host()

    def records(self, ids: jax.Array, mask: jax.Array) -> Callable[[jax.Array], PyTree]:
        """i -> the examples of client i, one of `ids` (i32[slots]) where `mask`; leaves [capacity, ...]."""

        def of_client(i: jax.Array) -> PyTree:
            rows = self.client_rows.of_client(i)
            return jax.tree.map(lambda leaf: leaf[rows], self.examples)

        return of_client

    @classmethod
    def from_arrays(
        cls,
        examples: PyTree,
        clients: Sequence[ArrayLike] | str,
        *,
        public: ArrayLike = (),
        held_out: Sequence[ArrayLike] | str | None = None,
        num_classes: Count | None = None,
        person: Person | str | None = None,
        per_person: Count | None = None,
        seed: Seed = 0,
    ) -> Federation:
        """Checks arrays and partition, and puts them on the device.

        Args:
            examples: pytree of arrays with the same leading axis, by convention a dict such as
                `{"image": u8[N, 28, 28, 1], "label": i32[N]}`, or a table such as a pandas DataFrame, whose columns are
                leaves. Lists of numbers become arrays, and 64-bit leaves 32-bit ones.
            clients: [rows] for each client, its row numbers; other rows are left out. Or the name of a leaf [N] with
                each record's client, all of one type; clients come in order of first appearance, and the leaf is not
                stored.
            public: [p], the rows that the server holds.
            held_out: [rows] for each client, which it is evaluated on and never trains on (`partition.hold_out`); may
                be empty. Or the name of a leaf [N] of booleans that marks these records, and is not stored.
            num_classes: if given, the leaf `label` must hold integers in [0, num_classes), or equal booleans or floats,
                which become integers.
            person: whose each client is, [clients], or each record, [N] or the name of such a leaf, which is not
                stored; for records of several persons a list of ids each, or i32[N, m] filled with -1. It is public.
                Certificates are then of all that is one person's.
            per_person: most clients of a person that are kept, if every client is one person's; else most records to
                train on. Which are kept is drawn by `seed`, without looking at them. None: all.
            seed: of that draw; it is public.

        Raises:
            ValueError: leaves of different length; NaN or infinity; a label that is not a class; a client without
                records to train on; a record without a client; a row out of range, or given twice; a client or record
                without a person; public records of a person who has others.

        Warns:
            UserWarning: once, with their numbers, of records that repeat another one exactly, see
                `fedpriv.data.repeated`; of clients or records that share a person, if a leaf such as `person` or
                `patient_id` says so and `person` is not given; of persons who are trained on and have held-out records,
            too, as `partition.hold_out(..., person=...)` avoids.
        """
        num_classes = checked("num_classes", num_classes, Count | None)
        examples, whose = column_of(examples, person, clients)
        examples = leaves_of(examples)
        total = check_lengths(examples)
        held: Sequence[ArrayLike] | ArrayLike | None = held_out
        if isinstance(held_out, str):
            examples, held = without_column(examples, held_out)
        if isinstance(clients, str):
            examples, clients = by_leaf(examples, clients, public, total)
        kept = stored(examples, num_classes)
        on_device = jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jnp.asarray(x), kept)
        bounded = Bounded.of(person, whose, per_person, seed)
        return _assign(on_device, total, clients, public, held, bounded, new=kept)

    @classmethod
    def blank(
        cls,
        example: PyTree,
        clients: Count,
        per_client: Count,
        *,
        public: CountOrZero = 0,
        held_out: CountOrZero = 0,
    ) -> Federation:
        """A federation of these shapes whose records are all 0, where only shapes matter, as in `certify`.

        Args:
            example: the leaves of one record: arrays, or instances of `jax.ShapeDtypeStruct`.
            clients, per_client: number of clients, and of records that each holds.
            public: number of the server's examples.
            held_out: number of records that each client holds out beside those.

        Raises:
            ValueError: numbers out of range.
        """
        clients = checked("clients", clients, Count)
        per_client = checked("per_client", per_client, Count)
        public = checked("public", public, CountOrZero)
        held_out = checked("held_out", held_out, CountOrZero)
        for leaf in jax.tree.leaves(example) or [example]:
            known = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
            require(known, "example", leaf, "give arrays, or jax.ShapeDtypeStruct of them")

        def repeated(value: int, *shape: int) -> Any:  # one number in memory, however many clients
            return np.broadcast_to(np.int32(value), shape)

        def rows(each: int) -> ClientRows:  # everybody's are the same
            return ClientRows(
                repeated(0, each), repeated(0, clients), repeated(each, clients), each
            )

        examples = jax.tree.map(lambda s: np.zeros((1, *s.shape), s.dtype), example)
        out = rows(held_out) if held_out else None
        return cls(examples, rows(per_client), repeated(0, public), out)

    def repartition(
        self,
        clients: Sequence[ArrayLike],
        *,
        public: ArrayLike = (),
        held_out: Sequence[ArrayLike] | None = None,
    ) -> Federation:
        """The same stored examples (shared, not copied) under another partition; see `stack`.

        Args:
            clients, public, held_out: as `from_arrays`, but only row numbers.

        Raises:
            ValueError: an empty client; a row out of range, or given twice; no `held_out`, although records are held
                out; a federation with persons.
        """
        if self.persons is not None:
            raise ValueError(
                f"repartition: of a federation of {self.persons}, of whom it would keep more; give "
                "from_arrays(..., person=...) the other partition"
            )
        if held_out is None and self.held_out_rows is not None:
            raise ValueError(
                f"held_out: {int(self.held_out_rows.size.sum())} records are held out, but this partition does not say "
                "by whom; give held_out=[rows of each client], or repartition federation.for_training"
            )
        total = len(jax.tree.leaves(self.examples)[0])
        other = _assign(self.examples, total, clients, public, held_out, None)
        return replace(other, normalised=self.normalised)


def stack(federations: Sequence[Federation]) -> Federation:
    """One federation with a leading axis of seeds, from partitions of the same examples.

    Args:
        federations: with the same number of clients and of public rows. Those made by `repartition` of the first share
            its examples in memory; others have equal ones.

    Returns:
        Federation with client_rows and those held out of every seed (of the greatest capacity), size i32[seeds,
        clients], public i32[seeds, p], and the examples as they are.

    Raises:
        ValueError: nothing to stack; other examples; unequal numbers of clients or public rows.
    """
    require(len(federations) > 0, "federations", [], "give one federation per seed")
    first = federations[0]
    for i, other in enumerate(federations):
        _check_same(first, other, i)
    return Federation(
        examples=first.examples,
        client_rows=stacked([f.client_rows for f in federations]),
        public=stack_arrays(*(f.public for f in federations)),
        held_out_rows=None
        if first.held_out_rows is None
        else stacked([f.held_out.client_rows for f in federations]),
        persons=first.persons,
        normalised=first.normalised,
    )


def _check_same(first: Federation, other: Federation, i: int) -> None:
    if not _equal(first.examples, other.examples):
        raise ValueError(
            f"federations[{i}].examples are not the examples of federations[0]; "
            "give all seeds the same, as federations[0].repartition(clients) does"
        )
    for field, a, b in [
        ("num_clients", first.num_clients, other.num_clients),
        ("public rows", first.public.shape[-1], other.public.shape[-1]),
        ("records held out", first.held_out_rows is not None, other.held_out_rows is not None),
        ("persons", first.persons, other.persons),
        ("normalised leaves", first.normalised, other.normalised),
    ]:
        if a != b:
            raise ValueError(
                f"federations[{i}] has {field}={b}, federations[0] has {a}; "
                "give every seed the same number"
            )


def _equal(one: PyTree, other: PyTree) -> bool:
    """Whether two trees are the same arrays, or hold the same."""
    ours, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    if not same_structure(one, other):
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(a is b or (a.dtype == b.dtype and np.array_equal(a, b)) for a, b in pairs)


def _assign(
    examples: PyTree,
    total: int,
    clients: Sequence[ArrayLike],
    public: ArrayLike,
    held_out: Sequence[ArrayLike] | ArrayLike | None,
    bounded: Bounded | None,
    new: PyTree = None,
) -> Federation:
    """Args: held_out: [rows] for each client, or bool[total]. new: the examples, if they have just come in."""
    size, rows, shared = held_rows(clients, public, total)
    training, out = split_rows(Rows(size, rows), held_out, shared, total)
    persons = None
    if new is not None:
        persons, training, out = kept_rows(bounded, new, training, out, shared, total)
    return Federation(
        examples,
        ClientRows.on_device(training),
        jnp.asarray(np.asarray(shared, np.int32)),
        None if out is None else ClientRows.on_device(out),
        persons,
    )
