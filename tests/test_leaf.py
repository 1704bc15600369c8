"""Files in LEAF's format are the federation that they say; whatever is wrong with one is named with file and user."""

import gzip
import json

import numpy as np
import pytest
from small import refused

import fedpriv as fp
from fedpriv.data.datasets import CorruptDataError, from_leaf

SIZES = {"ada": 2, "ben": 5, "cem": 1}


def records(count, first=0, width=3):
    x = (np.arange(count * width).reshape(count, width) + first) / 8
    return {"x": x.tolist(), "y": [float(i % 2) for i in range(count)]}


def content(sizes=SIZES, **changed):
    """Of a file, as JSON has it; `changed` replaces entries of it."""
    data = {user: records(count, 10 * i) for i, (user, count) in enumerate(sizes.items())}
    whole = {"users": [*sizes], "num_samples": [*sizes.values()], "user_data": data}
    return whole | {"hierarchies": ["play"] * len(sizes)} | changed


def write(file, whole):
    file.parent.mkdir(exist_ok=True)
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "wt") as text:
        json.dump(whole, text)
    return file


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_is_a_federation(name, tmp_path):
    file = write(tmp_path / name, content())
    for path in (file, str(file), tmp_path):
        data = from_leaf(path)
        assert {name: leaf.dtype.kind for name, leaf in data.items()} == {
            "features": "f",
            "label": "f",
            "client": "U",
        }
        assert data["client"].tolist() == ["ada"] * 2 + ["ben"] * 5 + ["cem"]
        expected = [row for own in content()["user_data"].values() for row in own["x"]]
        np.testing.assert_array_equal(data["features"], np.array(expected, np.float32))
        federation = fp.Federation.from_arrays(data, "client", num_classes=2)
        np.testing.assert_array_equal(federation.size, [2, 5, 1])
        assert federation.examples["label"].dtype == np.int32


def test_users_over_several_files(tmp_path):
    """Each in one of them or in several; integers of one and fractions of another are both numbers."""
    write(tmp_path / "part_1.json", content({"ada": 2, "ben": 1}))
    whole = {"ben": {"x": [[1, 2, 3]], "y": [7]}, "dan": {"x": [[0, 1, 2]], "y": [8]}}
    write(tmp_path / "part_2.json.gz", {"users": ["ben", "dan"], "user_data": whole})
    (tmp_path / "README.txt").write_text("no data")
    data = from_leaf(tmp_path, x="x", y="y")
    assert data["client"].tolist() == ["ada", "ada", "ben", "ben", "dan"]
    assert data["y"].tolist() == [0, 1, 0, 7, 8]
    assert data["x"].dtype == np.float32
    assert data["x"][3].tolist() == [1, 2, 3]
    assert fp.Federation.from_arrays(data, "client").num_clients == 3


def test_texts_and_images(tmp_path):
    """As LEAF's Shakespeare, and its FEMNIST if rows are kept."""
    texts = {"x": ["to be or not", "ARE YOU"], "y": [" ", "?"]}
    write(tmp_path / "a.json", {"users": ["hamlet"], "user_data": {"hamlet": texts}})
    data = from_leaf(tmp_path / "a.json", text="x", label="y")
    assert data["text"].tolist() == texts["x"]
    assert data["label"].tolist() == [" ", "?"]
    images = {"x": [[[0, 0.5], [1, 0]]] * 2, "y": [3, 61]}
    write(tmp_path / "b.json", {"users": ["f1"], "user_data": {"f1": images}})
    data = from_leaf(tmp_path / "b.json", image="x", label="y")
    assert data["image"].shape == (2, 2, 2, 1)
    assert data["label"].dtype == np.int32


def of_ben(**changed):
    """A file in which Ben's lists are these."""
    whole = content()
    whole["user_data"]["ben"] |= changed
    return whole


