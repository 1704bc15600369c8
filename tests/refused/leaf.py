"""Files in LEAF's format, and what is in them."""

import gzip
import json
from functools import partial
from pathlib import Path

from fedpriv.data.datasets import CorruptDataError, from_leaf
from refused.row import Refusal

SIZES = {"ada": 2, "ben": 5, "cem": 1}


def records(count, first=0, width=3):
    x = [[(first + width * i + j) / 8 for j in range(width)] for i in range(count)]
    return {"x": x, "y": [float(i % 2) for i in range(count)]}


def content(sizes=SIZES, **changed):
    """Of a file, as JSON has it; `changed` replaces entries of it."""
    data = {user: records(count, 10 * i) for i, (user, count) in enumerate(sizes.items())}
    whole = {"users": [*sizes], "num_samples": [*sizes.values()], "user_data": data}
    return whole | {"hierarchies": ["play"] * len(sizes)} | changed


def of_ben(**changed):
    """A file in which Ben's lists are these."""
    whole = content()
    whole["user_data"]["ben"] |= changed
    return whole


def write(file, whole):
    file.parent.mkdir(exist_ok=True)
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "wt") as text:
        json.dump(whole, text)
    return file


def reading(whole, **options):
    return from_leaf(write(Path("a.json"), whole), **options)


def reading_bytes(name, written):
    Path(name).write_bytes(written)
    return from_leaf(name)


def both_packed_and_not():
    write(Path("data/a.json"), content()), write(Path("data/a.json.gz"), content())
    from_leaf("data")


def of_names(*users):
    data = {user: {"x": [[1.0]], "y": [0]} for user in users}
    return {"users": [*users], "user_data": data}


X, Y = records(5)["x"], [0.0] * 5
TWICE = b'{"users": ["a"], "user_data": {"a": {"x": [1], "y": [1]}, "a": {"x": [2], "y": [2]}}}'

ROWS = [
    Refusal(name, partial(reading, whole), f"a.json: {field}", value)
    for name, whole, field, value in (
        ("a list", [1], "it has no users", ""),
        ("no list of users", content(users=None), "it has no users", ""),
        ("nobody", content({}), "it has no users", ""),
        ("a number for a name", content(users=["ada", 3, "cem"]), "users", "3"),
        ("a user twice", content(users=["ada", "ben", "ada"]), "user 'ada'", "twice"),
        ("an unnamed user", content(users=["ada", "ben"]), "user_data", "'cem'"),
        (
            "no data of one",
            content(users=["ada", "ben", "cem", "dan"], num_samples=None),
            "user 'dan'",
            "user_data",
        ),
        ("numbers of two", content(num_samples=[2, 5]), "num_samples", "[2, 5]"),
        ("another number", content(num_samples=[2, 6, 1]), "user 'ben'", "6 by num_samples"),
        ("no records", content({"ada": 2, "ben": 0}), "user 'ben'", "no records"),
        ("fewer features", of_ben(x=X[:4]), "user 'ben'", "4 in 'x', 5 in 'y'"),
        ("no features", of_ben(x=None), "user 'ben'", "'x'"),
        ("narrow", of_ben(x=records(5, width=2)["x"]), "user 'ben': features", "[2]"),
        ("ragged", of_ben(x=[*X[:4], [1.0]]), "user 'ben': features", "row 4"),
        ("a gap", of_ben(x=[*X[:4], [1, None, 2]]), "user 'ben': features", "row 4"),
        ("no label", of_ben(y=[0, 1, None, 0, 1]), "user 'ben': label", "row 2 is None"),
        ("NaN", of_ben(y=[0, 1, float("nan"), 0, 1]), "user 'ben': label", "row 2"),
        ("letters", of_ben(y=list("abcde")), "user 'ben': label", "strings"),
        ("a digit in letters", of_ben(y=[0, "1", 0, 0, 1]), "user 'ben': label", "'1'"),
        ("beyond 32 bits", of_ben(x=[[1e300, 0.5, 0.5]] * 5), "user 'ben': features", "row 0"),
        ("an empty name", of_names("ada", ""), "users", "''"),
        ("a name that NumPy cuts", of_names("ada", "ada\0"), "users", "'ada\\x00'"),
    )
]
ROWS += [
    Refusal(f"damaged: {name}", partial(reading_bytes, file, written), file, said, CorruptDataError)
    for name, file, written, said in (
        ("broken off", "a.json", b'{"users": [', "Expecting value"),
        ("a user twice", "a.json", TWICE, "'a' occurs twice"),
        ("deep", "a.json", b"[" * 10**5, "recursion"),
        ("not packed", "b.json.gz", b"no gzip", ""),
        ("packed and cut", "b.json.gz", gzip.compress(TWICE)[:-9], ""),
    )
]
ROWS += [
    Refusal("no file", lambda: from_leaf("none"), "path", "none"),
    Refusal("a number for a path", lambda: from_leaf(3), "path", "3"),
    Refusal("a taken name", lambda: reading(content(), client="x"), "client", "taken"),
    Refusal("no such list", lambda: reading(content(), image="image"), "'image'", "'x', 'y'"),
    Refusal("packed and not", both_packed_and_not, "a.json", "a.json.gz"),
]
