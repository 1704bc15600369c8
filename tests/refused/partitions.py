"""Partitions, and what they hold out."""

from functools import partial

import numpy as np

import fedpriv as fp
from fedpriv.data.partition import counts
from refused.row import Refusal

LABELS = np.repeat(np.arange(10), 100)
CLIENTS = np.split(np.arange(24), 6)
TIME = np.arange(24)


def dealt(how, *given, **options):
    """By the partition of this name."""
    return getattr(fp.partition, how)(np.random.default_rng(0), *given, **options)


def held(clients=CLIENTS, count=0.3, **how):
    return fp.partition.hold_out(np.random.default_rng(0), clients, count, **how)


def with_the_sixth(value):
    """One for each row, of which row 6 has this."""
    return np.where(np.arange(24) == 6, value, TIME)


class Seedless(np.random.bit_generator.ISeedSequence):
    """Words without children."""

    def generate_state(self, n_words, dtype=np.uint32):
        return np.arange(1, 1 + n_words, dtype=dtype)


NO_CHILDREN = np.random.Generator(np.random.PCG64(Seedless()))
WITHOUT_RNG = {
    "iid": (10, 2),
    "quantity_skew": (10, 2, 1.0),
    "shards": (LABELS, 10, 3),
    "similar": (LABELS, 10, 30),
    "dirichlet": (LABELS, 10, 0.5),
    "dirichlet_mixtures": (LABELS, 10, 0.5),
    "hold_out": (10, 2),
}
PLAIN = ("iid", "quantity_skew", "hold_out")  # they spawn no generators

ROWS = [
    Refusal(name, partial(dealt, *given), field, value)
    for name, given, field, value in (
        ("more clients than rows", ("iid", 10, 11), "clients: 11", "10"),
        ("a row number twice", ("iid", [1, 1], 1), "total_or_rows", "twice"),
        ("half a row", ("iid", [0.5], 1), "total_or_rows", "float64[1]"),
        ("more shards than rows", ("shards", LABELS, 600, 2), "shards_per_client: 2", "1000"),
        ("half a class", ("shards", LABELS / 2, 10, 2), "labels", "0.5 in row 100"),
        ("clients of too many", ("dirichlet", LABELS, 10, 1, 101), "min_size: 101", "100"),
        ("clients left empty", ("dirichlet", LABELS, 1000, 1e-300), "alpha", "1e-300"),
        ("too many of a skew", ("quantity_skew", 10, 2, 1, 6), "min_size: 6", "5"),
        ("more held out than there is", ("hold_out", 10, 11), "count", "11"),
    )
]
ROWS += [
    Refusal("rows beyond the last", lambda: dealt("iid", 10, 1, rows=[10]), "rows", "10"),
    Refusal("fewer rows", lambda: dealt("similar", LABELS, 2, 10, rows=[1]), "clients", "2"),
    Refusal(
        "one client left empty",
        lambda: dealt("dirichlet", LABELS, 100, 0.01),
        "alpha",
        "0.01",
        remedy="min_size=1",
    ),
    Refusal("a class below 0", lambda: counts([[0]], [-1]), "labels", "int64[1]"),
    Refusal("one class alone", lambda: counts([[0]], 1), "labels", "array(1)"),
    Refusal("too large a class", lambda: counts([[0]], [2**31 - 1]), "labels", "2147483647"),
    Refusal(
        "spans of time for classes",
        lambda: counts([[0]], np.array([1], "m8[s]")),
        "labels",
        "timedelta64",
    ),
    Refusal("counts of nobody", lambda: counts([], [1]), "clients", "[]"),
    Refusal("a table of keys", lambda: fp.partition.natural(LABELS[None]), "keys", "[1, 1000]"),
    Refusal("no rows", lambda: fp.partition.natural(LABELS, rows=[]), "rows", "[]"),
]
ROWS += [
    Refusal(
        f"{type(rng).__name__} for {how}'s generator",
        lambda how=how, rng=rng: getattr(fp.partition, how)(rng, *WITHOUT_RNG[how]),
        "rng",
        "np.random.default_rng(0)",
    )
    for how in WITHOUT_RNG
    for rng in (0, None, np.random.RandomState(0), NO_CHILDREN)
    if rng is not NO_CHILDREN or how not in PLAIN
]
ROWS += [
    Refusal(f"hold_out: {name}", partial(held, **how), field, value)
    for name, how, field, value in (
        ("above all", {"count": 1.5}, "count", "1.5"),
        ("nearly all", {"count": 0.9}, "count: 0.9", "client 0"),
        ("more than a client has", {"count": 5}, "count", "5"),
        ("few labels", {"count": 2, "stratify": [0, 1]}, "stratify", ""),
        ("a name", {"person": "patient"}, "person", "'patient'"),
        ("few ids", {"person": TIME[:9]}, "person: 9", "row 23"),
        ("nobody's record", {"person": with_the_sixth(-1)}, "person", "record 6"),
        ("one number", {"person": 3}, "person", "3"),
        ("persons and times", {"person": TIME, "time": TIME}, "person", "time"),
        ("persons and labels", {"person": TIME, "stratify": TIME}, "stratify", "person"),
        ("one person", {"person": np.zeros(24, int)}, "count: 0.3", "nobody"),
        ("one moment", {"time": np.zeros(24)}, "count", "0.3"),
        ("few moments", {"time": TIME[:9]}, "time: 9", "row 23"),
        ("a moment of none", {"time": with_the_sixth(np.nan)}, "time", "row 6"),
        ("windows turned", {"time": np.stack([TIME, TIME - 1], 1)}, "time", "row 0"),
        ("moments in words", {"time": [str(t) for t in TIME]}, "time", "datetime64"),
        ("triples of moments", {"time": np.zeros((24, 3))}, "time", "datetime64"),
        ("long windows", {"time": np.stack([TIME, TIME + 99], 1)}, "count: 0.3", "client 0"),
    )
]
ROWS += [
    Refusal(
        "hold_out: a day of none",
        lambda: held(time=np.where(TIME == 6, np.datetime64("NaT"), np.datetime64("2026-01-01"))),
        "time",
        "row 6",
    ),
    Refusal(
        "hold_out: a person for each client",
        lambda: held(count=0.2, person=np.repeat(np.arange(3), 8)),
        "count: 0.2",
        "nobody",
        remedy="hold_out(rng, total, count, person",
    ),
]
