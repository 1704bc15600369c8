"""Contribution bounding: of a person, at most so many clients or records are kept, chosen without looking at them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedpriv.core.arguments import Count, Seed, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import PyTree
from fedpriv.data.held_out import Rows
from fedpriv.data.held_out_persons import warn_of_held_out
from fedpriv.data.person_ids import Person, owners_of
from fedpriv.data.persons import Persons
from fedpriv.data.repeated import warn_of_repeats
from fedpriv.data.shared_persons import warn_of_shared_persons


class Bounded(NamedTuple):
    """Whose clients or records are, and how many of a person are kept, as they were given.

    Attributes:
      person: a `Person`.
      per_person: most clients or records of a person that are kept; None: all.
      seed: public, of the choice among them.
      column: the leaf that says whose, if one does.
    """

    person: Any
    per_person: int | None
    seed: int
    column: str | None = None

    @classmethod
    def of(
        cls, given: Person | str | None, person: Person | None, per_person: Count | None, seed: Seed
    ) -> Bounded | None:
        """Checked; None where no person is said.

        Args:
          given: perhaps the name of a leaf.
          person: what it says.

        Raises:
          ValueError: a number out of range, or without persons.
        """
        per_person = checked("per_person", per_person, Count | None)
        seed = checked("seed", seed, Seed)
        said = person is not None
        require(said or per_person is None, "per_person", per_person, "say who, by person=")
        column = given if isinstance(given, str) else None
        return cls(person, per_person, seed, column) if said else None

    def assigned(
        self, training: Rows, held_out: Rows | None, public: np.ndarray, total: int
    ) -> tuple[Persons, Rows, Rows | None]:
        """(the persons, the rows that are kept, to train on and held out).

        Of a person with more than `per_person` clients, or records to train on, a random choice is kept. It depends on
        `seed`, the person's id and the order of its clients or records alone: on nothing of other persons, and on no
        content, which is not seen here. Where records have several owners it is greedy, see `_greedy`. Clients that are
        left without records to train on are left out.

        Raises:
          ValueError: as `owners_of`.
        """
        owners, names = owners_of(self.person, training, held_out, public, total)
        clients = np.arange(len(training.size))
        whole = _are_whole(owners, training)
        persons = Persons(owners, len(names), whole, self.per_person, clients, names, self.column)
        if self.per_person is None:
            return persons, training, held_out
        stays = self._staying(persons, training, names)
        left = np.add.reduceat(stays, np.cumsum(training.size) - training.size) > 0
        persons = replace(persons, kept=clients[left])
        rows = _only(training, stays, left)
        if held_out is None:
            return persons, rows, None
        out = _only(held_out, np.repeat(left, held_out.size), left)
        return persons, rows, out if len(out.rows) else None

    def _staying(self, persons: Persons, training: Rows, names: np.ndarray) -> np.ndarray:
        """bool[n], which of the rows are kept."""
        assert self.per_person is not None
        owners, how = persons.owners, (self.per_person, self.seed)
        if persons.have_several:
            return _greedy(owners[training.rows], *how)
        if not persons.of_clients:
            return _chosen(owners[training.rows, 0], names, *how)
        first = training.rows[np.cumsum(training.size) - training.size]
        return np.repeat(_chosen(owners[first, 0], names, *how), training.size)


def kept_rows(
    bounded: Bounded | None,
    examples: PyTree,
    training: Rows,
    held_out: Rows | None,
    public: np.ndarray,
    total: int,
) -> tuple[Persons | None, Rows, Rows | None]:
    """As `Bounded.assigned` of examples that have just come in, with warnings of what repeats or shares persons."""
    persons = None
    if bounded is not None:
        persons, training, held_out = bounded.assigned(training, held_out, public, total)
        warn_of_held_out(persons, training, held_out)
    else:
        warn_of_shared_persons(examples, training, held_out)
    warn_of_repeats(examples, training, public, held_out)
    return persons, training, held_out


def _are_whole(owners: np.ndarray, training: Rows) -> bool:
    """Whether every client is one person's."""
    first = np.repeat(training.rows[np.cumsum(training.size) - training.size], training.size)
    alike = owners[training.rows, 0] == owners[first, 0]
    return owners.shape[1] == 1 and bool(alike.all())


def _chosen(person: np.ndarray, names: np.ndarray, most: int, seed: int) -> np.ndarray:
    """bool[n], which clients or records are kept, of which each is one person's (i64[n]).

    Those with the least of 64 pseudo-random bits, made of the seed, the person's id, and the place among its own
    (by the mixer of SplitMix64): so they are the same whoever else is there.
    """
    order = np.argsort(person, kind="stable")
    count = np.bincount(person, minlength=len(names))
    first = np.cumsum(count) - count
    place = np.arange(len(person)) - first[person[order]]
    start = np.zeros(len(names), np.uint64)
    for p in np.flatnonzero(count > most):
        start[p] = _bits(f"{seed} {names[p]}")
    lots = start[person[order]] + (place + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        lots = (lots ^ (lots >> np.uint64(shift))) * np.uint64(factor)
    by_lot = order[np.lexsort((lots, person[order]))]
    stays = np.zeros(len(person), bool)
    stays[by_lot] = place < most  # a person's places are in order of its lots now
    return stays


def _bits(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _greedy(owners: np.ndarray, most: int, seed: int) -> np.ndarray:
    """bool[n], which records are kept, by owners i32[n, m]: one after the other in a random order.

    Each is kept if none of its owners has `most` already (A. Ganesh et al. 2025, arXiv:2503.03622). Whose others are
    kept depends on who else there is: so who owns what stays as it is between neighbours, who differ in what a person's
    records contribute.
    """
    count = np.zeros(owners.max() + 1, np.int64)
    stays = np.zeros(len(owners), bool)
    for i in np.random.default_rng(seed % 2**64).permutation(len(owners)):
        own = owners[i][owners[i] >= 0]
        if (count[own] < most).all():
            stays[i] = True
            count[own] += 1
    return stays


def _only(rows: Rows, stays: np.ndarray, clients: np.ndarray) -> Rows:
    """The rows that stay, of the clients that stay (bool[clients])."""
    client = np.repeat(np.arange(len(rows.size)), rows.size)
    size = np.bincount(client[stays], minlength=len(rows.size))
    return Rows(size[clients], rows.rows[stays])
