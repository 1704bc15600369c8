"""Federations in memory and streamed: their records, clients, persons, files."""

from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.data.federation import stack

CLIENTS = [[4, 0, 2], [5]]


def examples(**changed):
    image = np.arange(24, dtype=np.uint8).reshape(6, 2, 2, 1)
    return {"image": image, "label": np.arange(6) % 3} | changed


def spoilt(leaf, index, value):
    """Examples of which one has this number."""
    array = examples()[leaf].astype(float if isinstance(value, float) else int)
    array[index] = value
    return examples(**{leaf: array})


def made(of=None, clients=CLIENTS, make=fp.Federation, **options):
    return make.from_arrays(examples() if of is None else of, clients, **options)


streamed = partial(made, make=fp.StreamedFederation)
by_size = partial(fp.StreamedFederation.from_sorted, {"x": np.zeros(6)})
FEW, OTHER, DEVICE = (
    examples(label=np.zeros(5, int)),
    examples(label=np.zeros(6, int)),
    examples(label=jnp.zeros(6)),
)
THIRD = examples(t=np.arange(6) % 3 == 0)
FLAGS, NONE = examples(test=np.arange(6) == 5), examples(test=np.zeros(6, bool))


class Table:
    """Of two columns."""

    def __init__(self, *columns):
        self.columns = columns

    def __getitem__(self, name):
        return np.arange(2)


def stacked(**changed):
    """Beside another partition of the same records."""
    first = made()
    return stack([first, first.repartition(**{"clients": CLIENTS} | changed)])


# What is given, its options, the field, what is shown.
MADE = [
    (({},), {}, "examples", "no leaves"),
    (({"x": 1.0},), {}, "examples['x']", "1.0"),
    ((FEW,), {}, "examples['label']", "5 rows"),
    ((spoilt("image", (2, 1, 0, 0), np.nan),), {}, "examples['image']", "nan in row 2"),
    ((spoilt("image", (3, 1, 0, 0), -np.inf),), {}, "examples['image']", "-inf in row 3"),
    ((spoilt("image", (3, 1, 0, 0), 1e40),), {}, "examples['image']", "inf in row 3"),
    (({"x": np.full(6, 2**31)},), {}, "examples['x']", "32 bits"),
    (({"x": np.full(6, "a")},), {}, "examples['x']", "<U1"),
    ((None, []), {}, "clients", "[]"),
    ((None, np.zeros(6, int)), {}, "clients", "int64[6]"),
    ((None, "who"), {}, "'who'", "image, label"),
    (([np.zeros(6)], "who"), {}, "'who'", "no names"),
    ((None, [[0], []]), {}, "clients[1]", "empty"),
    ((None, [[0], [6]]), {}, "clients[1]", "row 6"),
    ((None, [[-1]]), {}, "clients[0]", "row -1"),
    ((None, [[0.5]]), {}, "clients[0]", "float64[1]"),
    ((None, [[True] * 6]), {}, "clients[0]", "bool[6]"),
    ((None, [[[0]]]), {}, "clients[0]", "int64[1, 1]"),
    ((None, [[0, 1], [2, 1]]), {}, "clients[1]", "row 1"),
    ((None, [[0], [2, 2]]), {}, "clients[1]", "row 2"),
    ((None, [np.ma.masked_equal([0, 1], 1)]), {}, "clients[0]", "masked in row 1"),
    (({"x": np.zeros(6)},), {"num_classes": 3}, "label", "num_classes"),
    ((), {"public": [0]}, "public", "row 0"),
    ((), {"public": [3, 3]}, "public", "row 3"),
    ((), {"public": [7]}, "public", "row 7"),
    ((FLAGS,), {"held_out": "test"}, "held_out", "client 1"),
    ((NONE,), {"held_out": "test"}, "held_out", "bool[6]"),
    ((), {"held_out": "label"}, "held_out", "'label' is int64[6]"),
    ((), {"held_out": "split"}, "held_out", "'split'"),
    ((), {"held_out": [[4], []]}, "held_out", "row 4"),
    ((), {"held_out": [[1]]}, "held_out", "2 clients"),
    ((THIRD,), {"public": [3], "held_out": "t"}, "held_out", "row 3"),
    ((Table("x", "x"), [[0], [1]]), {}, "examples", "'x'"),
    ((Table(0, "0"), [[0], [1]]), {}, "examples", "'0'"),
]
STREAMED = [
    ((DEVICE,), {}, "examples['label']", "ArrayImpl"),
    ((FEW,), {}, "examples['label']", "5 rows"),
    ((examples(label=np.full(6, "a")),), {}, "examples['label']", "<U1"),
    ((None, [[0], [6]]), {}, "clients[1]", "row 6"),
    ((None, [[0], [0]]), {}, "clients[1]", "row 0"),
    ((None, [[0], [1, 2]]), {"capacity": 1}, "capacity: 1", "client 1"),
    ((FLAGS,), {"held_out": "test"}, "held_out", "client 1"),
]
FIRST = "federations[0]"
OTHERS = [
    ("no labels", lambda: by_size([6], num_classes=2), "label", "num_classes"),
    ("an empty client", lambda: by_size([6, 0]), "sizes[1]", "0"),
    ("other sizes", lambda: by_size([4, 4]), "sizes", "8 records"),
    ("sizes of reals", lambda: by_size([6.0]), "sizes", "float64[1]"),
    ("no sizes", lambda: by_size([]), "sizes", "float64[0]"),
    ("stack: nothing", lambda: stack([]), "federations", "[]"),
    ("stack: other records", lambda: stack([made(), made(OTHER)]), "federations[1].examples", FIRST),
    ("stack: fewer leaves", lambda: stack([made(), made({"x": np.zeros(6)})]), "federations[1].examples", FIRST),
    ("stack: fewer clients", lambda: stacked(clients=[[0]]), "federations[1]", "num_clients=1"),
    ("stack: public rows", lambda: stacked(public=[1]), "federations[1]", "public rows=1"),
    ("a row of two", lambda: made().repartition([[1], [1]]), "clients[1]", "row 1"),
    (
        "rows that were held out",
        lambda: made(held_out=[[1], []]).repartition([[1], [0]]),
        "held_out",
        "1 records",
    ),
    ("records of nobody", lambda: made().held_out, "held_out", "no records"),
]  # fmt: skip

