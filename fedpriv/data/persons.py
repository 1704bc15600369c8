"""Whose each record of a federation is: public, fixed, and what certificates of a person are made by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.core.terminal_text import counted
from fedpriv.data.held_out import Rows


@dataclass(frozen=True, eq=False, repr=False)
class Persons:
    """Whose each record of a federation is: no part of a compiled program, and the same wherever equal.

    Attributes:
      owners: i32[total, m], the numbers of each record's persons, filled with -1.
      number: of persons, with those whose records are all held out or left out.
      of_clients: whether every client was one person's, so that `per_person` counts clients, else records.
      per_person: most clients or records of a person that are kept; None: all.
      kept: i64[clients], which of the clients that were given these are, as some may be left out.
      ids: as they were given, by number.
      column: the leaf that had them; None where they were given as an array.
    """

    owners: np.ndarray
    number: int
    of_clients: bool
    per_person: int | None
    kept: np.ndarray
    ids: np.ndarray
    column: str | None = None

    @property
    def have_several(self) -> bool:
        """Whether a record may be several persons'."""
        return self.owners.shape[1] > 1

    @cached_property
    def _digest(self) -> bytes:
        said = repr((self.owners.shape, self.number, self.of_clients, self.per_person)).encode()
        return hashlib.sha256(said + self.owners.tobytes() + self.kept.tobytes()).digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Persons) and (self is other or self._digest == other._digest)

    def __repr__(self) -> str:
        """Without whose a record is."""
        what = "client" if self.of_clients else "record"
        most = "" if self.per_person is None else f", at most {counted(self.per_person, what)} each"
        return f"{counted(self.number, 'person')}{most}"

    def shown(self, federation: Any) -> str:
        """As `repr`, with how many of them a federation trains on, where that is not all."""
        try:
            rows = federation.rows_on_host
        except (jax.errors.ConcretizationTypeError, TypeError):  # traced, or in shapes
            return repr(self)
        trained = sorted({len(self.of_rows(each.rows)) for each in rows})
        if trained == [self.number]:
            return repr(self)
        return f"{self!r}, trained on {' or '.join(map(str, trained))} of them"

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """i64[n], the numbers of the persons who have some of these rows, sorted."""
        found = np.unique(self.owners[rows])
        return found[found >= 0]

    def holdings(self, rows: Rows) -> np.ndarray:
        """i64[n, 3]: (person, client, how many records) wherever a client holds some of a person, sorted."""
        client = np.repeat(np.arange(len(rows.size)), rows.size)
        own = self.owners[rows.rows]
        theirs = own >= 0
        where = np.broadcast_to(client[:, None], own.shape)[theirs]
        pairs = own[theirs].astype(np.int64) * len(rows.size) + where
        each, count = np.unique(pairs, return_counts=True)
        return np.stack([*np.divmod(each, len(rows.size)), count], axis=1)

    def of_client(self, rows: Rows) -> np.ndarray:
        """i64[clients], whose each client is.

        Raises:
          ValueError: a client holds records of several persons, or none, as where few are held out.
        """
        if (rows.size == 0).any():
            i = int(np.argmin(rows.size))
            raise ValueError(
                f"federation: client {i} holds no records; give the one that is trained on"
            )
        held = self.holdings(rows)
        clients, first, number = np.unique(held[:, 1], return_index=True, return_counts=True)
        shared = number > 1
        if shared.any():
            i = int(clients[np.argmax(shared)])
            raise ValueError(
                f"federation: client {i} holds records of {number[shared][0]} persons; give one whose clients are one "
                "person's each, or draw clients"
            )
        return held[first, 0]


class Assignment(NamedTuple):
    """Whose each client is.

    Attributes:
      clients: of each person that has any.
      digest: tells assignments apart.
    """

    clients: tuple[tuple[int, ...], ...]
    digest: str


def assignment(federation: Any) -> Assignment | None:
    """Whose each client of a federation is; None where that was not said.

    Raises:
      ValueError: a client holds records of several persons.
    """
    persons = federation.persons
    if persons is None:
        return None
    each = [persons.of_client(rows) for rows in federation.rows_on_host]
    owner = each[0]
    if not all(np.array_equal(owner, other) for other in each):
        raise ValueError("federation: its seeds differ in whose each client is; give one of them")
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)
    digest = hashlib.sha256(owner.astype(np.int64).tobytes()).hexdigest()
    return Assignment(tuple(tuple(part.tolist()) for part in parts), digest)
