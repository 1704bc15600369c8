"""Partitions, and what they hold out."""

from functools import partial

import numpy as np

import fedpriv as fp
from fedpriv.data.partition import counts

LABELS = np.repeat(np.arange(10), 100)
CLIENTS = np.split(np.arange(24), 6)
TIME = np.arange(24)


def dealt(how, *given, **options):
    """By the partition of this name."""
    return partial(getattr(fp.partition, how), np.random.default_rng(0), *given, **options)


def held(count=0.3, **how):
    return partial(fp.partition.hold_out, np.random.default_rng(0), CLIENTS, count, **how)


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
    "hold_out": (10, 2),
    "shards": (LABELS, 10, 3),
    "similar": (LABELS, 10, 30),
    "dirichlet": (LABELS, 10, 0.5),
    "dirichlet_mixtures": (LABELS, 10, 0.5),
}
SPAWNING = [*WITHOUT_RNG][3:]
SPANS, DAYS = (
    np.array([1], "m8[s]"),
    np.where(TIME == 6, np.datetime64("NaT", "D"), np.datetime64(0, "D")),
)

ROWS = [
    ("more clients than rows", dealt("iid", 10, 11), "clients: 11", "10"),
    ("a row number twice", dealt("iid", [1, 1], 1), "total_or_rows", "twice"),
    ("half a row", dealt("iid", [0.5], 1), "total_or_rows", "float64[1]"),
    ("rows beyond the last", dealt("iid", 10, 1, rows=[10]), "rows", "10"),
    ("more shards than rows", dealt("shards", LABELS, 600, 2), "shards_per_client: 2", "1000"),
    ("half a class", dealt("shards", LABELS / 2, 10, 2), "labels", "0.5 in row 100"),
    ("too many clients", dealt("dirichlet", LABELS, 10, 1, 101), "min_size: 101", "100"),
    ("empty clients", dealt("dirichlet", LABELS, 1000, 1e-300), "alpha", "1e-300"),
    ("an empty client", dealt("dirichlet", LABELS, 100, 0.01), "alpha", ("0.01", "min_size=1")),
    ("too many of a skew", dealt("quantity_skew", 10, 2, 1, 6), "min_size: 6", "5"),
    ("more held out than there is", dealt("hold_out", 10, 11), "count", "11"),
    ("fewer rows", dealt("similar", LABELS, 2, 10, rows=[1]), "clients", "2"),
    ("a class below 0", lambda: counts([[0]], [-1]), "labels", "int64[1]"),
    ("one class alone", lambda: counts([[0]], 1), "labels", "array(1)"),
    ("too large a class", lambda: counts([[0]], [2**31 - 1]), "labels", "2147483647"),
    ("spans of time for classes", lambda: counts([[0]], SPANS), "labels", "timedelta64"),
    ("counts of nobody", lambda: counts([], [1]), "clients", "[]"),
    ("a table of keys", lambda: fp.partition.natural(LABELS[None]), "keys", "[1, 1000]"),
    ("no rows", lambda: fp.partition.natural(LABELS, rows=[]), "rows", "[]"),
]
for count, how, field, shown in (
    (0.9, {}, "count: 0.9", "client 0"),
    (5, {}, "count", "5"),
    (2, {"stratify": [0, 1]}, "stratify", "int64[2]"),
    (0.3, {"person": "patient"}, "person", "'patient'"),
    (0.3, {"person": TIME[:9]}, "person: 9", "row 23"),
    (0.3, {"person": with_the_sixth(-1)}, "person", "record 6"),
    (0.3, {"person": 3}, "person", "3"),
    (0.3, {"person": TIME, "time": TIME}, "person", "time"),
    (0.3, {"person": TIME, "stratify": TIME}, "stratify", "person"),
    (0.3, {"person": np.zeros(24, int)}, "count: 0.3", "nobody"),
    (0.2, {"person": np.repeat(np.arange(3), 8)}, "count: 0.2", ("nobody", "hold_out(rng, total")),
    (0.3, {"time": np.zeros(24)}, "count: 0.3", "no row"),
    (0.3, {"time": TIME[:9]}, "time: 9", "row 23"),
    (0.3, {"time": with_the_sixth(np.nan)}, "time", "row 6"),
    (0.3, {"time": DAYS}, "time", "row 6"),
    (0.3, {"time": np.stack([TIME, TIME - 1], 1)}, "time", "row 0"),
    (0.3, {"time": [str(t) for t in TIME]}, "time", "datetime64"),
    (0.3, {"time": np.zeros((24, 3))}, "time", "float64[24, 3]"),
    (0.3, {"time": np.stack([TIME, TIME + 99], 1)}, "count: 0.3", "client 0"),
):
    ROWS.append((f"hold_out: {len(ROWS)}, {[*how]}", held(count, **how), field, shown))
for how, given in WITHOUT_RNG.items():
    for rng in (0, np.random.RandomState(0), *([NO_CHILDREN] if how in SPAWNING else [])):
        call = partial(getattr(fp.partition, how), rng, *given)
        name = f"{type(rng).__name__} for {how}'s generator"
        ROWS.append((name, call, "rng", "np.random.default_rng(0)"))
