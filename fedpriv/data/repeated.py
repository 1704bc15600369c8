"""Records that are there more than once: an epsilon of a record is not one of its copies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.callers import warn_where_called
from fedpriv.core.types import PyTree
from fedpriv.data.held_out import Rows
from fedpriv.data.person_ids import DOCUMENT

LOOKED_AT = 2**30
"""Bytes of records at most; of more, a random sample."""
_AT_ONCE = 2**22  # bytes, copied to be hashed
_COLUMNS, _ROWS = 1024, 1000  # for the estimate of chance

_REMEDY = "An epsilon covers one copy of a record, or those of one client: remove copies that are of the same person"


class Repeats(NamedTuple):
    """How many records are there more than once.

    Attributes:
      copies: of the records, beyond the first of each.
      elsewhere: of these, held by another client than the first.
      known: bool[others], which of the other records are equal to one of the records.
    """

    copies: int
    elsewhere: int
    known: np.ndarray


def warn_of_repeats(
    examples: PyTree, clients: Rows, public: np.ndarray, held_out: Rows | None
) -> None:
    """Warns of records that are trained on and repeat another, and of public and held-out ones that are equal to one.

    It reads all of them once, or a random sample of those that are larger than `LOOKED_AT`, and copies a few MiB at a
    time. Repeats that chance explains, as of a few columns of few values, are not counted; so copies of a single column
    are not found, nor records that are all equal, and columns that say the same twice may be counted though they repeat
    by chance. A leaf that only numbers the records hides no copies: see `_compared`.

    Args:
      examples: leaves [total, ...], on the host or on the device.
      clients, held_out: the rows that clients train on, and those that they are evaluated on.
      public: i64[p], the server's rows.

    Warns:
      UserWarning: once, with the counts.
    """
    rows = clients.rows
    every = np.concatenate([rows, public, rows[:0] if held_out is None else held_out.rows])
    for leaves in _compared(examples, every):
        if _warn_of_equal(leaves, clients, public, every):
            break


def _warn_of_equal(
    leaves: dict[Any, Any], clients: Rows, public: np.ndarray, every: np.ndarray
) -> bool:
    """Whether it warned, of records that are equal in these leaves."""
    size, rows = clients
    owners = np.repeat(np.arange(len(size)), size)
    arrays = [*leaves.values()]
    types = [_type(leaf) for leaf in arrays]
    part = _looked_at(len(every), _width(arrays, types))
    here = _hashes(arrays, types, every[part])
    mine = part < len(rows)
    found = _repeats(here[mine], owners[part[mine]], here[~mine])
    count = found.copies + int(found.known.sum())
    pairs = len(here) * (len(here) - 1) / 2
    if not _beyond_chance(arrays, every[part], pairs, count):
        return False
    is_public = part[~mine] < len(rows) + len(public)
    said = []
    if found.copies:
        beside = f" ({found.elsewhere} at another client)" if found.elsewhere else ""
        said.append(f"{found.copies} of {mine.sum()} training records repeat another{beside}")
    for kind, which in (("public", is_public), ("held-out", ~is_public)):
        if known := int(found.known[which].sum()):
            said.append(f"{known} of {which.sum()} {kind} records are equal to a training record")
    _warn("examples", said, len(part), len(every))
    return True


def warn_of_trained(test: PyTree, trained: Iterable[tuple[PyTree, np.ndarray]]) -> None:
    """As `warn_of_repeats`, of test records that are equal to a record that is trained on.

    Args:
      test: leaves [n, ...]; those with the name and the shape of one of the examples are compared.
      trained: examples and the rows of them that are trained on, of each federation; several may share their examples.
    """
    rows_of: dict[int, tuple[PyTree, list[np.ndarray]]] = {}
    for examples, rows in trained:
        leaf = jax.tree.leaves(examples)[0]
        rows_of.setdefault(id(leaf), (examples, []))[1].append(rows)
    for examples, parts in rows_of.values():
        held = np.flatnonzero(np.bincount(np.concatenate(parts)))
        for leaves in _compared(examples, held):
            if _warn_of_known(test, leaves, held):
                break


def _warn_of_known(test: PyTree, ours: dict[Any, Any], rows: np.ndarray) -> bool:
    """Whether it warned, of test records that are equal to one of the rows in these leaves."""
    pairs = [
        (leaf, ours[path])
        for path, leaf in jax.tree_util.tree_leaves_with_path(test)
        if path in ours and np.shape(leaf)[1:] == ours[path].shape[1:]
    ]
    if not pairs:
        return False
    tested, leaves = [np.asarray(leaf) for leaf, _ in pairs], [leaf for _, leaf in pairs]
    types = [
        jnp.promote_types(_type(one), _type(other))
        for one, other in zip(tested, leaves, strict=True)
    ]
    width = _width(leaves, types)
    part, of_test = _looked_at(len(rows), width), _looked_at(len(tested[0]), width)
    trained = _hashes(leaves, types, rows[part])
    found = _repeats(trained, np.zeros(len(trained)), _hashes(tested, types, of_test))
    count = int(found.known.sum())
    if not _beyond_chance(leaves, rows[part], len(part) * len(of_test), count):
        return False
    said = f"{count} of {len(of_test)} test records are equal to a training record"
    _warn("test", [said], len(part) + len(of_test), len(rows) + len(tested[0]))
    return True


def _compared(examples: PyTree, rows: np.ndarray) -> Iterator[dict[Any, Any]]:
    """The leaves, by path, in which records are compared: all but ids, and if chance explains what that finds, all.

    Ids are a text's number, as `from_tokens` gives it, and a leaf of one whole number for each record that no two of
    these rows share. Copies may differ in them; test records that have the same ids are copies beyond chance.
    """
    every = {
        path: leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(examples)
        if _has_numbers(leaf)
    }
    others = {path: leaf for path, leaf in every.items() if not _are_ids(_name(path), leaf, rows)}
    yield others
    if len(others) < len(every):
        yield every


def _name(path: Any) -> str:
    return str(getattr(path[-1], "key", "")) if path else ""


def _are_ids(name: str, leaf: Any, rows: np.ndarray) -> bool:
    kind = _type(leaf)
    if kind.kind not in "iu" or math.prod(leaf.shape[1:]) != 1:
        return False
    some, every = rows[:_ROWS], rows  # most leaves have few values, and are done with after some
    return name == DOCUMENT or all(
        len(np.unique(_of_rows(leaf, part, kind))) == len(part) for part in (some, every)
    )


def _warn(name: str, said: list[str], looked_at: int, total: int) -> None:
    sample = f"in a random sample of {looked_at} of {total} records, " if looked_at < total else ""
    warn_where_called(f"{name}: {sample}{'; '.join(said)}. {_REMEDY}", __name__)


def _repeats(hashes: np.ndarray, owners: np.ndarray, others: np.ndarray) -> Repeats:
    """Of records with these hashes and owners, [n] both, and of others."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    place = np.searchsorted(ordered, others)
    known = ordered.take(place, mode="clip") == others if len(ordered) else place < 0
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    first = np.searchsorted(ordered, ordered[again])  # of its equals
    elsewhere = owners[order[again]] != owners[order[first]]
    return Repeats(len(again), int(elsewhere.sum()), known)


