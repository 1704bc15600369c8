"""Federations in memory and streamed: their records, clients, persons, files."""

from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.data.federation import stack
from refused.row import Refusal

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
by_size = fp.StreamedFederation.from_sorted
X = {"x": np.zeros(6)}

ROWS = [
    Refusal(name, partial(made, *given), field, value)
    for name, given, field, value in (
        ("no leaves", ({},), "examples", "no leaves"),
        ("one number", ({"x": 1.0},), "examples['x']", "1.0"),
        ("fewer labels", (examples(label=np.zeros(5, int)),), "examples['label']", "5 rows"),
        ("NaN", (spoilt("image", (2, 1, 0, 0), np.nan),), "examples['image']", "nan in row 2"),
        ("minus inf", (spoilt("image", (3, 1, 0, 0), -np.inf),), "['image']", "-inf in row 3"),
        ("inf in 32 bits", (spoilt("image", (3, 1, 0, 0), 1e40),), "['image']", "inf in row 3"),
        ("large integers", ({"x": np.full(6, 2**31)},), "examples['x']", "32 bits"),
        ("strings", ({"x": np.full(6, "a")},), "examples['x']", "<U1"),
        ("no clients", (None, []), "clients", "[]"),
        ("labels for clients", (None, np.zeros(6, int)), "clients", "int64[6]"),
        ("no such leaf", (None, "who"), "'who'", "image, label"),
        ("no names at all", ([np.zeros(6)], "who"), "'who'", "no names"),
        ("an empty client", (None, [[0], []]), "clients[1]", "empty"),
        ("a row beyond", (None, [[0], [6]]), "clients[1]", "row 6"),
        ("a row below", (None, [[-1]]), "clients[0]", "row -1"),
        ("half a row", (None, [[0.5]]), "clients[0]", "float64[1]"),
        ("flags", (None, [[True] * 6]), "clients[0]", "bool[6]"),
        ("a table of rows", (None, [[[0]]]), "clients[0]", "int64[1, 1]"),
        ("a row of two", (None, [[0, 1], [2, 1]]), "clients[1]", "row 1"),
        ("a row twice", (None, [[0], [2, 2]]), "clients[1]", "row 2"),
        ("masked", (None, [np.ma.masked_equal([0, 1], 1)]), "clients[0]", "masked in row 1"),
    )
]
ROWS += [
    Refusal(name, partial(made, of, **options), field, value)
    for name, of, options, field, value in (
        ("no such class", spoilt("label", 4, 3), {"num_classes": 3}, "['label']", "3 in row 4"),
        ("a class below", spoilt("label", 4, -1), {"num_classes": 3}, "['label']", "-1 in row 4"),
        ("half a class", spoilt("label", 4, 0.5), {"num_classes": 3}, "['label']", "0.5 in row 4"),
        ("no labels", X, {"num_classes": 3}, "label", ""),
        ("a public row of a client", None, {"public": [0]}, "public", "row 0"),
        ("a public row twice", None, {"public": [3, 3]}, "public", "row 3"),
        ("a public row beyond", None, {"public": [7]}, "public", "row 7"),
    )
]


def twice(names):
    """A table of two columns of one name."""

    class Table:
        columns = names

        def __getitem__(self, name):
            return np.arange(2)

    return fp.Federation.from_arrays(Table(), [[0], [1]])


ROWS += [
    Refusal("two columns of a name", lambda: twice(("x", "x")), "examples", "'x'"),
    Refusal("two columns of nearly a name", lambda: twice((0, "0")), "examples", "0"),
    Refusal("stack: nothing", lambda: stack([]), "federations", "[]"),
    Refusal(
        "stack: other records",
        lambda: stack([made(), made(examples(label=np.zeros(6, int)))]),
        "federations[1].examples",
    ),
    Refusal(
        "stack: fewer leaves",
        lambda: stack([made(), made({"image": examples()["image"]})]),
        "federations[1].examples",
    ),
    Refusal(
        "stack: fewer clients",
        lambda: stack([(first := made()), first.repartition([[0]])]),
        "federations[1]",
        "num_clients=1",
    ),
    Refusal(
        "stack: more public rows",
        lambda: stack([(first := made()), first.repartition(CLIENTS, public=[1])]),
        "federations[1]",
        "public rows=1",
    ),
    Refusal("repartition: a row of two", lambda: made().repartition([[1], [1]]), "row 1"),
    Refusal(
        "repartition: rows that were held out",
        lambda: made(held_out=[[1], []]).repartition([[1], [0]]),
        "held_out",
        "1 records",
    ),
]

FLAGS = {"test": np.arange(6) == 5}
ROWS += [
    Refusal(f"held out: {name}", call, "held_out", value)
    for name, call, value in (
        ("a whole client", partial(made, examples(**FLAGS), held_out="test"), "client 1"),
        ("a whole streamed client", partial(streamed, examples(**FLAGS), held_out="test"), "1"),
        ("nothing", partial(made, examples(test=np.zeros(6, bool)), held_out="test"), "bool[6]"),
        ("no flags", partial(made, held_out="label"), "'label' is int"),
        ("no such leaf", partial(made, held_out="split"), "'split'"),
        ("rows that train", partial(made, held_out=[[4], []]), "row 4"),
        ("of one client", partial(made, held_out=[[1]]), "2 clients"),
        (
            "the server's",
            partial(made, examples(t=np.arange(6) % 3 == 0), public=[3], held_out="t"),
            "row 3",
        ),
    )
]
ROWS += [Refusal("held out: asked for", lambda: made().held_out, "held_out", "no records")]

