"""Files in LEAF's format are the federation that they say; whatever is wrong with one is named with file and user."""

import gzip
import json

import numpy as np
import pytest
from refused.leaf import content, of_names

import fedpriv as fp
from fedpriv.data.datasets import from_leaf


def write(file, whole):
    text = json.dumps(whole).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
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


def test_names_in_any_script_are_kept_apart(tmp_path):
    users = ["\u00e9", "e\u0301", "\u7528\u6237", "a", "a "]
    write(tmp_path / "a.json", of_names(*users))
    assert from_leaf(tmp_path)["client"].tolist() == users