FIVE = records(5)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ([1], "it has no users or no user_data; give"),
        (content(users=None), "it has no users or no user_data"),
        (content({}), "it has no users"),
        (content(users=["ada", 3, "cem"]), "users: 3; give names"),
        (content(users=["ada", "ben", "ada"]), "user 'ada' occurs twice"),
        (content(users=["ada", "ben"]), "user_data has 'cem', which users has not"),
        (content(users=["ada", "ben", "cem", "dan"], num_samples=None), "user 'dan' is not in"),
        (content(num_samples=[2, 5]), r"num_samples: \[2, 5\] for 3 users; give"),
        (content(num_samples=[2, 6, 1]), "user 'ben' has 5 records, but 6 by num_samples"),
        (content({"ada": 2, "ben": 0}), "user 'ben' has no records; remove"),
        (of_ben(x=FIVE["x"][:4]), "user 'ben' has 4 in 'x', 5 in 'y'; give"),
        (of_ben(x=None), "user 'ben' has no list 'x', only 'x', 'y'"),
        (
            of_ben(x=records(5, width=2)["x"]),
            r"user 'ben': features: numbers of the shape \[2\], but",
        ),
        (
            of_ben(x=[*FIVE["x"][:4], [1.0]]),
            r"user 'ben': features: row 4 has the shape \[1\], row 0",
        ),
        (
            of_ben(x=[*FIVE["x"][:4], [1, None, 2]]),
            r"user 'ben': features: row 4 is \[1, None, 2\]",
        ),
        (of_ben(y=[0, 1, None, 0, 1]), "user 'ben': label: row 2 is None; leave out"),
        (of_ben(y=[0, 1, float("nan"), 0, 1]), "user 'ben': label: row 2 is not finite"),
        (of_ben(y=list("abcde")), r"user 'ben': label: strings of the shape \[\], but numbers"),
        (of_ben(y=[0, "1", 0, 0, 1]), "user 'ben': label: row 1 is '1', row 0 is 0; give all"),
    ],
)
def test_what_is_wrong_is_named(whole, said, tmp_path):
    file = write(tmp_path / "all.json", whole)
    with refused(f"{file}: {said}"):
        from_leaf(tmp_path)


def test_files_that_cannot_be_read(tmp_path):
    file = tmp_path / "a.json"
    twin = '{"users": ["a"], "user_data": {"a": {"x": [1], "y": [1]}, "a": {"x": [2], "y": [2]}}}'
    faults = {
        '{"users": [': "Expecting value",
        twin: "'a' occurs twice in one",
        "[" * 10**5: "recursion",
    }
    for text, said in faults.items():
        file.write_text(text)
        with refused(f"{file}: it cannot be read .*{said}", CorruptDataError):
            from_leaf(file)
    for damaged in (b"no gzip", gzip.compress(twin.encode())[:-9]):
        (tmp_path / "b.json.gz").write_bytes(damaged)
        with refused(r"b\.json\.gz: it cannot be read", CorruptDataError):
            from_leaf(tmp_path / "b.json.gz")


def test_what_is_given_for_files_and_columns(tmp_path):
    with refused("path: .*none is no file, and no folder of"):
        from_leaf(tmp_path / "none")
    with refused("path: 3; give a file"):
        from_leaf(3)
    file = write(tmp_path / "a.json", content())
    with refused("client: this name is taken by the users"):
        from_leaf(file, client="x")
    with refused("user 'ada' has no list 'image', only 'x', 'y'; name existing columns"):
        from_leaf(file, image="image")
    write(tmp_path / "a.json.gz", content())
    with refused(r"a\.json: a\.json\.gz exists, too; remove one"):
        from_leaf(tmp_path)


@pytest.mark.parametrize("name", ["a.JSON", "A.json.GZ", "a.Json"])
def test_files_of_any_case_and_nothing_else(name, tmp_path):
    """Hidden files, such as those of macOS, and folders are left out; a byte-order mark is read over."""
    write(tmp_path / "all.json", content())
    (tmp_path / "all.json").rename(tmp_path / "other")
    marked = b"\xef\xbb\xbf" + (tmp_path / "other").read_bytes()
    zipped = name.lower().endswith(".gz")
    (tmp_path / name).write_bytes(gzip.compress(marked) if zipped else marked)
    (tmp_path / "._all.json").write_bytes(b"\0\1")
    (tmp_path / "more.json").mkdir()
    assert sorted(set(from_leaf(tmp_path)["client"])) == ["ada", "ben", "cem"]


@pytest.mark.parametrize("name", ["", "ada\0"])
def test_a_name_that_numpy_does_not_keep(name, tmp_path):
    """NumPy drops a zero at the end, so that two users would become one client."""
    own = {"x": [[1.0]], "y": [0]}
    write(tmp_path / "a.json", {"users": ["ada", name], "user_data": {"ada": own, name: own}})
    with refused("users: .*; give names, which are strings"):
        from_leaf(tmp_path)


def test_names_in_any_script_are_kept_apart(tmp_path):
    users = ["\u00e9", "e\u0301", "\u7528\u6237", "a", "a "]
    data = {user: {"x": [[1.0]], "y": [0]} for user in users}
    write(tmp_path / "a.json", {"users": users, "user_data": data})
    assert from_leaf(tmp_path)["client"].tolist() == users


def test_numbers_beyond_32_bits_are_refused_without_a_warning(tmp_path):
    own = {"x": [[1e300, 0.5]], "y": [0]}
    write(tmp_path / "a.json", {"users": ["ada"], "user_data": {"ada": own}})
    with refused("user 'ada': features: row 0 is not finite"):
        from_leaf(tmp_path)
