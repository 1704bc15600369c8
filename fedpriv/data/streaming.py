"""A federation larger than the device's memory: records stay on the host until their client's round.

The host holds the examples (memory-mapped files, as a rule) and the partition; the device the number of each client's
records, the server's public examples, and the records of two cohorts: of the round that runs and of the next.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, Seed, check_path, checked
from fedpriv.core.complaints import counted, require, shown
from fedpriv.core.leaves import sizes
from fedpriv.core.types import PyTree
from fedpriv.data.bounding import Bounded, kept_rows
from fedpriv.data.client_ids import by_leaf
from fedpriv.data.cohort_federation import CohortFederation, not_here
from fedpriv.data.held_out import NOTHING_HELD_OUT, Rows, split_rows, without_column
from fedpriv.data.labels import stored
from fedpriv.data.mapped_files import check_not_cut, loaded, mapped
from fedpriv.data.person_ids import Person, column_of
from fedpriv.data.persons import Persons
from fedpriv.data.validation import check_lengths, held_rows, name_of, on_host


@dataclass(frozen=True, eq=False)
class StreamedFederation:
    """Examples on the host (in memory or memory-mapped files), and their partition among clients and server.

    `simulate` takes it in place of a `Federation`, with the same results. A round's records are read and sent to the
    device while the previous round runs, and values are checked when they are read. What an algorithm keeps for each
    client stays on the device. With several processes, each reads the whole cohort's records.

    Attributes:
      examples: leaves [total, ...], `np.memmap` or `np.ndarray`; sliced, never copied whole.
      offsets: i64[clients + 1]; client i holds the rows `order[offsets[i] : offsets[i + 1]]`.
      order: i64[offsets[-1]], or None for 0, 1, 2, ... if examples are sorted by client.
      public: i64[p], rows that the server holds.
      capacity: room for records of each client of a cohort; at least the number of the largest client.
      most: i64[clients], how many records 1, 2, ... clients hold at most; None: as many as those here.
      num_classes: if not None, the leaf `label` holds classes, as in `Federation.from_arrays`.
      held_out_rows: rows that clients are evaluated on and never train on, or None.
      persons, normalised: as `Federation`.
    """

    examples: PyTree
    offsets: np.ndarray
    order: np.ndarray | None
    public: np.ndarray
    capacity: int
    num_classes: int | None = None
    held_out_rows: Rows | None = None
    most: np.ndarray | None = None
    persons: Persons | None = None
    normalised: tuple[str, ...] = ()

    @classmethod
    def from_arrays(
        cls,
        examples: PyTree,
        clients: Sequence[ArrayLike] | str,
        *,
        public: ArrayLike = (),
        held_out: Sequence[ArrayLike] | str | None = None,
        num_classes: Count | None = None,
        capacity: Count | None = None,
        person: Person | str | None = None,
        per_person: Count | None = None,
        seed: Seed = 0,
    ) -> StreamedFederation:
        """As `Federation.from_arrays`, but the arrays stay where they are.

        If a client's records are scattered over a file, each takes a read of its own; see `write_clients`.

        Args:
          examples: pytree of NumPy arrays, memory-mapped or not.
          clients, public, held_out, num_classes, person, per_person, seed: as `Federation.from_arrays`.
          capacity: by default the number of records of the largest client.

        Raises:
          ValueError: as `Federation.from_arrays`; a leaf that is not a NumPy array; a client above `capacity`.

        Warns:
          UserWarning: as `Federation.from_arrays`.
        """
        num_classes = checked("num_classes", num_classes, Count | None)
        examples, whose = column_of(examples, person, clients)
        total = _check_arrays(examples)
        held: Sequence[ArrayLike] | ArrayLike | None = held_out
        if isinstance(held_out, str):
            examples, held = without_column(examples, held_out)
        if isinstance(clients, str):
            examples, clients = by_leaf(examples, clients, public, total)
        _check_types(examples, num_classes)
        sizes, order, shared = held_rows(clients, public, total)
        training, out = split_rows(Rows(sizes, order), held, shared, total)
        bounded = Bounded.of(person, whose, per_person, seed)
        persons, training, out = kept_rows(bounded, examples, training, out, shared, total)
        offsets = _offsets(training.size)
        room = _room(offsets, capacity)
        rows = training.rows
        return cls(examples, offsets, rows, shared, room, num_classes, out, persons=persons)

    @classmethod
    def from_sorted(
        cls,
        examples: PyTree,
        sizes: ArrayLike,
        *,
        held_out: str | None = None,
        num_classes: Count | None = None,
        capacity: Count | None = None,
        person: Person | str | None = None,
        per_person: Count | None = None,
        seed: Seed = 0,
    ) -> StreamedFederation:
        """Examples that are sorted by client, which are read fastest.

        Args:
          examples, num_classes, capacity, person, per_person, seed: as `from_arrays`.
          held_out: the name of a leaf, as `from_arrays`.
          sizes: [clients], number of records of each; any rows after the last client's are the server's public ones.

        Raises:
          ValueError: as `from_arrays`; sizes that are not positive integers, or add up to more than there are rows.
        """
        num_classes = checked("num_classes", num_classes, Count | None)
        examples, whose = column_of(examples, person, None)
        total, flags = _check_arrays(examples), None
        if held_out is not None:
            examples, flags = without_column(examples, held_out)
        _check_types(examples, num_classes)
        sizes = on_host("sizes", sizes)
        plain = sizes.ndim == 1 and len(sizes) and sizes.dtype.kind in "iu"
        require(bool(plain), "sizes", sizes, "give a number of records for each client")
        i = int(np.argmin(sizes))
        require(
            sizes[i] >= 1,
            f"sizes[{i}]",
            int(sizes[i]),
            "give it a record, or leave this client out",
        )
        offsets = _offsets(sizes)
        if offsets[-1] > total:
            raise ValueError(
                f"sizes: they add up to {offsets[-1]} records, but there are {total}; give as many records"
            )
        public, order, out = np.arange(offsets[-1], total), None, None
        training = Rows(sizes, np.arange(offsets[-1]))
        if flags is not None:
            training, out = split_rows(training, flags, public, total)
        bounded = Bounded.of(person, whose, per_person, seed)
        persons, training, out = kept_rows(bounded, examples, training, out, public, total)
        if flags is not None or persons is not None:
            order, offsets = training.rows, _offsets(training.size)
        room = _room(offsets, capacity)
        return cls(examples, offsets, order, public, room, num_classes, out, persons=persons)

    @classmethod
    def from_folder(
        cls,
        folder: str | os.PathLike[str],
        *,
        held_out: str | None = None,
        num_classes: Count | None = None,
        capacity: Count | None = None,
        person: Person | str | None = None,
        per_person: Count | None = None,
        seed: Seed = 0,
    ) -> StreamedFederation:
        """Memory-maps the files of `write_clients`: NAME.npy for each leaf of a dict, and sizes.npy.

        Arguments are those of `from_sorted`; `person` may name a file of integers.

        Raises:
          ValueError: as `from_sorted`; a missing file, or one that is damaged, or of another length than it says.
        """
        check_path("folder", folder, "give the path of one that write_clients made")
        files = {path.stem: path for path in sorted(Path(folder).glob("*.npy"))}
        if "sizes" not in files:
            raise ValueError(f"folder: {folder} has no sizes.npy; make it with write_clients")
        sizes = loaded(files.pop("sizes"))
        examples = {name: mapped(path) for name, path in files.items()}
        options: dict[str, Any] = {"num_classes": num_classes, "capacity": capacity}
        options |= {"person": person, "per_person": per_person, "seed": seed}
        return cls.from_sorted(examples, sizes, held_out=held_out, **options)

    def __repr__(self) -> str:
        """Without a record, which a notebook would show."""
        counts = (
            f"{counted(self.num_clients, 'client')}, up to {counted(self.capacity, 'record')} each"
        )
        whose = "" if self.persons is None else f", {self.persons.shown(self)}"
        return f"StreamedFederation({counts}{whose}, {sizes(self.examples)})"

    @property
    def held_out(self) -> StreamedFederation:
        """The same clients with their held-out records, of which a client may have none.

        Raises:
          ValueError: nothing is held out.
        """
        if self.held_out_rows is None:
            raise ValueError(NOTHING_HELD_OUT)
        offsets, none = _offsets(self.held_out_rows.size), np.zeros(0, np.int64)
        rows, room = self.held_out_rows.rows, _room(offsets, None)
        options: dict[str, Any] = {"num_classes": self.num_classes, "persons": self.persons}
        return StreamedFederation(self.examples, offsets, rows, none, room, **options)

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.offsets) - 1

    @property
    def size(self) -> np.ndarray:
        """i32[clients], how many records each client holds."""
        return np.diff(self.offsets).astype(np.int32)

    @property
    def rows_on_host(self) -> list[Rows]:
        """The rows that clients train on, as `Federation`."""
        size = np.diff(self.offsets)
        rows = np.arange(self.offsets[-1]) if self.order is None else self.order
        return [Rows(size, rows)]

    @property
    def rows(self) -> NoReturn:
        """Raises ValueError: see `order` and `offsets`."""
        not_here("rows")

    def records(self, ids: jax.Array, mask: jax.Array) -> NoReturn:
        """Raises ValueError: `Federation.records` (i32[slots], bool[slots]) is for records on the device."""
        not_here("records")

    def empty(self) -> CohortFederation:
        """What stays on the device throughout a run: sizes and public examples.

        Raises:
          ValueError: a public example that is NaN or infinite, or whose label is not a class; a file cut short.
        """
        check_not_cut(self.examples)
        examples = self._checked(self.public, "public examples")
        no_records = jax.tree.map(lambda leaf: leaf[:0], examples)
        return CohortFederation(
            jax.tree.map(jnp.asarray, examples),
            jnp.arange(len(self.public), dtype=jnp.int32),
            jnp.asarray(self.size),
            jnp.zeros(0, jnp.int32),
            jax.tree.map(jnp.asarray, no_records),
            self.capacity,
        )

    @cached_property
    def most_records(self) -> np.ndarray:
        """i64[clients], how many records 1, 2, ... clients hold at most, of this federation or of all side by side."""
        own = np.cumsum(np.sort(np.diff(self.offsets))[::-1])
        return own if self.most is None else self.most

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, PyTree]:
        """`holders` and `holder_records` of a `CohortFederation`, on the host, for clients in any order.

        Args:
          ids: i32[slots]; the number of clients in an empty slot. A client that occurs twice is read once.

        Raises:
          ValueError: an id that is not a client's; a client's record that is NaN or infinite, or whose label is not a
            class; a file that was cut short.
        """
        check_not_cut(self.examples)
        holders, nobody = np.unique(ids), self.num_clients
        if len(holders) and not 0 <= holders[0] <= holders[-1] <= nobody:
            wrong = holders[(holders < 0) | (holders > nobody)][0]
            raise ValueError(f"cohort: it holds client {wrong}, but there are {nobody}")
        holders = holders[holders < nobody]
        none = self._checked(np.zeros(0, int), "examples")
        # For any cohort of so many, so that all rounds have one program.
        room = max(1, int(self.most_records[min(len(ids), nobody) - 1])) if len(ids) else 0
        holder_records = jax.tree.map(
            lambda leaf: np.zeros((room, *leaf.shape[1:]), leaf.dtype), none
        )
        start = 0
        for i in holders:
            rows = slice(self.offsets[i], self.offsets[i + 1])
            own = self._checked(rows if self.order is None else self.order[rows], f"client {i}")
            for to, leaf in zip(jax.tree.leaves(holder_records), jax.tree.leaves(own), strict=True):
                if leaf.shape[1:] != to.shape[1:]:
                    raise ValueError(
                        f"client {i}: an array of objects holds arrays {list(leaf.shape[1:])}; give np.stack(array)"
                    )
                to[start : start + len(leaf)] = leaf
            start += int(self.offsets[i + 1] - self.offsets[i])
        return np.pad(holders, (0, len(ids) - len(holders)), constant_values=nobody), holder_records

    def _checked(self, rows: np.ndarray | slice, whose: str) -> PyTree:
        """Some of the examples, in the data types of the device."""
        try:
            examples = stored(
                jax.tree.map(lambda leaf: leaf[rows], self.examples), self.num_classes
            )
        except ValueError as error:
            raise ValueError(f"{whose}: {error}") from None
        return examples


def _not_an_argument(*_: object) -> NoReturn:
    raise ValueError(
        "federation: a StreamedFederation works only in `simulate`, as its records are not on the device; use a "
        "Federation in memory"
    )


# So that a jitted function that is given one says so, whichever it is.
jax.tree_util.register_pytree_node(StreamedFederation, _not_an_argument, _not_an_argument)


def _check_arrays(examples: PyTree) -> int:
    for path, leaf in jax.tree_util.tree_leaves_with_path(examples):
        if not isinstance(leaf, np.ndarray):
            raise ValueError(
                f"{name_of(path)}: {shown(leaf)} of type {type(leaf).__name__}; give a NumPy array, or np.load(file, "
                "mmap_mode='r')"
            )
    return check_lengths(examples)


def _check_types(examples: PyTree, num_classes: int | None) -> None:
    stored(jax.tree.map(lambda leaf: leaf[:0], examples), num_classes)


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _room(offsets: np.ndarray, capacity: Count | None) -> int:
    sizes = np.diff(offsets)
    largest = int(np.argmax(sizes))
    capacity = checked("capacity", capacity, Count | None)
    if capacity is not None and capacity < sizes[largest]:
        raise ValueError(
            f"capacity: {capacity} is less than the {sizes[largest]} records of client {largest}; give at least that, "
            "or split this client"
        )
    return int(capacity or sizes[largest])
