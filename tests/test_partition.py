"""Partitions give every row to exactly one client and have the skew that they are named for."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data.partition import (
    counts,
    dirichlet,
    dirichlet_mixtures,
    hold_out,
    iid,
    natural,
    quantity_skew,
    shards,
    similar,
)

short = settings(max_examples=50, deadline=None)
LABELS = np.repeat(np.arange(10), 100)


def rng(seed=0):
    return np.random.default_rng(seed)


class Partition(NamedTuple):
    """A way to deal rows.

    Attributes:
      deal: (generator, labels, clients, rows or None for all) -> parts.
      spread: the most by which the sizes of two clients differ; None: any.
      skewed: it reads labels, and deals each client's rows in an order of their own.
      each: rows for each client with which it succeeds.
    """

    deal: Callable
    spread: int | None = 1
    skewed: bool = True
    each: int = 1


def of_number_or_rows(make, *options):
    """All rows by their number, others themselves."""
    return lambda r, y, n, rows: make(r, len(y) if rows is None else rows, n, *options)


PARTITIONS = {
    "iid": Partition(of_number_or_rows(iid), skewed=False),
    "iid of rows": Partition(lambda r, y, n, rows: iid(r, len(y), n, rows=rows), skewed=False),
    "shards": Partition(lambda r, y, n, rows: shards(r, y, n, 3, rows=rows), 3, each=3),
    "similar": Partition(lambda r, y, n, rows: similar(r, y, n, 30, rows=rows)),
    "dirichlet": Partition(lambda r, y, n, rows: dirichlet(r, y, n, 0.5, rows=rows), None, each=10),
    "dirichlet_mixtures": Partition(
        lambda r, y, n, rows: dirichlet_mixtures(r, y, n, 0.5, rows=rows)
    ),
    "quantity_skew": Partition(of_number_or_rows(quantity_skew, 0.8), None, False, each=10),
    "quantity_skew of rows": Partition(
        lambda r, y, n, rows: quantity_skew(r, len(y), n, 0.8, rows=rows), None, False, each=10
    ),
}
each = pytest.mark.parametrize("name", PARTITIONS)
skewed = pytest.mark.parametrize("name", [n for n, one in PARTITIONS.items() if one.skewed])


def ten(name, generator):
    """Ten clients of `LABELS`."""
    return PARTITIONS[name].deal(generator, LABELS, 10, None)


@st.composite
def problems(draw):
    """A generator, labels of all examples, the rows to distribute, and a number of clients."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    total = draw(st.integers(1, 60))
    labels = rng.integers(0, draw(st.integers(1, 8)), total)
    rows = rng.permutation(total)[: draw(st.integers(1, total))]
    clients = draw(st.integers(1, len(rows)))
    return rng, labels, rows, clients


def check(parts, rows, clients):
    """Nothing lost, nothing twice, nobody empty."""
    assert len(parts) == clients
    assert all(part.ndim == 1 and part.dtype == np.int64 and len(part) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(rows))


def spread(parts):
    sizes = [len(part) for part in parts]
    return max(sizes) - min(sizes)