def _looked_at(total: int, width: int) -> np.ndarray:
    """Which of the records, in their order: all, or a random sample if they are larger than `LOOKED_AT`."""
    most = max(_ROWS, LOOKED_AT // max(width, 1))
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(0).choice(total, most, replace=False, shuffle=False))


def _width(leaves: list[Any], types: list[Any]) -> int:
    """Bytes of a record."""
    return sum(
        int(np.prod(leaf.shape[1:])) * kind.itemsize
        for leaf, kind in zip(leaves, types, strict=True)
    )


def _hashes(leaves: list[Any], types: list[Any], rows: np.ndarray) -> np.ndarray:
    """i64[n], equal for equal records, and for others with a chance of 2^-64.

    Args:
      leaves: [total, ...] each.
      types: as which each is compared.
      rows: i64[n].
    """
    if not (width := _width(leaves, types)):
        return np.arange(len(rows))
    found = np.empty(len(rows), np.int64)
    for some in _pieces(len(rows), max(1, _AT_ONCE // width)):
        values = [
            _of_rows(leaf, rows[some], kind) for leaf, kind in zip(leaves, types, strict=True)
        ]
        as_bytes = np.concatenate([np.ascontiguousarray(v).view(np.uint8) for v in values], axis=1)
        records = as_bytes.view(f"V{width}")[:, 0].tolist()
        found[some] = np.fromiter(map(hash, records), np.int64, len(records))
    return found


def _has_numbers(leaf: Any) -> bool:
    return not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)  # random keys


def _type(leaf: Any) -> Any:
    """As which it is compared: in 32 bits, as it is stored; a number in an array of objects by its text."""
    return np.dtype(np.int64 if leaf.dtype == object else jax.dtypes.canonicalize_dtype(leaf.dtype))


def _pieces(total: int, at_once: int) -> Iterator[slice]:
    return (slice(begin, begin + at_once) for begin in range(0, total, at_once))


def _of_rows(leaf: Any, rows: np.ndarray, kind: Any) -> np.ndarray:
    """[n, values] of one type."""
    if isinstance(leaf, jax.Array) and all(d.platform == "cpu" for d in leaf.devices()):
        leaf = np.asarray(leaf)  # no copy
    values = _fetched(leaf, rows) if isinstance(leaf, jax.Array) else np.asarray(leaf[rows])
    if values.dtype == object:
        texts = map(str, values.ravel())
        values = np.fromiter(map(hash, texts), np.int64, values.size).reshape(values.shape)
    with np.errstate(all="ignore"):  # what does not fit is refused where it is read
        return values.astype(kind, copy=False).reshape(len(rows), -1)


def _fetched(leaf: jax.Array, rows: np.ndarray) -> np.ndarray:
    """Rows of an array on a device, which always fetches as many, so that one program does."""
    at_once = max(_ROWS, _AT_ONCE // max(1, _width([leaf], [leaf.dtype])))
    padded = np.zeros(max(len(rows), min(at_once, len(leaf))), np.int32)
    padded[: len(rows)] = rows
    return np.asarray(leaf[padded])[: len(rows)]


def _beyond_chance(leaves: list[Any], rows: np.ndarray, pairs: float, repeats: int) -> bool:
    """Whether there are clearly more repeats than chance makes in columns that are independent.

    Chance makes as many as there are pairs, times the product, over columns, of the chance that two records agree in
    one: by a sample of records, and of columns where there are many.

    Args:
      pairs: how many were compared.
    """
    if not repeats:
        return False
    rng = np.random.default_rng(0)
    sample = np.sort(rng.choice(rows, min(len(rows), _ROWS), replace=False))
    log_chance = 0.0
    for leaf in leaves:
        values = _of_rows(leaf, sample, _type(leaf))
        if values.shape[1] > _COLUMNS:
            values = values[:, rng.choice(values.shape[1], _COLUMNS, replace=False)]
        log_chance += float(np.log(_agreeing(values)).sum())
    expected = pairs * np.exp(log_chance)
    return bool(repeats > 2 * expected + 10 * np.sqrt(expected))


def _agreeing(values: np.ndarray) -> np.ndarray:
    """f64[columns], the chance that two records agree in a column of values [records, columns], rounded up."""
    ordered = np.sort(values, axis=0)
    records = len(ordered)
    begins = np.ones(ordered.shape, bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    place = np.arange(records)[:, None]
    start = np.maximum.accumulate(np.where(begins, place, 0), axis=0)
    pairs = (place - start).sum(0)  # each with those before it that are equal
    return (pairs + 1) / (records * (records - 1) / 2 + 1)
