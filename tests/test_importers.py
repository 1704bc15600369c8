"""Data sets of Hugging Face and PyTorch become the arrays that they hold.

Stand-ins follow the two protocols; where the packages are installed, the real ones are read as well.
"""

import numpy as np
import pytest
from PIL import Image

import fedpriv as fp
from fedpriv.data.datasets import encode_text, from_huggingface, from_torch

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


def test_the_packages_themselves():
    """The two protocols, as `datasets` and `torch` have them."""
    datasets = pytest.importorskip("datasets")
    check_table(datasets.Dataset.from_dict)
    split = datasets.Dataset.from_dict({"label": KIND})
    with pytest.raises(ValueError, match="has the splits train; give one"):
        from_huggingface(datasets.DatasetDict(train=split))


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
