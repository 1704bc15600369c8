"""Persons and what is held out: whole ones, to be held out; and those who are trained on as well, of whom it warns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpriv.core.callers import warn_where_called
from fedpriv.core.complaints import require
from fedpriv.core.types import PyTree
from fedpriv.data.held_out import Rows
from fedpriv.data.person_ids import Person, ids_of, owners_of
from fedpriv.data.persons import Persons

_REMEDY = (
    "No epsilon covers what is measured on these: hold out whole persons, by fp.partition.hold_out(..., person=...), "
    "or publish nothing that depends on it"
)


def whose_rows(person: Person, rows: np.ndarray) -> np.ndarray:
    """i32[n, m], the numbers from 0 of each row's persons, filled with -1.

    Raises:
      ValueError: not an id for each of all examples; a row that is nobody's.
    """
    several = hasattr(person, "__len__") and not isinstance(person, str | bytes | Mapping)
    several = several and np.shape(getattr(person, "shape", (0,))) in ((1,), (2,))
    remedy = "give the id of each of all examples, [N]"
    require(several, "person", person, remedy)
    total = len(person)  # type: ignore[arg-type]
    if (most := int(rows.max(initial=-1))) >= total:
        raise ValueError(f"person: {total} ids, but there is a row {most}; {remedy}")
    of_all = Rows(np.array([len(rows)]), rows)
    return owners_of(person, of_all, None, rows[:0], total)[0][rows]


def homes(owners: np.ndarray, client: np.ndarray, clients: int) -> list[np.ndarray]:
    """The persons that count at each client: one at several counts at that with the fewest persons, the first of these.

    So a client is seldom left without a record when others hold out some of their persons.

    Args:
      owners: i32[n, m], the persons of each record, filled with -1.
      client: i64[n], whose each record is.
    """
    there = owners >= 0
    where = np.broadcast_to(client[:, None], owners.shape)[there]
    person, where = np.divmod(np.unique(owners[there].astype(np.int64) * clients + where), clients)
    number = np.bincount(where, minlength=clients)
    order = np.lexsort((where, number[where], person))
    numbers, first = np.unique(person[order], return_index=True)
    home = where[order][first]
    at_each = np.cumsum(np.bincount(home, minlength=clients))[:-1]
    return np.split(numbers[np.argsort(home, kind="stable")], at_each)


def warn_of_held_out(persons: Persons, training: Rows, held_out: Rows | None) -> None:
    """Warns of persons who have records that are trained on, and others that are held out.

    Warns:
      UserWarning: with how many.
    """
    if held_out is None:
        return
    trained = persons.of_rows(training.rows)
    if both := len(np.intersect1d(trained, persons.of_rows(held_out.rows))):
        warn_where_called(
            f"held_out: {both} of {len(trained)} persons who are trained on have held-out records, too. {_REMEDY}",
            __name__,
        )


def warn_of_tested(test: PyTree, federation: Any) -> None:
    """As `warn_of_held_out`, of test examples that have the column by which a federation knows its persons."""
    persons = federation.persons
    if persons is None or not isinstance(test, Mapping) or persons.column not in test:
        return
    theirs = {*ids_of(test[persons.column]).tolist()}
    each = [persons.of_rows(rows.rows) for rows in federation.rows_on_host]
    trained = np.unique(np.concatenate(each))
    if both := len(theirs & {*persons.ids[trained].tolist()}):
        warn_where_called(
            f"test: {both} of {len(trained)} persons who are trained on have test examples, too. {_REMEDY}",
            __name__,
        )
