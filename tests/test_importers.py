"""Data sets of Hugging Face and PyTorch become the arrays that they hold.

Stand-ins follow the two protocols; where the packages are installed, the real ones are read as well.
"""

from collections import deque
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import fedpriv as fp
from fedpriv.data.datasets import encode_text, from_huggingface, from_partitions, from_torch

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (4, 5, 6), np.uint8)
COLOUR = RNG.integers(0, 256, (4, 5, 6, 3), np.uint8)
KIND = [2, 0, 1, 2]


class Table(dict):
    """Columns by name."""

    @property
    def column_names(self):
        return list(self)


class Tensor:
    """What of a tensor is read."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.array


def pictures(images):
    return [Image.fromarray(image) for image in images]


def equal(found, expected, kind):
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == kind


def check_table(table_of):
    table = table_of(
        {"img": pictures(GRAY), "kind": KIND, "writer": list("baab"), "x": [[0.5, 1]] * 4}
    )
    found = from_huggingface(table, image="img", label="kind", client="writer", x="x")
    equal(found["image"], GRAY[..., None], np.uint8)
    equal(found["label"], KIND, np.int32)
    equal(found["x"], [[0.5, 1]] * 4, np.float32)
    assert found["client"].tolist() == list("baab")
    found = from_huggingface(table_of({"image": pictures(COLOUR), "label": KIND}))
    equal(found["image"], COLOUR, np.uint8)


def test_a_table():
    check_table(Table)
    mixed = Table(image=[*pictures(GRAY[:1]), *pictures(COLOUR[1:])], label=KIND)
    image = from_huggingface(mixed)["image"]
    equal(image[0], np.repeat(GRAY[0, ..., None], 3, -1), np.uint8)
    equal(image[1:], COLOUR[1:], np.uint8)


def check_items(tensor):
    first = np.moveaxis(COLOUR, -1, 1)
    found = from_torch([(tensor(image), k) for image, k in zip(first, KIND, strict=True)])
    equal(found["image"], COLOUR, np.uint8)
    equal(found["label"], KIND, np.int32)
    items = [{"image": tensor(image), "writer": "b"} for image in GRAY.astype(np.float32)]
    found = from_torch(items)
    equal(found["image"], GRAY[..., None], np.float32)
    assert found["writer"].tolist() == ["b"] * 4
    last = from_torch([(tensor(image), 0) for image in COLOUR], channels_first=False)
    equal(last["image"], COLOUR, np.uint8)


def test_items():
    check_items(Tensor)
    pairs = list(zip(pictures(COLOUR), KIND, strict=True))
    equal(from_torch(pairs)["image"], COLOUR, np.uint8)  # pictures have their channels last


def test_texts():
    equal(encode_text(["aß", "", "abcd"], 3), [[97, 195, 159], [0, 0, 0], [97, 98, 99]], np.uint8)


@pytest.fixture
def datasets(monkeypatch):
    """Hugging Face's package, which looks for nothing elsewhere."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


def test_hugging_face_itself(datasets):
    check_table(datasets.Dataset.from_dict)
    split = datasets.Dataset.from_dict({"label": KIND})
    with pytest.raises(ValueError, match="has the splits train; give one"):
        from_huggingface(datasets.DatasetDict(train=split))


def test_a_stream_is_its_rows():
    """Whatever gives dicts."""
    rows = ({"img": image, "kind": k, "y": None} for image, k in zip(GRAY, KIND, strict=True))
    found = from_huggingface(rows, most_rows=4, image="img", label="kind")
    equal(found["image"], GRAY[..., None], np.uint8)
    equal(found["label"], KIND, np.int32)


@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_rows_in_a_list_are_a_stream(kind):
    """One that has an end, whatever `most_rows` says; a column may be read twice."""
    rows = kind({"img": image, "kind": k} for image, k in zip(GRAY, KIND, strict=True))
    found = from_huggingface(rows, most_rows=2, image="img", label="kind", again="kind")
    equal(found["image"], GRAY[..., None], np.uint8)
    equal(found["label"], KIND, np.int32)
    equal(found["again"], KIND, np.int32)


def test_a_stream_is_not_read_on_for_a_column_that_it_has_not():
    """However long it is: its first row says what there is."""
    given = ({"img": 0, "kind": i} for i in count())
    with pytest.raises(
        ValueError, match="label: there is no column 'label' in dataset, only img, kind"
    ):
        from_huggingface(given, image="img", label="label")
    assert next(given)["kind"] == 1


