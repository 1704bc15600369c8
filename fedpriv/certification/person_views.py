"""What each view sees of a person: rows of a single client, or of a single record, as those of several."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from fedpriv.certification.persons_held import Held
from fedpriv.core.complaints import require
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.noisy_integers import NoisyIntegers
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import AcrossGroups, Neighbour, Sampling, Why
from fedpriv.privacy.sampling.kinds_of_units import changed

_THEY_STAY = Why("clients hold records of several persons: they stay, and send something else")


def of_clients_of_a_person(
    of_client: Callable[[Held], Sequence[Row]], held: Sequence[Held], share: bool, grouped: bool
) -> list[Row]:
    """What is seen of a person with several clients, from what is seen of one of them.

    Formal guarantees: see the cases of each sampling, of several units. Clients whose turns are in different rounds are
    seen in different sums, with noise of their own: what is seen of all composes. Those of different groups are in one
    sum, see `AcrossGroups`.

    *Where all are there*, what a client changes in the whole run has a norm of at most 1 / multiplier, in units of the
    noise; so all of a person's together change `clients` times that at most, whenever they take part. Where each
    message has Gaussian or integer noise of its own, and that alone is counted, what they change is orthogonal: one
    longer message.

    Args:
      of_client: the rows of a client.
      share: whether the clients hold records of others, too. Then they stay, and send something else: the sum moves by
        2 C for each.
      grouped: whether classes are groups, and not turns.

    Raises:
      ValueError: sums of integers by turns; several steps of Laplace noise, or private means of two kinds, by one draw
        of clients; groups of which some take turns.
    """
    classes = Counter(one.which for one in held)
    views = [
        [(row, clients) for row in of_client(Held(None, 1, which))]
        for which, clients in classes.items()
    ]
    if not grouped or len(classes) == 1:
        each = [one for of_class in views for one in of_class]
        by_turns = not grouped and "" not in classes
        return [_of_all(row, clients, share, by_turns) for row, clients in each]
    alike = len({len(of_class) for of_class in views}) == 1
    remedy = (
        "noise changes over rounds that are others for each of a person's clients; draw them alike"
    )
    require(alike, "sampler", list(classes), remedy)
    return [_of_groups(of_view, share) for of_view in zip(*views, strict=True)]


def _of_all(row: Row, clients: int, share: bool, by_turns: bool) -> Row:
    if row.beside and clients > 1:
        raise ValueError(
            "round: private means of two kinds by one draw of clients; keep one client of each person (per_person=1)"
        )
    return row.each(lambda one: _of_clients(one, clients, share, by_turns))


def _of_groups(of_view: Sequence[tuple[Row, int]], share: bool) -> Row:
    """Of clients in several groups, with a row for a client of each."""
    row, _ = of_view[0]
    row = replace(row, unit="person")
    if row.noisy.far in (0, math.inf):
        return row
    plain = all(not one.beside and one.repeated.steps == 1 for one, _ in of_view)
    turns = "".join(one.repeated.schedule for one, _ in of_view)
    remedy = "a person's clients are in several of them; keep one client of each (per_person=1)"
    require(plain and not turns, "groups", [one.drawn.by for one, _ in of_view], remedy)
    apart = row.adder == "own" and row.noisy.kind != "laplace"
    known = any(one.repeated.among is not None or one.drawn.known for one, _ in of_view)
    parts = tuple(
        (one.repeated.among or one.drawn.by, n, one.noisy.far / row.noisy.far) for one, n in of_view
    )
    drawn = row.drawn._replace(by=AcrossGroups(parts, apart), known=known, apart=apart)
    if share:
        drawn = _of_clients_that_stay(drawn)
    repeated = row.repeated._replace(among=None)
    return replace(row, drawn=drawn, repeated=repeated)


def _of_clients(row: Row, clients: int, share: bool, by_turns: bool) -> Row:
    row = replace(row, unit="person")
    if share:
        row = replace(row, drawn=_of_clients_that_stay(row.drawn))
    if clients == 1 or row.noisy.far in (0, math.inf):
        return row
    drawn, among = row.drawn, row.repeated.among
    of_integers = isinstance(row.noisy, NoisyIntegers)
    apart = row.adder == "own" and row.noisy.kind != "laplace"
    several = changed(drawn.who, units=clients, lost=drawn.who.lost and not apart)
    together = drawn._replace(who=several, apart=apart)
    schedule = row.repeated.schedule
    everyone = drawn.by.everyone and (among is None or among.everyone)
    # Of integers it is not proved that costs rise as they do.
    if schedule and (of_integers or not (everyone or by_turns)):
        what = "sums of integers" if of_integers else "secret draws"
        raise ValueError(
            f"sampler: {schedule}; {what} by turns are not certified for a person with {clients} clients; draw by "
            "fp.poisson, fp.fixed_size or fp.everyone, or keep one client of each (per_person=1)"
        )
    if among is None or among.everyone:
        return replace(row, drawn=together)
    return _of_known_clients(row, among, together)


def _of_known_clients(row: Row, among: Sampling, together: Drawn) -> Row:
    """Of clients of whom it is known which take part: all steps of one draw are one release."""
    steps = row.repeated.steps
    if steps > 1 and row.noisy.kind != "gaussian":
        raise ValueError(
            f"round: {steps} steps of {row.noisy.kind} noise by one draw of clients; give Gaussian noise, or keep one "
            "client of each person (per_person=1)"
        )
    return replace(
        row,
        noisy=row.noisy.moved(math.sqrt(steps)),
        drawn=together._replace(by=among, known=True),
        repeated=row.repeated._replace(steps=1, among=None),
    )


def _of_clients_that_stay(drawn: Drawn) -> Drawn:
    """Of clients that are there with either neighbour, and send something else."""
    every: tuple[Neighbour, ...] = ("removed", "emptied")
    closed = tuple((each, _THEY_STAY) for each in every)
    return drawn._replace(who=changed(drawn.who, stays=True), closed=closed, holds_others=True)


def of_records_of_a_person(
    of_client: Callable[[Held], Sequence[Row]], held: Sequence[Held]
) -> list[Row]:
    """What is seen of a person, in every client that holds records of it, from what is seen of one record there.

    Formal guarantees: see the cases of each sampling. What is seen of several clients composes, and the views know when
    which take part: independently of one another, so that each has a row of its own, or in a uniform subset, so that
    any of them are as likely as any other so many. Of a cohort that is cut fewer of them take part. Where the noise of
    all members counts in one sum, all of the person's records move that sum: see `record_views`, by which they are then
    drawn independently, as if one client held them all.

    Args:
      of_client: the rows of a record of such a client.

    Raises:
      ValueError: clients that take part in another way.
    """
    every = [
        [
            replace(row, clients=clients).each(partial(_with_records, one.records))
            for row in of_client(one)
        ]
        for one, clients in Counter(held).items()
    ]
    classes = [one.which for one in Counter(held)]
    alike = len({len(rows) for rows in every}) == 1
    remedy = (
        "noise changes over rounds that are others for each of a person's clients; draw them alike"
    )
    require(alike, "sampler", classes, remedy)
    found: list[Row] = []
    for of_view in zip(*every, strict=True):
        if len(held) > 1 and of_view[0].adder == "own_summed":
            of_all = partial(_with_records, sum(one.records for one in held))
            found.append(replace(of_view[0].each(of_all), clients=1))
            continue
        for which in dict.fromkeys(classes):
            own = [row for row, name in zip(of_view, classes, strict=True) if name == which]
            found += _of_all_clients(own)
    return found


def _of_all_clients(of_view: Sequence[Row]) -> list[Row]:
    """Rows of one view, of each kind of client of one class that holds records of the person."""
    first, clients = of_view[0], sum(row.clients for row in of_view)
    among = first.repeated.among
    independent = among is None or among.independent or first.noisy.far in (0, math.inf)
    if clients == 1 or independent:
        return [replace(row, clients=1) for row in of_view for _ in range(row.clients)]
    if among is None or not among.uniform:
        raise ValueError(
            f"sampler: {among!r} draws the {clients} clients with a person's records depending on one another, so "
            "nothing is certified; draw them by fp.poisson, fp.fixed_size or fp.everyone, or keep a person's records "
            "at one client"
        )
    return [replace(first, others=tuple(of_view[1:]))]


def _with_records(records: int, row: Row) -> Row:
    drawn = row.drawn._replace(who=changed(row.drawn.who, units=records))
    return replace(row, unit="person", drawn=drawn)
