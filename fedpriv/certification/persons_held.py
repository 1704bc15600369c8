"""What each person holds, where a federation says whose each record is: of whom a certificate is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.terminal_text import counted
from fedpriv.data.held_out import Rows


class Held(NamedTuple):
    """What a client holds of a person.

    Attributes:
      size: how many records the client holds; None: whatever it is.
      records: how many of them are the person's.
      which: the client's public class, of which different ones are drawn independently; "": all are alike.
    """

    size: int | None
    records: int
    which: str = ""


_MANY = 200  # patterns of clients with public sizes, of which each is certified


class PersonsHeld(NamedTuple):
    """What the persons of a federation hold: public, as whose each record is.

    Attributes:
      patterns: the different ones there are, of each client that holds something.
      share_clients: whether a client holds records of several persons.
      have_several: whether a record may be several persons'.
      bounded: whether what is kept of a person was bounded.
    """

    patterns: tuple[tuple[Held, ...], ...]
    share_clients: bool
    have_several: bool
    bounded: bool

    @property
    def in_classes(self) -> bool:
        """Whether clients are told apart by their public classes."""
        return any(held.which for one in self.patterns for held in one)

    def without_classes(self) -> PersonsHeld:
        """All clients alike."""
        each = {tuple(held._replace(which="") for held in one) for one in self.patterns}
        return self._replace(patterns=tuple(sorted(each)))

    def costliest(self, of_records: bool, by_size: bool) -> tuple[tuple[Held, ...], ...]:
        """The patterns that no other one covers: of most clients of each class, where whole clients are protected.

        One covers another that it holds as many records as, or more, of clients of the same sizes: what hides the
        larger hides every change of fewer of its records, at every delta. Of two others, which costs more depends on
        delta. Where there are more than `_MANY`, all clients count as the smallest that could hold as many records of
        the person, whose records are drawn most often: of stochastically fewer records the curves are smaller.

        Args:
          of_records: whether records are protected.
          by_size: whether certificates depend on how many records a client holds.
        """
        each = self.patterns
        if not of_records and not self.in_classes:
            return (max(each, key=len),)
        if not of_records:
            each = tuple(tuple(h._replace(size=None, records=1) for h in one) for one in each)
        least = min((held.size or 0 for one in each for held in one), default=0)

        def counted(held: Held) -> Held:
            return held._replace(size=max(least, held.records) if by_size else None)

        if not by_size or len(each) > _MANY:
            each = tuple(tuple(map(counted, one)) for one in each)
        known = sorted({tuple(sorted(one, key=_order)) for one in each}, key=_total, reverse=True)
        kept: list[tuple[Held, ...]] = []
        for one in known:
            if not any(_covers(other, one) for other in kept):
                kept.append(one)
        return tuple(kept)

    @property
    def fill_clients(self) -> bool:
        """Whether all records of some client are one person's: without them it would be there, and empty."""
        return any(held.size == held.records for one in self.patterns for held in one)

    @property
    def most_clients(self) -> int:
        """That hold something of one person."""
        return max(map(len, self.patterns))

    @property
    def most_records(self) -> int:
        """Of one person."""
        return max(map(_total, self.patterns))


def _order(held: Held) -> tuple[int, str, int]:
    return (held.size or 0, held.which, -held.records)


def _total(held: tuple[Held, ...]) -> int:
    return sum(each.records for each in held)


def _covers(larger: tuple[Held, ...], smaller: tuple[Held, ...]) -> bool:
    """Whether each client of one is one of the other, with as many records of the person; both in order."""
    alike: dict[Any, list[int]] = {}
    for size, records, which in larger:
        alike.setdefault((size, which), []).append(records)
    at: Counter = Counter()
    for size, records, which in smaller:
        kind = size, which
        i = at[kind]
        at[kind] += 1
        if i >= len(alike.get(kind, ())) or alike[kind][i] < records:
            return False
    return True


def persons_of_seeds(each: Sequence[PersonsHeld | None]) -> PersonsHeld | None:
    """What persons hold in any of several seeds' federations, whose partitions may be others.

    Args:
      each: of these federations, one or more; None: it has no persons.

    Raises:
      ValueError: some have persons, others not.
    """
    first, *others = each
    known = [one for one in each if one is not None]
    remedy = (
        "some seeds' federations say whose each record is, others do not; give all the same persons"
    )
    require(len(known) in (0, len(each)), "federation", f"{len(known)} of {len(each)}", remedy)
    if first is None or all(other == first for other in others):
        return first
    patterns = {pattern for one in known for pattern in one.patterns}
    return PersonsHeld(
        tuple(sorted(patterns)),
        any(one.share_clients for one in known),
        any(one.have_several for one in known),
        any(one.bounded for one in known),
    )


