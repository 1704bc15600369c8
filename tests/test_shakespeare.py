"""Shakespeare's roles: pieces of 80 characters, the split of a role, and damaged files."""

import gzip
import json

import numpy as np
import pytest

from fedpriv.data.datasets import load, shakespeare

LONG = "x" * 79  # with its begin, 80 inputs; with its end, 80 targets: exactly one piece
SPEECHES = [
    ("A", "ANN", "Hi!"),
    ("A", "BOB", "only once"),
    ("A", "ANN", LONG),
    ("B", "ANN", LONG + "y"),  # 82 tokens: the second piece would hold only the end
    ("A", "ANN", "c"),
    ("B", "ANN", LONG + "yz"),  # 83 tokens: the second piece is z -> end
    ("A", "ANN", "d"),
    ("A", "ANN", "e\n\u00e9\u4e2d"),
]


def write_plays(path, speeches=SPEECHES):
    lines = [
        json.dumps({"play": p, "act": 1, "scene": 1, "speaker": s, "text": t}) + "\n"
        for p, s, t in speeches
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.writelines(lines)


def ids(text):
    return [shakespeare.CHARACTERS.index(c) + 1 for c in text]


@pytest.mark.parametrize(
    "place", ["tfds/shakespeare/plays.jsonl.gz", "tfds/plays.jsonl", "shakespeare/plays.jsonl.gz"]
)
def test_shakespeare(tmp_path, place):
    write_plays(tmp_path / place)
    dataset = load("shakespeare", tmp_path / "tfds")
    train, test = dataset.train, dataset.test
    assert dataset.num_classes == 90
    np.testing.assert_array_equal(dataset.keys, [0, 0, 0, 0, 1])  # (A, ANN) and (B, ANN)
    assert train["text"].shape == (5, 80)
    assert (train["text"].dtype, train["label"].dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(train["text"][0, :6], [88, *ids("Hi!"), 89, 0])
    np.testing.assert_array_equal(train["label"][0, :6], [*ids("Hi!"), 89, 0, 0])
    np.testing.assert_array_equal(train["mask"].sum(1), [4, 80, 2, 2, 80])
    np.testing.assert_array_equal(train["label"][1], [*ids(LONG), 89])
    np.testing.assert_array_equal(test["label"][0, :6], [*ids("e\n"), 87, 87, 89, 0])
    np.testing.assert_array_equal(test["mask"].sum(1), [5, 80, 1])
    np.testing.assert_array_equal(test["text"][2, :3], [*ids("z"), 89, 0])
    for split in (train, test):
        np.testing.assert_array_equal(split["mask"], split["label"] != 0)
        assert split["mask"].dtype == bool


def test_some_plays_of_all(tmp_path):
    """In their order in the file; together the parts are the whole."""
    write_plays(tmp_path / "plays.jsonl")
    whole = shakespeare.load_shakespeare(tmp_path)
    first, other = (shakespeare.load_shakespeare(tmp_path, p) for p in (slice(1), slice(1, None)))
    np.testing.assert_array_equal(first.keys, [0] * 4)
    np.testing.assert_array_equal(other.keys, [0])
    for split in ("train", "test"):
        both = (getattr(part, split)["text"] for part in (first, other))
        np.testing.assert_array_equal(np.concatenate([*both]), getattr(whole, split)["text"])


def test_the_roles_with_the_most_text(tmp_path):
    """In their order in the file, each with all of its examples."""
    said = {"ANN": 3, "BOB": 9, "CAT": 5, "DAN": 9}
    write_plays(
        tmp_path / "plays.jsonl", [("A", who, who) for who in said for _ in range(said[who])]
    )
    chosen = shakespeare.load_shakespeare(tmp_path, roles=2)
    np.testing.assert_array_equal(chosen.keys, [0] * 7 + [1] * 7)  # four fifths of nine
    texts = np.concatenate([chosen.train["text"], chosen.test["text"]])
    np.testing.assert_array_equal(
        texts[:, 1:4], [ids("BOB")] * 7 + [ids("DAN")] * 7 + [ids("BOB")] * 2 + [ids("DAN")] * 2
    )
    for wrong in (0, 5):
        with pytest.raises(ValueError, match=f"roles: {wrong}; these plays have 4"):
            shakespeare.load_shakespeare(tmp_path, roles=wrong)


def test_the_vocabulary():
    assert len(set(shakespeare.CHARACTERS)) == len(shakespeare.CHARACTERS) == 86
    special = (shakespeare.PAD, shakespeare.UNKNOWN, shakespeare.BEGIN, shakespeare.END)
    assert special == (0, 87, 88, 89)


@pytest.mark.parametrize(("count", "train"), [(2, 1), (3, 2), (4, 3), (5, 4), (9, 7), (10, 8)])
def test_the_split_of_a_role(tmp_path, count, train):
    write_plays(tmp_path / "plays.jsonl", [("A", "ANN", "abc")] * count)
    dataset = load("shakespeare", tmp_path)
    assert (len(dataset.train["text"]), len(dataset.test["text"])) == (train, count - train)