DEVICES = {"x": np.zeros(8), "device": np.arange(8) // 2}
OWNERS = np.arange(4) // 2


def owned(person=OWNERS, **options):
    return fp.Federation.from_arrays(DEVICES, "device", person=person, **options)


ROWS += [
    Refusal(f"persons: {name}", partial(owned, given), "person", value)
    for name, given, value in (
        ("no such leaf", "patient", "'patient'"),
        ("too few", np.arange(3), "3 ids"),
        ("a client of none", [None, *"abc"], "client 0"),
        ("a client below", np.array([0, -1, 1, 2]), "client 1"),
        ("a record of none", np.r_[np.nan, np.arange(7)], "record 0"),
        ("several of a client", [[0, 1], [1], [1], [1]], "several"),
        ("none of a record", [[0], []] * 4, "record 1"),
        ("lists and numbers", [[0], 1] * 4, "list"),
        ("a cube", np.zeros((2, 2, 2)), "float64"),
        ("of two types", [1, *"abc"], "'a' in row"),
    )
]
ROWS += [
    Refusal("persons: not said", lambda: owned(None, per_person=2), "per_person: 2", "person="),
    Refusal(
        "persons: of the server, too",
        lambda: owned(OWNERS[np.arange(8) // 2], public=[7]),
        "person",
        "row 7",
    ),
    Refusal(
        "persons: repartitioned",
        lambda: owned().repartition([[0], [1]]),
        "repartition",
        "2 persons",
    ),
    Refusal(
        "persons: stacked with others",
        lambda: stack([owned(), owned(OWNERS * 0)]),
        "federations[1]",
        "persons=",
    ),
]

ROWS += [
    Refusal(f"streamed: {name}", call, field, value)
    for name, call, field, value in (
        (
            "labels on a device",
            lambda: streamed(examples(label=jnp.zeros(6))),
            "examples['label']",
            "ArrayImpl",
        ),
        ("fewer labels", partial(streamed, examples(label=np.zeros(5))), "['label']", "5 rows"),
        ("strings", partial(streamed, examples(label=np.full(6, "a"))), "['label']", "<U1"),
        ("a row beyond", partial(streamed, None, [[0], [6]]), "row 6", ""),
        ("a row of two", partial(streamed, None, [[0], [0]]), "row 0", ""),
        (
            "little room",
            partial(streamed, None, [[0], [1, 2]], capacity=1),
            "capacity: 1",
            "client 1",
        ),
        ("no labels", partial(by_size, X, [6], num_classes=2), "label", ""),
        ("an empty client", partial(by_size, X, [6, 0]), "sizes[1]", "0"),
        ("other sizes", partial(by_size, X, [4, 4]), "sizes", "8 records"),
        ("sizes of reals", partial(by_size, X, [6.0]), "sizes", "float64[1]"),
        ("no sizes", partial(by_size, X, []), "sizes", "float64[0]"),
    )
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


ROWS += [
    Refusal(f"files: {name}", partial(written, **changed), "clients[1]", value)
    for name, changed, value in (
        ("wider", {"x": np.zeros((1, 3))}, "float32[records, 3]"),
        ("another type", {"x": np.zeros((1, 2), int)}, "int32[records, 2]"),
        ("another leaf", {"y": np.zeros(1)}, "'y'"),
        ("more rows", {"x": np.zeros((2, 2))}, "2 rows"),
        ("NaN", {"x": np.full((1, 2), np.nan)}, "nan in row 0"),
        ("empty", {"x": np.zeros((0, 2)), "label": np.zeros(0)}, "no records"),
    )
]
ROWS += [
    Refusal(f"files: {name}", call, field, value)
    for name, call, field, value in (
        (
            "a leaf less of the server",
            lambda: fp.write_clients("new", clients(), public={"x": np.zeros((1, 2))}),
            "public",
            "'label'",
        ),
        ("nobody", lambda: fp.write_clients("new", []), "clients", ""),
        (
            "a taken name",
            lambda: fp.write_clients("new", [{"sizes": np.ones(2)}]),
            "examples['sizes']",
            "",
        ),
        ("there already", lambda: (written(), written()), ".npy", "new"),
        ("cut", partial(damaged, "x.npy", lambda b: b[:-1]), "x.npy", ""),
        ("a byte more", partial(damaged, "x.npy", lambda b: b + b"0"), "x.npy", "177 bytes"),
        ("emptied", partial(damaged, "x.npy", lambda b: b""), "x.npy", ""),
        ("no array", partial(damaged, "label.npy", lambda b: b"no array"), "label.npy", ""),
        ("sizes cut", partial(damaged, "sizes.npy", lambda b: b[:-8]), "sizes.npy", ""),
    )
]
ROWS += [
    Refusal(
        f"files: {name!r} names none", lambda name=name: fp.write_clients("new", [{name: [0.0]}]), repr(name)
    )
    for name in ("", "..", "a/b", ".x")
]  # fmt: skip
