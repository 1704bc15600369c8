"""Rows drawn from a data set or from each client's, to be kept apart: at random, whole persons, or the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from fedpriv.core.arguments import CountOrZero, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.data.held_out_persons import homes, whose_rows
from fedpriv.data.moments import Moments
from fedpriv.data.partition_arguments import as_rows, check_generator
from fedpriv.data.person_ids import Person
from fedpriv.data.validation import array_of


def hold_out(
    rng: Generator,
    total_or_rows: CountOrZero | ArrayLike | Sequence[ArrayLike],
    count: CountOrZero | Rate,
    *,
    stratify: ArrayLike | None = None,
    person: Person | None = None,
    time: ArrayLike | None = None,
) -> tuple[Any, Any]:
    """Draws rows without replacement, for the server or for validation; from a partition, rows of each client.

    ::

        held_out, clients = hold_out(rng, clients, 0.2)
        federation = Federation.from_arrays(examples, clients, held_out=held_out)

    Args:
        total_or_rows: the number of examples; or [n], the row numbers to draw from; or [n] for each client.
        count: how many; or, as a float, which share, rounded, so that a client with few rows may give none.
        stratify: [N], the labels of all examples. As many rows as without it are held out of each client, and of each
            of its labels the same share, to within one row: largest remainders first, equal ones by lot. The only row
            of a label stays where most rows stay; then metrics such as recall may be undefined for that client.
        person: [N], whose each of all examples is, as ids; of several persons as in `Federation.from_arrays`. Whole
            persons are held out, wherever their rows are, and `count` is of persons. One at several clients counts at
            that with the fewest persons. Rows of persons some of whom are held out are in neither part.
        time: [N], when each of all examples was, as numbers or dates; or [N, 2], its first and its last moment. Each
            client's last rows are held out: at most `count`, as those that begin at one moment stay together. Rows that
            began before the first of these and had not ended by then are in neither part. Nothing is drawn.

    Returns:
        (i64[..], the rows held out; i64[..], the remaining rows), both in the given order; for a partition, two lists
        with an entry per client.

    Raises:
        ValueError: count outside [0, number of rows], or a share outside (0, 1]; a client left without a row; rows
            without a label, person or time; persons so few, or moments, that nothing is held out; more than one of
            `stratify`, `person` and `time`.
    """
    check_generator(rng)
    count = checked("count", count, CountOrZero | Rate)
    given = {"stratify": stratify, "person": person, "time": time}
    by = [name for name, value in given.items() if value is not None]
    if len(by) > 1:
        raise ValueError(f"{by[0]}: given with {by[1]}; give one of {', '.join(given)}")
    from_rows: Any = total_or_rows
    several = _is_partition(from_rows)
    if several:
        clients = [as_rows(f"total_or_rows[{i}]", rows) for i, rows in enumerate(from_rows)]
    else:
        clients = [as_rows("total_or_rows", from_rows)]
    if person is not None:
        parts = _whole_persons(rng, clients, count, person)
    elif time is not None:
        moments = Moments.of(time, clients)
        parts = [_last(rows, _number(count, len(rows)), moments) for rows in clients]
        remedy = "it holds out no row, as too many begin at one moment; hold out more, or give finer times"
        require(any(len(out) for out, _ in parts) or count == 0, "count", count, remedy)
    else:
        labels = None if stratify is None else array_of("stratify", stratify)
        numbers = [_number(count, len(rows)) for rows in clients]
        parts = [_drawn_out(rng, *each, labels) for each in zip(clients, numbers, strict=True)]
    if not several:
        return parts[0]
    for i, (rows, (_, rest)) in enumerate(zip(clients, parts, strict=True)):
        remedy = f"it leaves client {i} none of its {len(rows)} rows; hold out less, or leave this client out"
        require(len(rest) > 0, "count", count, remedy)
    return [out for out, _ in parts], [rest for _, rest in parts]


def _is_partition(rows: Any) -> bool:
    """Whether it is an array of rows for each client."""
    several = isinstance(rows, list | tuple) and len(rows) > 0
    return np.ndim(rows[0]) > 0 if several else getattr(rows, "ndim", 0) == 2


def _number(count: CountOrZero | Rate, total: int, what: str = "rows") -> int:
    """How many of so many are held out."""
    if isinstance(count, float):
        return int(count * total + 0.5)
    require(count <= total, "count", count, f"hold out at most the {total} {what}")
    return count


def _whole_persons(
    rng: Generator, clients: list[np.ndarray], count: CountOrZero | Rate, person: Person
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(those of persons that are drawn, the others) of each client, in the given order."""
    sizes = [len(rows) for rows in clients]
    owners = whose_rows(person, np.concatenate(clients))
    client = np.repeat(np.arange(len(sizes)), sizes)
    out = np.zeros(owners.max(initial=-1) + 2, bool)  # the last one is nobody
    for own in homes(owners, client, len(sizes)):
        what = "persons that count at each client" if len(sizes) > 1 else "persons"
        out[rng.choice(own, _number(count, len(own), what), replace=False)] = True
    remedy = (
        "it holds out nobody, as too few persons count at each client; hold out more, or some persons' rows before "
        "they are dealt to clients, by hold_out(rng, total, count, person=...)"
    )
    require(bool(out.any()) or count == 0, "count", count, remedy)
    none = owners < 0
    ends = np.cumsum(sizes)[:-1]
    held, kept = (np.split((of | none).all(1), ends) for of in (out[owners], ~out[owners]))
    every = zip(clients, held, kept, strict=True)
    return [(rows[of_held], rows[of_kept]) for rows, of_held, of_kept in every]


def _last(rows: np.ndarray, count: int, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """(the last ones, at most so many; those that ended before the first of these began), in the given order."""
    begin, end = moments.begin[rows], moments.end[rows]
    ordered = np.sort(begin)
    before = len(rows) - count
    if 0 < before < len(rows):  # as many as begin at this moment stay together
        before = int(np.searchsorted(ordered, ordered[before - 1], side="right"))
    if before >= len(rows):
        return rows[:0], rows
    first = ordered[before]
    return rows[begin >= first], rows[end < first]


def _drawn_out(
    rng: Generator, rows: np.ndarray, count: int, labels: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """(those that are drawn, the others), in the given order; of each label its share, where there are labels."""
    out = np.zeros(len(rows), bool)
    if labels is None:
        out[rng.choice(len(rows), count, replace=False)] = True
        return rows[out], rows[~out]
    fits = labels.ndim == 1 and np.max(rows, initial=-1) < len(labels)
    require(fits, "stratify", labels, "give the labels of all examples, [N], one for each row")
    _, of_row, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    for label, number in enumerate(_shared_out(rng, count, sizes)):
        out[rng.choice(np.flatnonzero(of_row == label), number, replace=False)] = True
    return rows[out], rows[~out]


def _shared_out(rng: Generator, count: int, sizes: np.ndarray) -> np.ndarray:
    """i64[labels] that sum to `count`, in proportion to sizes i64[labels], by largest remainder."""
    shares, remainder = np.divmod(count * sizes, max(1, sizes.sum()))
    lot = rng.permutation(len(sizes))
    most = lot[np.argsort(-remainder[lot], kind="stable")]
    shares[most[: count - shares.sum()]] += 1
    return shares
