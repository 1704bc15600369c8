"""Each row of the table of views: its certificate against the joint law of all that a view sees, which is explicit."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from table_rows import ROWS, made

from fedpriv.certification import (
    correlated_views,
    person_views,
    record_views,
    rows,
    traced_round,
    views,
)
from fedpriv.mechanisms.correlated import Participation
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.pairs.search import curves_of
from fedpriv.privacy import Certificate, certify_seen
from fedpriv.privacy import rows as privacy_rows
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling.grouped import Strata
from fedpriv.privacy.sampling.kinds_of_units import changed as changed_who
from fedpriv.proof import row as proof_row
from fedpriv.proof import views as proof_views
from fedpriv.proof.cases import Noisy, Pairs
from fedpriv.proof.drawn import Drawn as PlainDrawn
from fedpriv.proof.pairs import SEEN, times
from fedpriv.proof.verify import deltas

EPSILONS, DELTA = (0.1, 0.5, 1.0, 2.0), 1e-3
TOLERANCE = 5e-6
"""Relative, of quadrature."""
EACH = [(name, view) for name, row in ROWS.items() for view in row.views]


def certified(name: str, view: Any) -> Certificate:
    row, found = ROWS[name], made(name)
    if callable(found):
        return certify_seen([found(view)], DELTA, view)
    kind = found.kinds[0]  # of groups the one that counts most
    return found.certify(row.rounds, DELTA, view=view, kind=kind, **row.options)


@cache
def proved(pair: Any) -> np.ndarray:
    """The least delta at each epsilon that anything shows."""
    if pair == SEEN:
        return np.ones(len(EPSILONS))
    curves = curves_of(pair, DELTA, 1e-14)
    return np.min([deltas(pair, np.array(EPSILONS), one.witness) for one in curves], axis=0)


def compared(name: str, view: str) -> str:
    """Whether the certificate is below the explicit law, or above it by more than is known; else nothing."""
    row, found = ROWS[name], certified(name, view)
    (composition,) = found.compositions
    bound = np.min([proved(p) for p in (composition.pair, *composition.others)], axis=0)
    every = [row.divergence(*both, EPSILONS) for both in row.laws(view, found.relation)]
    explicit = np.max(every, axis=0)
    if np.any(bound < explicit * (1 - TOLERANCE)):
        return "below"
    return "above" if np.any(bound > explicit * (1 + row.loose.get(view, TOLERANCE))) else ""


@pytest.mark.parametrize(("name", "view"), EACH)
def test_a_certificate_is_the_explicit_law_or_bounds_it(name, view):
    assert compared(name, view) == ""


def replaced(name: str, value: Any, place: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A fault: something has this value, or does this."""
    return lambda monkeypatch: monkeypatch.setattr(place, name, value, raising=False)


def changed(name: str, change: Callable[[Any], Any], place: Any) -> Any:
    """A fault: something returns what `change` makes of it."""
    before = getattr(place, name)
    return replaced(name, lambda *args, **kwargs: change(before(*args, **kwargs)), place)


def given(name: str, place: Any, **others: Any) -> Any:
    """A fault: a function is given other arguments of these names."""
    before = getattr(place, name)
    of = inspect.signature(before)

    def other(*args: Any, **kwargs: Any) -> Any:
        bound = of.bind(*args, **kwargs)
        return before(**bound.arguments | others)

    return replaced(name, other, place)


def without_join(sums: Sequence[Any], *args: Any, **kwargs: Any) -> list[Row]:
    """Each sum of a cohort as if it had a draw of its own."""
    return [row for one in sums for row in proof_views.of_sums([one], *args, **kwargs)]


def loudest(multipliers: Any, power: int) -> float:
    """Of several sums one alone."""
    return max(m for m, _ in multipliers)


def server_as_sums(each: list[Row]) -> list[Row]:
    third, _, behind = each
    return [third, replace(third, view="server"), behind]


def in_steps_of_their_own(self: Drawn, noisy: Noisy, pairs: Any = Drawn.pairs) -> Pairs:
    """Each step as if it had its own draw of members."""
    found = pairs(self._replace(shared=1), noisy)
    return found.map(lambda pair: times(pair, self.shared))


def moved(self: Noisy, by: float, before: Any = Noisy.moved) -> Noisy:
    """A unit that is replaced moves a sum no further than one that is gone."""
    return self if by == 2 else before(self, by)


def honest_of_shares(row: Row, honest: float, before: Any = privacy_rows._counted) -> Row:
    """The noise of a mean counts whole, whoever tells it."""
    return row if row.adder == "own_summed" else before(row, honest)


def quieter(row: Row) -> Row:
    """As if a weight of 1 / 2 left noise of one's own as it is."""
    return replace(row, noisy=row.noisy.moved(0.5))


def of_one(drawn: Drawn) -> Drawn:
    return drawn._replace(who=changed_who(drawn.who, units=1))


def apart(drawn: Drawn) -> Drawn:
    return drawn._replace(apart=True)