OWNERS = np.arange(4) // 2


def owned(person=OWNERS, **options):
    given = {"x": np.zeros(8), "device": np.arange(8) // 2}
    return fp.Federation.from_arrays(given, "device", person=person, **options)


PERSONS = [
    ("no such leaf", "patient", "'patient'"),
    ("too few", np.arange(3), "3 ids"),
    ("a client of none", [None, *"abc"], "client 0"),
    ("a client below", np.array([0, -1, 1, 2]), "client 1"),
    ("a record of none", np.r_[np.nan, np.arange(7)], "record 0"),
    ("several of a client", [[0, 1], [1], [1], [1]], "several"),
    ("none of a record", [[0], []] * 4, "record 1"),
    ("lists and numbers", [[0], 1] * 4, "list"),
    ("a cube", np.zeros((2, 2, 2)), "float64[2, 2, 2]"),
    ("of two types", [1, *"abc"], "'a' in row 2"),
]
OF_PERSONS = [
    ("not said", lambda: owned(None, per_person=2), "per_person: 2", "person="),
    ("of the server, too", lambda: owned(np.arange(8) // 4, public=[7]), "person", "row 7"),
    ("repartitioned", lambda: owned().repartition([[0], [1]]), "repartition", "2 persons"),
    ("other ones", lambda: stack([owned(), owned(OWNERS * 0)]), "federations[1]", "persons="),
]


def clients(**changed):
    """Three clients of {"x": f64[., 2], "label": i64[.]}; `changed` is of the second."""
    for i, count in enumerate([2, 1, 3]):
        own = {"x": np.zeros((count, 2)), "label": np.arange(count)}
        yield own | (changed if i == 1 else {})


def written(**changed):
    fp.write_clients("new", clients(**changed))


def damaged(file, spoil):
    """Reads a folder of which this file was changed afterwards."""
    written()
    path = Path("new", file)
    path.write_bytes(spoil(path.read_bytes()))
    fp.StreamedFederation.from_folder("new")


def less_of_the_server():
    fp.write_clients("new", clients(), public={"x": np.zeros((1, 2))})


WRITTEN = [
    ({"x": np.zeros((1, 3))}, "float32[records, 3]"),
    ({"x": np.zeros((1, 2), int)}, "int32[records, 2]"),
    ({"y": np.zeros(1)}, "'y'"),
    ({"x": np.zeros((2, 2))}, "2 rows"),
    ({"x": np.full((1, 2), np.nan)}, "nan in row 0"),
    ({"x": np.zeros((0, 2)), "label": np.zeros(0)}, "no records"),
]
DAMAGED = [
    ("x.npy", lambda b: b[:-1], "mmap length"),
    ("x.npy", lambda b: b + b"0", "177 bytes"),
    ("x.npy", lambda b: b"", "No data left"),
    ("label.npy", lambda b: b"no array", "pickled"),
    ("sizes.npy", lambda b: b[:-8], "(3,) = 3 elements"),
]
FILES = [
    ("a leaf less of the server", less_of_the_server, "public", "'label'"),
    ("nobody", lambda: fp.write_clients("new", []), "clients", "none"),
    (
        "a taken name",
        lambda: fp.write_clients("new", [{"sizes": np.ones(2)}]),
        "examples['sizes']",
        "name",
    ),
    ("there already", lambda: (written(), written()), "folder", "new"),
]
ROWS = [
    *((f"{field}, {i}", partial(made, *g, **o), field, s) for i, (g, o, field, s) in enumerate(MADE)),
    *((f"streamed: {i}, {field}", partial(streamed, *g, **o), field, s) for i, (g, o, field, s) in enumerate(STREAMED)),
    *OTHERS,
    *((f"persons: {name}", partial(owned, given), "person", s) for name, given, s in PERSONS),
    *((f"persons: {name}", *rest) for name, *rest in OF_PERSONS),
    *((f"files: {s}", partial(written, **changed), "clients[1]", s) for changed, s in WRITTEN),
    *((f"files: {name}", *rest) for name, *rest in FILES),
]  # fmt: skip
for place, (file, spoil, shown) in enumerate(DAMAGED):
    ROWS.append((f"files: {file} is damaged, {place}", partial(damaged, file, spoil), file, shown))
for name in ("", "..", "a/b", ".x"):
    call = partial(fp.write_clients, "new", [{name: [0.0]}])
    ROWS.append((f"files: {name!r} names none", call, f"{name!r}", "file"))
