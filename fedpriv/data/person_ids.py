"""Persons as they are given: by a column, by client or by record, of one owner or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.complaints import require
from fedpriv.core.types import PyTree
from fedpriv.data.client_ids import are_missing, numbered
from fedpriv.data.held_out import Rows
from fedpriv.data.validation import on_host

Person: TypeAlias = ArrayLike | Sequence[Any]
"""An id for each client, or for each record; or a list of ids for each record, or ids [records, m] filled with -1."""

DOCUMENT = "document"
"""The leaf that `fp.datasets.from_tokens` adds: of which text a row is."""

_OBJECTS = np.dtype(object)
_REMEDY = "give the name of a leaf, or one id for each client or each record"


def column_of(examples: PyTree, person: Any, clients: Any) -> tuple[PyTree, Any]:
    """(The examples without the leaf that `person` names, that leaf); both as they are where it names none.

    Raises:
      ValueError: there is no such leaf.
    """
    if not isinstance(person, str):
        return examples, person
    if hasattr(examples, "columns") and not isinstance(examples, Mapping):
        names = getattr(examples, "column_names", examples.columns)
        examples = {str(name): examples[name] for name in names}
    if not isinstance(examples, Mapping) or person not in examples:
        names = ", ".join(map(str, examples)) if isinstance(examples, Mapping) else "no names"
        raise ValueError(
            f"person: there is no leaf {person!r} in examples, only {names}; give one of these"
        )
    others = {name: leaf for name, leaf in examples.items() if name != person or name == clients}
    return others, examples[person]


def owners_of(
    person: Person, training: Rows, held_out: Rows | None, public: np.ndarray, total: int
) -> tuple[np.ndarray, np.ndarray]:
    """(i32[total, m], the numbers of each row's persons, filled with -1; their ids, by number).

    Raises:
      ValueError: a client or record without a person; not one for each client or each record; a person some of whose
        records are public.
    """
    ids, where = _by_row(_Ids.of(person), training, held_out, public, total)
    number, names = numbered("person", ids, where)
    return _table(number, where, total), names


def ids_of(person: Person) -> np.ndarray:
    """[n], all ids that are given, without those that are missing."""
    return _Ids.of(person).ids


class _Ids(NamedTuple):
    """Ids as they were given: ids[i] is one of those of client or record where[i], of `number`; where is sorted."""

    ids: np.ndarray
    where: np.ndarray
    number: int

    @classmethod
    def of(cls, person: Person) -> _Ids:
        """Without those that are missing: None, NaN, an empty string, a negative number."""
        if getattr(person, "dtype", _OBJECTS) == _OBJECTS and hasattr(person, "__iter__"):
            each = list(person)  # type: ignore[arg-type]
            if any(isinstance(one, list | set | np.ndarray) for one in each):
                known = all(isinstance(one, list | set | np.ndarray) for one in each)
                require(known, "person", person, "give a list of ids for every record")
                parts = [list(one) for one in each]
                flat = [one for part in parts for one in part]
                ids = np.array(flat, object) if flat and isinstance(flat[0], str) else flat
                where = np.repeat(np.arange(len(each)), [len(part) for part in parts])
                return cls._present(on_host("person", ids), where, len(each))
        array = on_host("person", person)
        require(array.ndim in (1, 2), "person", person, _REMEDY)
        where = np.arange(len(array))
        if array.ndim == 2:
            where = np.repeat(where, array.shape[1])
        return cls._present(array.ravel(), where, len(array))

    @classmethod
    def _present(cls, ids: np.ndarray, where: np.ndarray, number: int) -> _Ids:
        gone = are_missing(ids)
        if ids.dtype.kind == "i":
            gone |= ids < 0
        return cls(ids[~gone], where[~gone], number)


def _by_row(
    given: _Ids, training: Rows, held_out: Rows | None, public: np.ndarray, total: int
) -> tuple[np.ndarray, np.ndarray]:
    """(ids, rows whose they are, of all that are trained on or held out), checked."""
    parts = [training] if held_out is None else [training, held_out]
    rows = np.concatenate([part.rows for part in parts])
    client = np.concatenate([np.repeat(np.arange(len(part.size)), part.size) for part in parts])
    clients = len(training.size)
    alike = len(rows) == clients and bool((rows == client).all())
    fits = given.number in (clients, total) and (clients != total or alike)
    what = f"{given.number} ids for {clients} clients and {total} records"
    if not fits:
        raise ValueError(f"person: {what}; {_REMEDY}")
    if given.number == total:
        _check_public(given, rows, public)
        return _each("record", given, rows)
    ids, where = _each("client", given, np.arange(clients))
    once = len(where) == clients
    if not once:
        raise ValueError("person: several ids of one client; give an id for each record")
    return ids[client], rows


def _each(what: str, given: _Ids, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the clients, or rows, `of`, sorted."""
    used = np.zeros(given.number, bool)
    used[of] = True
    has = np.zeros(given.number, bool)
    has[given.where] = True
    if (used & ~has).any():
        i = int(np.argmax(used & ~has))
        raise ValueError(
            f"person: {what} {i} is nobody's; give each {what} a person, or leave it out"
        )
    mine = used[given.where]
    return given.ids[mine], given.where[mine]


def _check_public(given: _Ids, rows: np.ndarray, public: np.ndarray) -> None:
    """Raises ValueError: a person has public records beside its own."""
    if not len(public):
        return
    own = np.isin(given.where, rows)
    shown = np.isin(given.where, public)
    twice = shown & np.isin(given.ids.astype(str), given.ids[own].astype(str))
    if twice.any():
        row = int(given.where[np.argmax(twice)])
        raise ValueError(
            f"person: row {row} is public, and of a person with other records that are to be protected; make none of a "
            "person's records public, or all"
        )


def _table(number: np.ndarray, where: np.ndarray, total: int) -> np.ndarray:
    """i32[total, m], the different numbers of each row, filled with -1."""
    persons = int(number.max(initial=0)) + 1
    row, person = np.divmod(np.unique(where.astype(np.int64) * persons + number), persons)
    place = np.arange(len(row)) - np.searchsorted(row, row)
    owners = np.full((total, int(place.max(initial=0)) + 1), -1, np.int32)
    owners[row, place] = person
    return owners