ONCE = Participation(1, 1)
DROPS_BESIDE = changed(
    "of_records",
    lambda found: [replace(one, beside=()) for row in found for one in (row, *row.beside)],
    rows,
)
IN_ROUNDS = replaced(
    "repeated",
    lambda self, steps=1, among=None: Repeated(self.rounds * steps, 1, among),
    views.Cohorts,
)
ONE_STEP = replaced(
    "repeated", lambda self, steps=1, among=None: Repeated(self.rounds, 1, among), views.Cohorts
)
MUTANTS: dict[str, tuple[str, str, Any]] = {
    "a share is the whole noise": (
        "shares",
        "server",
        replaced("share", lambda self, members: self, Noisy),
    ),
    "honest is ignored": (
        "half are honest",
        "third_party",
        replaced("noise_left", lambda noisy, part, often: (noisy, ""), proof_row),
    ),
    "honest is ignored of own noise": (
        "mean of the cohort, half are honest",
        "server_secagg",
        replaced("_counted", honest_of_shares, privacy_rows),
    ),
    "a message has the noise of all": ("own", "server", changed("by_each", server_as_sums, views)),
    "a mean has the noise of all": (
        "mean of the cohort",
        "server",
        changed("by_each", server_as_sums, record_views),
    ),
    "the server's noise hides from it": (
        "lossy codec",
        "server_secagg",
        replaced("_why_the_server", lambda sums, narrow: "", views),
    ),
    "a server does not know the cohort": (
        "poisson",
        "server_secagg",
        replaced("is_told", property(lambda drawn: not drawn.by.secret), PlainDrawn),
    ),
    "replaced moves once": ("fixed size", "third_party", replaced("moved", moved, Noisy)),
    "replaced moves once, of two rounds": (
        "fixed size, twice",
        "third_party",
        replaced("moved", moved, Noisy),
    ),
    "noise of absent members counts": (
        "own, poisson",
        "server_secagg",
        changed("of", lambda cohorts: cohorts._replace(are_of_one_size=True), views.Cohorts),
    ),
    "places of one client count apart": (
        "with replacement",
        "third_party",
        changed("_as_known", lambda found: (apart(found[0]), found[1]), views),
    ),
    "memory is secret": (
        "clients remember",
        "third_party",
        given("of_clients", rows, remembers=False),
    ),
    "the forgotten join": ("two sums", "third_party", replaced("of_sums", without_join, rows)),
    "a forgotten sum": ("two sums", "server", replaced("together", loudest, proof_views)),
    "a join in the wrong norm": (
        "two sums, laplace",
        "server_secagg",
        replaced(
            "together", lambda each, power, join=proof_views.together: join(each, 2), proof_views
        ),
    ),
    "lost shares are there": (
        "lost shares",
        "third_party",
        replaced("_who_stays", lambda drawn, sums, along: (drawn, False), views),
    ),
    "replaced moves once, of those who stay": (
        "lost shares, one",
        "third_party",
        replaced("moved", moved, Noisy),
    ),
    "steps draw members anew": (
        "lost shares, two steps",
        "third_party",
        replaced("pairs", in_steps_of_their_own, Drawn),
    ),
    "a person is one client": (
        "one person",
        "server",
        given("_of_clients", person_views, clients=1),
    ),
    "a person is one client, drawn": (
        "one person, poisson",
        "third_party",
        given("_of_clients", person_views, clients=1),
    ),
    "clients of several go": (
        "clients of several",
        "server",
        given("of_clients_of_a_person", traced_round, share=False),
    ),
    "weights do not count": (
        "weights",
        "third_party",
        replaced("of_group", lambda self, name: (dict(self.parts)[name], 1.0), Strata),
    ),
    "own noise is not weighed": (
        "weights, own",
        "server",
        changed("of_clients", lambda found: [quieter(row) for row in found], rows),
    ),
    "one step of two": ("two means", "server", ONE_STEP),
    "steps draw clients anew": ("two means of some", "third_party", IN_ROUNDS),
    "kinds of means draw clients anew": ("two kinds of means", "third_party", DROPS_BESIDE),
    "a batch is one record": (
        "means of whole clients",
        "third_party",
        replaced("max", lambda each: 1, record_views),
    ),
    "a server is an enclave": (
        "correlated, server",
        "server_secagg",
        replaced("_is_hidden", lambda used: True, correlated_views),
    ),
    "one round of a run": (
        "correlated, enclave",
        "server_secagg",
        replaced("_participation", lambda turns, rounds: ONCE, correlated_views),
    ),
    "one turn of two": (
        "correlated, by turns",
        "third_party",
        changed("_amplified", lambda row: replace(row, repeated=Repeated(1)), correlated_views),
    ),
    "a person is at one client": (
        "records at both clients",
        "third_party",
        changed("of_records_of_a_person", lambda found: found[::2], traced_round),
    ),
    "one kind of a person's means": (
        "two kinds of means of a person",
        "third_party",
        replaced("each", lambda row, change: change(row), Row),
    ),
    "a share of integers is the whole": (
        "integers",
        "server",
        replaced("share", property(lambda noise: noise), IntegerNoise),
    ),
    "a forgotten sum of integers": (
        "two sums of integers",
        "third_party",
        replaced("together", staticmethod(lambda noises: noises[0]), IntegerNoise),
    ),
    "a person is one record": (
        "two records of a person",
        "server_secagg",
        changed("_with_records", lambda row: replace(row, drawn=of_one(row.drawn)), person_views),
    ),
}
SAFE = {"weights do not count"}
"""Faults that make a certificate larger."""


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_planted_fault_is_noticed(fault, monkeypatch):
    name, view, plant = MUTANTS[fault]
    made(name)
    plant(monkeypatch)
    assert compared(name, view) == ("above" if fault in SAFE else "below")


def test_every_row_has_a_planted_fault():
    assert {name for name, _, _ in MUTANTS.values()} == set(ROWS)
