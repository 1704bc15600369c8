"""Files in LEAF's format, and what is in them."""

import gzip
import json
from functools import partial
from pathlib import Path

from fedpriv.data.datasets import CorruptDataError, from_leaf

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


def reading(whole, **options):
    Path("a.json").write_text(json.dumps(whole))
    return from_leaf("a.json", **options)


def reading_bytes(name, written):
    Path(name).write_bytes(written)
    return from_leaf(name)


def both_packed_and_not():
    Path("data").mkdir()
    Path("data/a.json").write_text(json.dumps(content()))
    Path("data/a.json.gz").write_bytes(gzip.compress(Path("data/a.json").read_bytes()))
    from_leaf("data")


def of_names(*users):
    return {"users": [*users], "user_data": {user: {"x": [[1.0]], "y": [0]} for user in users}}


X, FOUR = records(5)["x"], ["ada", "ben", "cem", "dan"]
TWICE = b'{"users": ["a"], "user_data": {"a": {"x": [1], "y": [1]}, "a": {"x": [2], "y": [2]}}}'
CONTENTS = [
    ([1], "a.json", "it has no users"),
    (content(users=None), "a.json", "it has no users"),
    (content({}), "a.json", "it has no users"),
    (content(users=["ada", 3, "cem"]), "users", "3"),
    (content(users=["ada", "ben", "ada"]), "user 'ada'", "twice"),
    (content(users=["ada", "ben"]), "user_data", "'cem'"),
    (content(users=FOUR, num_samples=None), "user 'dan'", "user_data"),
    (content(num_samples=[2, 5]), "num_samples", "[2, 5]"),
    (content(num_samples=[2, 6, 1]), "user 'ben'", "6 by num_samples"),
    (content({"ada": 2, "ben": 0}), "user 'ben'", "no records"),
    (of_ben(x=X[:4]), "user 'ben'", "4 in 'x', 5 in 'y'"),
    (of_ben(x=None), "user 'ben'", "no list 'x'"),
    (of_ben(x=records(5, width=2)["x"]), "user 'ben': features", "[2]"),
    (of_ben(x=[*X[:4], [1.0]]), "user 'ben': features", "row 4 has the shape [1]"),
    (of_ben(x=[*X[:4], [1, None, 2]]), "user 'ben': features", "row 4 is [1, None, 2]"),
    (of_ben(y=[0, 1, None, 0, 1]), "user 'ben': label", "row 2 is None"),
    (of_ben(y=[0, 1, float("nan"), 0, 1]), "user 'ben': label", "row 2 is not finite"),
    (of_ben(y=list("abcde")), "user 'ben': label", "strings"),
    (of_ben(y=[0, "1", 0, 0, 1]), "user 'ben': label", "'1'"),
    (of_ben(x=[[1e300, 0.5, 0.5]] * 5), "user 'ben': features", "row 0 is not finite"),
    (of_names("ada", ""), "users", "''"),
    (of_names("ada", "ada\0"), "users", r"'ada\x00'"),
]
DAMAGED = [
    ("a.json", b'{"users": [', "Expecting value"),
    ("a.json", TWICE, "'a' occurs twice"),
    ("a.json", b"[" * 10**5, "recursion"),
    ("b.json.gz", b"no gzip", "Not a gzipped file"),
    ("b.json.gz", gzip.compress(TWICE)[:-9], "ended before"),
]
ROWS = [
    ("no file", lambda: from_leaf("none"), "path", "none"),
    ("a number for a path", lambda: from_leaf(3), "path", "3"),
    ("a taken name", lambda: reading(content(), client="x"), "client", "taken"),
    ("no such list", lambda: reading(content(), image="image"), "'image'", "'x', 'y'"),
    ("packed and not", both_packed_and_not, "a.json", "a.json.gz"),
]
for place, (whole, field, shown) in enumerate(CONTENTS):
    ROWS.append((f"{place}, {field}", partial(reading, whole), field, ("a.json:", shown)))
for file, written, shown in DAMAGED:
    call = partial(reading_bytes, file, written)
    ROWS.append((f"damaged: {shown}", call, file, shown, CorruptDataError))