def persons_held(federation: Any, classes: Sequence[str] = ()) -> PersonsHeld | None:
    """What the persons of a federation hold, with any seed's partition; None where it has none.

    Args:
      classes: of each client, as `Held.which`; (): all are alike.
    """
    persons = getattr(federation, "persons", None)
    if persons is None:
        return None
    patterns: set[tuple[Held, ...]] = set()
    shared = persons.have_several
    for rows in federation.rows_on_host:
        holdings = persons.holdings(rows)
        shared = shared or len(holdings) > len(np.unique(holdings[:, 1]))
        patterns |= _patterns(holdings, rows, classes or ("",) * len(rows.size))
    bounded = persons.per_person is not None
    return PersonsHeld(tuple(sorted(patterns)), shared, persons.have_several, bounded)


def _patterns(holdings: np.ndarray, rows: Rows, classes: Sequence[str]) -> set[tuple[Held, ...]]:
    """The different ones: of millions of persons a few, as a rule."""
    person, client, records = holdings.T
    names, which = np.unique(np.asarray(classes), return_inverse=True)
    columns = np.stack([rows.size[client], records, which[client]], axis=1)
    kinds, code = np.unique(columns, axis=0, return_inverse=True)
    order = np.lexsort((code.ravel(), person))
    _, begin, count = np.unique(person[order], return_index=True, return_counts=True)
    table = np.full((len(count), int(count.max())), -1)
    place = np.arange(len(order)) - np.repeat(begin, count)
    table[np.repeat(np.arange(len(count)), count), place] = code.ravel()[order]
    held = [Held(size, n, str(names[i])) for size, n, i in kinds.tolist()]
    return {tuple(held[i] for i in one if i >= 0) for one in np.unique(table, axis=0)}


def also_held_out(federation: Any, unit: str) -> str:
    """How many units have held-out records beside those that are trained on, in words; "" where none has.

    Then it is known that held-out records belong to the unit. Those of a single record's client do not.

    Args:
      unit: "client" or "record", which the algorithm protects.
    """
    persons = getattr(federation, "persons", None)
    if federation.held_out_rows is None or (persons is None and unit == "record"):
        return ""
    trained = federation.rows_on_host
    held = federation.held_out.rows_on_host
    if persons is None:
        what, every = "clients", federation.num_clients
        both = max(int((out.size > 0).sum()) for out in held)
    else:
        whose = [persons.of_rows(rows.rows) for rows in trained]
        what, every = "persons", max(map(len, whose))
        outs = zip(whose, held, strict=True)
        both = max(len(np.intersect1d(own, persons.of_rows(out.rows))) for own, out in outs)
    if not both:
        return ""
    return (
        f"{both} of {every} {what} that are trained on have held-out records, too, and what is measured on these is "
        "not covered; no other test example, and no public one, belongs to the unit"
    )


def assumed_of_persons(persons: PersonsHeld | None, unit: str) -> tuple[str, ...]:
    """What has to hold of persons, in words.

    Args:
      unit: "client" or "record", which the algorithm protects.
    """
    if persons is None:
        return ()
    kept = (
        ", and which of them are kept, and whether clients or records are counted, is public, drawn without looking "
        "at them, and for all others the same without the person"
        if persons.bounded
        else ""
    )
    most = f"at most {counted(persons.most_clients, 'client')}"
    if unit == "record" or persons.share_clients:
        clients = counted(persons.most_clients, "client")
        most = f"at most {counted(persons.most_records, 'record')}, at up to {clients},"
    texts = [f"whose each client and record is, is public and right: {most} of a person{kept}"]
    if unit == "record" and persons.fill_clients:
        texts.append(
            "clients all of whose records are one person's stay without them: that they are there is not hidden"
        )
    if persons.have_several:
        texts.append(
            "a record may be several persons': neighbours differ in what a person's records contribute, which is zero "
            "for one; who owns what stays, as to remove a person would change whose records others keep"
        )
    elif persons.share_clients and unit == "client":
        texts.append(
            "clients hold records of several persons: where a person is replaced they stay, and send something else"
        )
    return tuple(texts)
