"""Whatever a table is written as, Parquet or Arrow, one file or many: its columns come back, in their types."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import fedpriv as fp
from fedpriv.data.datasets import from_huggingface, from_parquet, from_tokens

RNG = np.random.default_rng(0)
N = 7
EXPECTED = {
    "image": RNG.integers(0, 256, (N, 3, 2, 1), np.uint8),
    "label": RNG.integers(0, 5, N).astype(np.int32),
    "client": np.array(list("abacaba")),
    "x": RNG.normal(size=(N, 4)).astype(np.float32),
    "flag": RNG.random(N) < 0.5,
    "time": np.arange(N).astype("M8[us]"),
}
PIXELS, KINDS = EXPECTED["image"], pa.list_(pa.list_(pa.list_(pa.uint8())))
TABLE = pa.table(
    {
        "image": pa.array(PIXELS.tolist(), KINDS),
        "label": EXPECTED["label"].astype(np.int64),
        "client": pa.array(EXPECTED["client"].tolist()).dictionary_encode(),
        "x": pa.FixedSizeListArray.from_arrays(EXPECTED["x"].astype(float).ravel(), 4),
        "flag": EXPECTED["flag"],
        "time": EXPECTED["time"],
    }
)
LEAVES = {name: name for name in EXPECTED}


def stream(table, file):
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def check(found, rows=slice(None)):
    assert found.keys() == EXPECTED.keys()
    for name, leaf in found.items():
        np.testing.assert_array_equal(leaf, EXPECTED[name][rows])
        assert leaf.dtype == EXPECTED[name].dtype


def test_tables_in_memory():
    """Of Arrow, in one piece or several; and of pandas, where pictures are no lists."""
    check(from_huggingface(TABLE, **LEAVES))
    check(from_huggingface(pa.concat_tables([TABLE[:3], TABLE[3:]]), **LEAVES))
    frame = pd.DataFrame({"a": EXPECTED["label"], "b": list("abacaba")})
    found = from_huggingface(frame, label="a", client="b")
    np.testing.assert_array_equal(found["label"], EXPECTED["label"])
    assert found["client"].tolist() == frame["b"].tolist()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", parquet.write_table),
        ("a.feather", feather.write_feather),
        ("a.arrow", stream),
        ("a.PARQUET", lambda table, file: parquet.write_table(table, file, row_group_size=2)),
    ],
)
def test_files(name, write, tmp_path):
    """One file; its folder, with what is no table beside it; and several files in a list."""
    write(TABLE, str(tmp_path / name))
    (tmp_path / "README.md").write_text("no table")
    (tmp_path / f".{name}").write_text("hidden")
    check(from_parquet(tmp_path / name, **LEAVES))
    check(from_parquet(str(tmp_path), **LEAVES))
    write(TABLE[:4], str(tmp_path / name))
    (tmp_path / "more").mkdir()
    write(TABLE[4:], str(tmp_path / "more" / name))
    check(from_parquet(tmp_path, **LEAVES))
    check(from_parquet([tmp_path / "more" / name], **LEAVES), slice(4, None))


def test_a_pandas_table_trains(tmp_path):
    """As its docs say to write it, from the file to a federation."""
    pd.DataFrame({"user": [7, 7, 9], "kind": [0, 1, 1], "age": [30.0, 31.0, 50.0]}).to_parquet(
        tmp_path / "t.parquet"
    )
    data = from_parquet(tmp_path / "t.parquet", x="age", label="kind", client="user")
    federation = fp.Federation.from_arrays(data, "client", num_classes=2)
    np.testing.assert_array_equal(federation.size, [2, 1])


def test_folders_that_say_a_column(tmp_path):
    """As strings, so that no two clients become one; %2F and others are as they were."""
    users = ["07", "7", "a/b=c"]
    table = pa.table({"user": users, "x": [1.0, 2.0, 3.0]})
    parquet.write_to_dataset(table, tmp_path / "set", partition_cols=["user"])
    found = from_parquet(tmp_path / "set", x="x", client="user")
    pairs = zip(found["client"].tolist(), found["x"].tolist(), strict=True)
    assert sorted(pairs) == [("07", 1.0), ("7", 2.0), ("a/b=c", 3.0)]


SPLITS = [  # of one set, as they are called
    ("mnist-train.arrow", "mnist-test.arrow"),
    ("a.train.parquet", "a.test.parquet"),
    ("training.parquet", "testing.parquet"),
    ("TRAIN.PARQUET", "TEST.PARQUET"),
    ("Xtrain.parquet", "Xtest.parquet"),
    ("X_train.parquet", "X_test.parquet"),
    ("mnistTrain.parquet", "mnistVal.parquet"),
    ("trainA/0.parquet", "testA/0.parquet"),
    ("my trainset/0.parquet", "my testset/0.parquet"),
    ("data/train2020/0.parquet", "data/val2020/0.parquet"),
    ("split=train/0.parquet", "split=evaluation/0.parquet"),
    ("development/0.parquet", "hold-out/0.parquet"),
    ("train/0.parquet", "extra/0.parquet"),
    ("0.parquet", "0-test.parquet"),
    ("train/a-train.parquet", "train/a-test.parquet"),
]
NO_SPLITS = [
    ("latest.parquet", "contest.parquet"),
    ("TESTAMENT.parquet", "strain.parquet"),
    ("value=1/0.parquet", "value=2/0.parquet"),
    ("devices/0.parquet", "evaluator/testimony.parquet"),
    ("train-0.parquet", "train-1.parquet"),
    ("training/0.parquet", "Train/1.parquet"),
]


def written(names, folder):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"x": [1.0]}), folder / name)


@pytest.mark.parametrize("names", SPLITS, ids=" ".join)
def test_several_splits_are_never_one_array(names, tmp_path):
    """Nor one that says which it is, and files that do not; each alone is read."""
    written(names, tmp_path)
    with pytest.raises(ValueError, match=r"^path: .* has files of "):
        from_parquet(tmp_path, x="x")
    for name in names:
        assert from_parquet(tmp_path / name, x="x")["x"].tolist() == [1.0]


@pytest.mark.parametrize("names", NO_SPLITS, ids=" ".join)
def test_other_words_say_no_split(names, tmp_path):
    written(names, tmp_path)
    assert from_parquet(tmp_path, x="x")["x"].tolist() == [1.0, 1.0]


def test_what_hugging_face_saved(tmp_path):
    """The files that it names, not what it has cached beside them."""
    stream(TABLE, str(tmp_path / "data-00000-of-00001.arrow"))
    stream(TABLE[:2], str(tmp_path / "cache-0123.arrow"))
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    check(from_parquet(tmp_path, **LEAVES))


def test_tokens_of_a_column():
    texts, users = [[1, 2, 3], [2, 3, 4, 1]], ["a", "b"]
    table = pa.table({"ids": texts, "user": users})
    found = from_tokens(table["ids"], table["user"], length=3, vocabulary=5)
    expected = from_tokens(texts, users, length=3, vocabulary=5)
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf)


def test_null_is_refused_and_nan_is_a_number_until_it_is_trained_on(tmp_path):
    """Each with its row."""
    for value, kind in ((None, "null"), (float("nan"), "nan")):
        table = pa.table({"x": [1.0, value, 3.0], "user": ["a", "b", "b"]})
        parquet.write_table(table, tmp_path / f"{kind}.parquet")
    with pytest.raises(ValueError, match=r"^x: row 1 is None"):
        from_parquet(tmp_path / "null.parquet", x="x", client="user")
    data = from_parquet(tmp_path / "nan.parquet", x="x", client="user")
    np.testing.assert_array_equal(np.isnan(data["x"]), [False, True, False])
    with pytest.raises(ValueError, match="in row 1"):
        fp.Federation.from_arrays(data, "client")