def test_a_stream_of_parquet_is_what_the_set_is(datasets, tmp_path, monkeypatch):
    """Classes are numbers, whose names the set has; a stream without end ends where it is told to."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    kinds = datasets.ClassLabel(names=["ant", "bee", "cat"])
    features = {"image": datasets.Image(), "label": kinds, "who": datasets.Value("string")}
    columns = {"image": pictures(COLOUR), "label": KIND, "who": list("baab")}
    split = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    split.to_parquet(tmp_path / "train.parquet")
    files = {"train": str(tmp_path / "train.parquet")}
    stream = datasets.load_dataset("parquet", data_files=files, streaming=True)
    with pytest.raises(ValueError, match="has the splits train; give one"):
        from_huggingface(stream)
    train = stream["train"]
    found = from_huggingface(train, image="image", label="label", client="who")
    equal(found["image"], COLOUR, np.uint8)
    equal(found["label"], KIND, np.int32)
    assert found["client"].tolist() == list("baab")
    assert train.features["label"].names == kinds.names
    with pytest.raises(ValueError, match="more than 9 rows"):
        from_huggingface(train.repeat(None), most_rows=9)
    equal(
        from_huggingface(train.repeat(None).take(9), most_rows=9)["label"], (KIND * 3)[:9], np.int32
    )


def test_partitions_are_clients():
    """As `from_huggingface` reads all rows at once, so that no partition decides a type; a partitioner as a list."""
    parts = [{"x": [1, 2**40], "who": ["a", "b"]}, {"x": [3], "who": ["c"]}]
    found = from_partitions(parts, x="x", who="who")
    equal(found["x"], [1, 2**40, 3], np.int64)
    equal(found["client"], [0, 0, 1], np.int32)
    assert found["who"].tolist() == ["a", "b", "c"]
    partitioner = SimpleNamespace(num_partitions=2, load_partition=lambda i: parts[i])
    assert from_partitions(partitioner, x="x")["x"].tolist() == [1, 2**40, 3]


def test_flower_s_partitions_are_clients(datasets):
    """By a Dirichlet law, and by who wrote them."""
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    labels, writers = RNG.integers(0, 3, 60), RNG.choice(list("abcd"), 60)
    columns = {
        "image": pictures(RNG.integers(0, 256, (60, 5, 6), np.uint8)),
        "label": labels,
        "who": writers,
    }
    split = datasets.Dataset.from_dict(columns)
    drawn = partitioners.DirichletPartitioner(
        5, partition_by="label", alpha=1.0, min_partition_size=1
    )
    for partitioner in (drawn, partitioners.NaturalIdPartitioner("who")):
        partitioner.dataset = split
        found = from_partitions(partitioner, image="image", label="label", who="who")
        count = partitioner.num_partitions
        own = [partitioner.load_partition(i) for i in range(count)]
        assert np.bincount(found["client"]).tolist() == [len(part) for part in own]
        assert found["label"].tolist() == [label for part in own for label in part["label"]]
        assert fp.Federation.from_arrays(found, "client", person="who").num_clients == count
        listed = from_partitions(own, image="image", label="label", who="who")
        assert all(np.array_equal(found[name], listed[name]) for name in found)
    assert len(set(zip(found["client"], found["who"], strict=True))) == len(set(writers))


def test_torch_itself():
    torch = pytest.importorskip("torch")
    check_items(torch.from_numpy)
    pairs = torch.utils.data.TensorDataset(torch.zeros(4, 3, 5, 6), torch.tensor(KIND))
    equal(from_torch(pairs)["label"], KIND, np.int32)
    assert from_torch(pairs)["image"].shape == (4, 5, 6, 3)


@pytest.mark.parametrize(
    "ids",
    [
        [2.0**24, 2.0**24 + 1, 3.0],
        [1_700_000_001.0, 1_700_000_002.0, 1.0],
        [2**53, 2**53 + 1, 1],
        [2**40, 2**40 + 1, -1],
        [2**64 - 1, 2**64 - 2, 2**63],
        ["a", "a ", "A"],
    ],
)
def test_ids_that_differ_stay_different(ids):
    """However a library holds them: two users never become one client."""
    data = from_huggingface({"user": ids, "x": [0.5] * 3}, client="user", x="x")
    assert data["client"].tolist() == ids
    assert fp.Federation.from_arrays(data, "client").num_clients == 3


def test_only_pictures_can_be_resized():
    """Lists of unlike length are none."""
    unlike = pictures([COLOUR[0], COLOUR[1, 1:]])
    with pytest.raises(ValueError, match=r"^x: row 1 has the shape .*; give all the same shape$"):
        from_huggingface(Table(x=[[1, 2], [1]]), x="x")
    with pytest.raises(ValueError, match="give all the same shape, by resizing pictures"):
        from_huggingface(Table(image=unlike), image="image")
