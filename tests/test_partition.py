"""Partitions give every row to exactly one client and have the skew that they are named for."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import refused

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


@short
@given(problems())
def test_iid(problem):
    rng, labels, rows, clients = problem
    for parts, distributed in [
        (iid(rng, len(labels), clients), np.arange(len(labels))),
        (iid(rng, rows, clients), rows),
        (iid(rng, len(labels), clients, rows=rows), rows),
    ]:
        check(parts, distributed, clients)
        assert spread(parts) <= 1


@short
@given(problems(), st.integers(1, 4))
def test_shards(problem, each):
    rng, labels, rows, clients = problem
    clients = max(1, len(rows) // each) if clients * each > len(rows) else clients
    each = min(each, len(rows) // clients)
    parts = shards(rng, labels, clients, each, rows=rows)
    check(parts, rows, clients)
    assert spread(parts) <= each
    # Sorted by label, the pieces have at most (shards + classes - 1) runs in all.
    runs = sum(len(np.unique(labels[part])) for part in parts)
    assert runs <= clients * each + len(np.unique(labels[rows])) - 1


@short
@given(problems(), st.floats(0, 100))
def test_similar(problem, percent):
    rng, labels, rows, clients = problem
    parts = similar(rng, labels, clients, percent, rows=rows)
    check(parts, rows, clients)
    assert spread(parts) <= 1


@short
@given(problems())
def test_zero_percent_similar_is_sorted(problem):
    rng, labels, rows, clients = problem
    parts = similar(rng, labels, clients, 0, rows=rows)
    assert np.all(np.diff(np.concatenate([np.sort(labels[part]) for part in parts])) >= 0)


@short
@given(problems(), st.floats(0.5, 1e6))
def test_dirichlet(problem, alpha):
    rng, labels, rows, clients = problem
    clients = min(clients, 1 + len(rows) // 10)
    check(dirichlet(rng, labels, clients, alpha, rows=rows), rows, clients)


@short
@given(problems())
def test_quantity_skew(problem):
    rng, labels, rows, clients = problem
    clients = min(clients, 1 + len(rows) // 10)
    for parts, distributed in [
        (quantity_skew(rng, len(labels), clients, 1.0), np.arange(len(labels))),
        (quantity_skew(rng, rows, clients, 1.0), rows),
        (quantity_skew(rng, len(labels), clients, 1.0, rows=rows), rows),
    ]:
        check(parts, distributed, clients)


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
    count = int(share * len(rows))
    public, rest = hold_out(rng, rows, count)
    assert len(public) == count
    np.testing.assert_array_equal(np.sort(np.concatenate([public, rest])), np.sort(rows))


LABELS = np.repeat(np.arange(10), 100)


def rng(seed=0):
    return np.random.default_rng(seed)


def classes(parts):
    return [len(np.unique(LABELS[part])) for part in parts]


def test_two_shards_give_few_classes():
    parts = shards(rng(), LABELS, 10, 2)
    assert {len(part) for part in parts} == {100}
    assert max(classes(parts)) <= 2


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


def test_an_extreme_concentration_gives_whole_classes():
    parts = dirichlet(rng(), LABELS, 1, 1e-300)
    check(parts, np.arange(1000), 1)
    with pytest.raises(ValueError, match="raise alpha"):
        dirichlet(rng(), LABELS, 1000, 1e-300)


@short
@given(problems(), st.floats(1e-3, 1e3))
def test_mixtures_are_of_equal_size(problem, alpha):
    generator, labels, rows, clients = problem
    parts = dirichlet_mixtures(generator, labels, clients, alpha, rows=rows)
    check(parts, rows, clients)
    assert spread(parts) <= 1


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
    generator, total, clients = rng(3), 4000, 4
    shares = [
        [len(part) / total for part in quantity_skew(generator, total, clients, alpha)]
        for _ in range(600)
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


def test_min_size_is_reached():
    parts = dirichlet(rng(), LABELS, 10, 0.5, min_size=40)
    check(parts, np.arange(1000), 10)
    assert min(len(part) for part in parts) >= 40


def test_the_seed_decides():
    for function in (
        lambda r: iid(r, 1000, 10),
        lambda r: shards(r, LABELS, 10, 2),
        lambda r: similar(r, LABELS, 10, 50),
        lambda r: dirichlet(r, LABELS, 10, 0.5),
        lambda r: dirichlet_mixtures(r, LABELS, 10, 0.5),
        lambda r: quantity_skew(r, 1000, 10, 0.5),
        lambda r: hold_out(r, 1000, 100),
    ):
        one, same, other = (np.concatenate(function(rng(seed))) for seed in (0, 0, 1))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


SKEWED = {
    "shards": lambda r: shards(r, LABELS, 10, 3),
    "similar": lambda r: similar(r, LABELS, 10, 30),
    "dirichlet": lambda r: dirichlet(r, LABELS, 10, 0.5),
    "dirichlet_mixtures": lambda r: dirichlet_mixtures(r, LABELS, 10, 0.5),
}
PLAIN = {
    "iid": lambda r: iid(r, 1000, 10),
    "quantity_skew": lambda r: quantity_skew(r, 1000, 10, 0.8),
}
# Of these calls with seed 3 and of four numbers drawn after them, before rows were shuffled within each client.
HELD = {
    "shards": "c47f96c0e8204087",
    "similar": "54b8f1d595b15aa8",
    "dirichlet": "e97758094300cb4a",
    "dirichlet_mixtures": "58ea5184525fef52",
    "iid": "c2617d4891b058c7",
    "quantity_skew": "98a8f2d7ce2779b3",
}


def digest(name, order):
    """Of who holds what, with or without the order, and of what the generator draws next."""
    generator, found = rng(3), hashlib.sha256()
    for part in (SKEWED | PLAIN)[name](generator):
        found.update(b"|" + (part if order else np.sort(part)).tobytes())
    found.update(generator.random(4).tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", HELD)
def test_who_holds_what_is_what_it_was(name):
    assert digest(name, order=name in PLAIN) == HELD[name]


def unlikeness(part):
    """Chi-square of the classes of the first four fifths of a client's rows against the rest, and its mean by chance.

    Over all orders of n records of k classes the mean is (k - 1) n / (n - 1).
    """
    cut, n = len(part) * 4 // 5, len(part)
    table = counts([part[:cut], part[cut:]], LABELS)
    table = table[:, table.sum(0) > 0]
    expected = table.sum(1, keepdims=True) * table.sum(0) / n
    return ((table - expected) ** 2 / expected).sum(), (table.shape[1] - 1) * n / (n - 1)


@pytest.mark.parametrize("name", SKEWED | PLAIN)
def test_a_slice_of_a_client_s_rows_has_its_classes(name):
    """Over 400 clients or so, at 5 of the standard deviations found; false alarms 1e-6."""
    generator = rng(5)
    dealt = [part for _ in range(40) for part in (SKEWED | PLAIN)[name](generator)]
    found, mean = np.transpose([unlikeness(part) for part in dealt if len(part) > 1])
    assert len(found) > 300
    assert abs((found - mean).mean()) < 5 * (found - mean).std() / len(found) ** 0.5 < 1.5


@pytest.mark.parametrize("name", SKEWED)
def test_rows_come_in_another_order_each_time(name):
    """Though who holds what is drawn from the same numbers, when the same generator is asked twice."""
    generator = rng(3)
    state = generator.bit_generator.state
    first = SKEWED[name](generator)
    generator.bit_generator.state = state
    again = SKEWED[name](generator)
    assert [set(part) for part in first] == [set(part) for part in again]
    assert not all(map(np.array_equal, first, again))


class Seedless(np.random.bit_generator.ISeedSequence):
    """Words without children."""

    def generate_state(self, n_words, dtype=np.uint32):
        return np.arange(1, 1 + n_words, dtype=dtype)


@pytest.mark.parametrize("name", SKEWED | PLAIN)
@pytest.mark.parametrize(
    "given", [0, None, np.random.RandomState(0), np.random.Generator(np.random.PCG64(Seedless()))]
)
def test_what_is_no_generator(name, given):
    if name in PLAIN and isinstance(given, np.random.Generator):
        return  # spawns none
    with pytest.raises(ValueError, match=r"^rng: .*; .*np\.random\.default_rng\(0\)$"):
        (SKEWED | PLAIN)[name](given)


@pytest.mark.parametrize("kind", ["bool", "uint8", "float32", "float64", "object"])
def test_labels_of_any_type_deal_alike(kind):
    binary = LABELS % 2
    for make in (shards, dirichlet):
        parts = [make(rng(1), given, 5, 2) for given in (binary, binary.astype(kind))]
        assert all(map(np.array_equal, *parts))


def test_natural_with_names():
    parts = natural(np.array(["b", "a", "b", "c"]))
    assert [part.tolist() for part in parts] == [[0, 2], [1], [3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(rng(), 10, 0), "^clients: 0; give a whole number from 1"),
        (lambda: iid(rng(), 10, 11), "^clients: 11; use at most as many as there are rows, 10"),
        (lambda: iid(rng(), 10, 1, rows=[10]), r"^rows: it holds 10 to 10, outside \[0, 10\)"),
        (lambda: iid(rng(), [1, 1], 1), "^total_or_rows: it holds a row number twice"),
        (lambda: iid(rng(), [0.5], 1), r"^total_or_rows: float64\[1\]"),
        (lambda: shards(rng(), LABELS, 10, 0), "^shards_per_client: 0; give a whole number from 1"),
        (
            lambda: shards(rng(), LABELS, 600, 2),
            "^shards_per_client: 2 for 600 clients, but there are 1000 rows",
        ),
        (lambda: shards(rng(), LABELS / 2, 10, 2), r"^labels: 0.5 in row 100; give whole numbers"),
        (lambda: similar(rng(), LABELS, 10, -1), "^percent: -1; give a percentage"),
        (lambda: similar(rng(), LABELS, 10, 100.5), "^percent: 100.5; give a perc"),
        (lambda: similar(rng(), LABELS, 10, np.nan), "^percent: nan; give a percentage"),
        (lambda: similar(rng(), LABELS, 2, 10, rows=[1]), "^clients: 2; use at most"),
        (lambda: dirichlet(rng(), LABELS, 10, 0), "^alpha: 0; give a finite number above 0"),
        (lambda: dirichlet(rng(), LABELS, 10, np.inf), "^alpha: inf; give a finite number"),
        (
            lambda: dirichlet(rng(), LABELS, 10, 1, 101),
            "^min_size: 101; give 1 to 100 for 10 clients",
        ),
        (lambda: dirichlet(rng(), LABELS, 10, 1, 0), "^min_size: 0; give a whole number from 1"),
        (
            lambda: dirichlet(rng(), LABELS, 100, 0.01),
            "^alpha: 0.01 left one of the 100 .* min_size=1 in",
        ),
        (lambda: quantity_skew(rng(), 10, 2, -1), "^alpha: -1; give a finite number"),
        (lambda: quantity_skew(rng(), 10, 2, 1, 6), "^min_size: 6; give 1 to 5 for 2"),
        (lambda: counts([[0]], [-1]), r"^labels: int64\[1\]; give one class from 0"),
        (lambda: counts([[0]], 1), r"^labels: array\(1\); give one class from 0"),
        (lambda: counts([[0]], [2**31 - 1]), "^labels: 2147483647; number the classes"),
        (lambda: counts([[0]], np.array([1], "m8[s]")), r"^labels: its data type is timedelta64"),
        (lambda: counts([], [1]), r"^clients: \[\]; give one array of row numbers"),
        (lambda: natural(LABELS[None]), r"^keys: it has the shape \[1, 1000\]"),
        (lambda: natural(LABELS, rows=[]), r"^rows: \[\]; give at least one"),
        (lambda: hold_out(rng(), 10, 11), "^count: 11; hold out at most the 10 rows"),
    ],
)
def test_errors(call, message):
    with refused(message):
        call()