@each
@short
@given(problem=problems(), all_rows=st.booleans())
def test_every_row_is_one_clients(name, problem, all_rows):
    rng, labels, rows, clients = problem
    one = PARTITIONS[name]
    dealt = np.arange(len(labels)) if all_rows else rows
    clients = min(clients, max(1, len(dealt) // one.each))
    if name == "shards" and len(dealt) < one.each:
        return
    parts = one.deal(rng, labels, clients, None if all_rows else rows)
    check(parts, dealt, clients)
    assert one.spread is None or spread(parts) <= one.spread


@each
def test_the_seed_decides(name):
    one, same, other = (np.concatenate(ten(name, rng(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


# Of ten clients with seed 3 and of four numbers drawn after them, before rows were shuffled within each client.
HELD = {
    "shards": "c47f96c0e8204087",
    "similar": "54b8f1d595b15aa8",
    "dirichlet": "e97758094300cb4a",
    "dirichlet_mixtures": "58ea5184525fef52",
    "iid": "c2617d4891b058c7",
    "quantity_skew": "98a8f2d7ce2779b3",
}


@pytest.mark.parametrize("name", HELD)
def test_who_holds_what_is_what_it_was(name):
    """And what the generator draws next."""
    generator, found = rng(3), hashlib.sha256()
    for part in ten(name, generator):
        found.update(b"|" + (np.sort(part) if PARTITIONS[name].skewed else part).tobytes())
    found.update(generator.random(4).tobytes())
    assert found.hexdigest()[:16] == HELD[name]


def unlikeness(part):
    """Chi-square of the classes of the first four fifths of a client's rows against the rest, and its mean by chance.

    Over all orders of n records of k classes the mean is (k - 1) n / (n - 1).
    """
    cut, n = len(part) * 4 // 5, len(part)
    table = counts([part[:cut], part[cut:]], LABELS)
    table = table[:, table.sum(0) > 0]
    expected = table.sum(1, keepdims=True) * table.sum(0) / n
    return ((table - expected) ** 2 / expected).sum(), (table.shape[1] - 1) * n / (n - 1)


@each
def test_a_slice_of_a_client_s_rows_has_its_classes(name):
    """Over 400 clients or so, at 5 of the standard deviations found; false alarms 1e-6."""
    generator = rng(5)
    dealt = [part for _ in range(40) for part in ten(name, generator)]
    found, mean = np.transpose([unlikeness(part) for part in dealt if len(part) > 1])
    assert len(found) > 300
    assert abs((found - mean).mean()) < 5 * (found - mean).std() / len(found) ** 0.5 < 1.5


@skewed
def test_rows_come_in_another_order_each_time(name):
    """Though who holds what is drawn from the same numbers, when the same generator is asked twice."""
    generator = rng(3)
    state = generator.bit_generator.state
    first = ten(name, generator)
    generator.bit_generator.state = state
    again = ten(name, generator)
    assert [set(part) for part in first] == [set(part) for part in again]
    assert not all(map(np.array_equal, first, again))


@pytest.mark.parametrize("kind", ["bool", "uint8", "float32", "float64", "object"])
@skewed
def test_labels_of_any_type_deal_alike(name, kind):
    binary = LABELS % 2
    deal = PARTITIONS[name].deal
    parts = [deal(rng(1), labels, 5, None) for labels in (binary, binary.astype(kind))]
    assert all(map(np.array_equal, *parts))


@short
@given(problems())
def test_natural(problem):
    _, labels, rows, _ = problem
    parts = natural(labels, rows=rows)
    check(parts, rows, len(np.unique(labels[rows])))
    keys = [labels[part[0]] for part in parts]
    assert keys == list(dict.fromkeys(labels[rows].tolist()))
    for part, key in zip(parts, keys, strict=True):
        np.testing.assert_array_equal(part, [r for r in rows if labels[r] == key])


@short
@given(problems(), st.floats(0, 1))
def test_hold_out(problem, share):
    rng, _, rows, _ = problem
    count, seed = int(share * len(rows)), rng.integers(2**32)
    (public, rest), again = (hold_out(np.random.default_rng(seed), rows, count) for _ in range(2))
    assert len(public) == count
    np.testing.assert_array_equal(np.sort(np.concatenate([public, rest])), np.sort(rows))
    np.testing.assert_array_equal(public, again[0])


def classes(parts):
    return [len(np.unique(LABELS[part])) for part in parts]


@short
@given(problems(), st.integers(1, 4))
def test_shards_have_few_classes(problem, each):
    """Sorted by label, the pieces have at most (shards + classes - 1) runs in all."""
    rng, labels, rows, clients = problem
    each = min(each, max(1, len(rows) // clients))
    parts = shards(rng, labels, clients, each, rows=rows)
    check(parts, rows, clients)
    assert spread(parts) <= each
    runs = sum(len(np.unique(labels[part])) for part in parts)
    assert runs <= clients * each + len(np.unique(labels[rows])) - 1


@short
@given(problems())
def test_zero_percent_similar_is_sorted(problem):
    rng, labels, rows, clients = problem
    parts = similar(rng, labels, clients, 0, rows=rows)
    assert np.all(np.diff(np.concatenate([np.sort(labels[part]) for part in parts])) >= 0)


def test_similarity_is_the_share_of_iid_rows():
    assert classes(similar(rng(), LABELS, 10, 0)) == [1] * 10
    for percent, share in [(10, 0.1), (50, 0.5)]:
        parts = similar(rng(), LABELS, 10, percent)
        # A client's own class holds the sorted share, and a tenth of the i.i.d. share.
        own = [np.bincount(LABELS[part]).max() / len(part) for part in parts]
        assert np.mean(own) == pytest.approx(1 - share * 0.9, abs=0.05)
    assert min(classes(similar(rng(), LABELS, 10, 100))) == 10


def test_concentration():
    def skew(alpha):
        parts = dirichlet(rng(), LABELS, 10, alpha)
        return np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts])

    assert skew(0.1) > 0.4
    assert skew(1e6) < 0.15
    check(dirichlet(rng(), LABELS, 1, 1e-300), np.arange(1000), 1)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_classes_of_a_client_are_of_a_dirichlet_law(alpha):
    """Two records of a client agree with probability (alpha + 1) / (classes alpha + 1), while all classes last.

    The first 250 clients, at five of the standard deviations of a client's share of pairs: false alarms 1e-6.
    """
    labels = np.repeat(np.arange(10), 5000)
    parts = dirichlet_mixtures(rng(4), labels, 1000, alpha)
    assert {len(part) for part in parts} == {50}
    each = counts(parts, labels)[:250]
    pairs = (each * (each - 1)).sum(1) / (50 * 49)
    error = 5 * pairs.std() / len(pairs) ** 0.5
    assert abs(pairs.mean() - (alpha + 1) / (10 * alpha + 1)) < error < 0.12
    # which class is most common differs: every one is, of some client
    assert set(each.argmax(1)) == set(range(10))


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_sizes_are_of_a_dirichlet_law(alpha):
    """The shares' squares sum to (alpha + 1) / (clients alpha + 1) in the mean; false alarms: 1e-6 (5 deviations)."""
    generator, total, clients = rng(3), 1000, 4
    shares = [
        [len(part) / total for part in quantity_skew(generator, total, clients, alpha)]
        for _ in range(300)
    ]
    squares = np.square(shares).sum(1)
    error = 5 * squares.std() / len(squares) ** 0.5
    # 1e-3: proportions that round to no record are drawn anew, twice in a thousand draws.
    assert abs(squares.mean() - (alpha + 1) / (clients * alpha + 1)) < error + 1e-3


def test_quantity_skew_leaves_the_classes_as_they_are():
    """Each class's share of the largest client is that of all, up to 5 deviations of 10 classes (rate 1e-5)."""
    largest = max(quantity_skew(rng(), 1000, 3, 1.0), key=len)
    found = np.bincount(LABELS[largest], minlength=10) / len(largest)
    assert np.abs(found - 0.1).max() < 5 * (0.1 * 0.9 / len(largest)) ** 0.5


@pytest.mark.parametrize("make", [dirichlet, quantity_skew])
def test_min_size_is_reached(make):
    of = {dirichlet: LABELS, quantity_skew: len(LABELS)}[make]
    parts = make(rng(), of, 10, 3.0, min_size=40)
    check(parts, np.arange(1000), 10)
    assert min(len(part) for part in parts) >= 40
