"""Data sets of Hugging Face and PyTorch become the arrays that they hold.

Stand-ins follow the two protocols; where the packages are installed, the real ones are read as well.
"""

import numpy as np
import pytest
from PIL import Image
from small import refused

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
    with pytest.raises(ValueError, match=r"^label: there is no column 'label', only img, kind"):
        from_huggingface(table, image="img", label="label")


def test_a_table():
    check_table(Table)
    mixed = Table(image=[*pictures(GRAY[:1]), *pictures(COLOUR[1:])], label=KIND)
    image = from_huggingface(mixed)["image"]
    equal(image[0], np.repeat(GRAY[0, ..., None], 3, -1), np.uint8)
    equal(image[1:], COLOUR[1:], np.uint8)


def test_rows_that_do_not_go_together():
    odd = [*pictures(GRAY), Image.new("L", (3, 3))]
    with pytest.raises(
        ValueError, match=r"^image: row 4 has the shape \[3, 3, 1\], row 0 has \[5, 6, 1\]"
    ):
        from_huggingface(Table(image=odd, label=[0] * 5))
    with pytest.raises(ValueError, match=r"^label: row 1 is None; leave out"):
        from_huggingface(Table(label=[0, None]), label="label")
    with pytest.raises(ValueError, match=r"^x: row 0 is \[\[1\], \[1, 2\]\]"):
        from_huggingface(Table(x=[[[1], [1, 2]]]), x="x")
    splits = Table(train=0, test=0)
    splits.num_rows = {"train": 1, "test": 1}
    with pytest.raises(ValueError, match=r"has the splits train, test; give one"):
        from_huggingface(splits)


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
    with pytest.raises(ValueError, match=r"^dataset\[0\]: 2 entries for the names image, label, c"):
        from_torch(pairs, ("image", "label", "client"))
    with refused("names: .*; give each entry a name"):
        from_torch(pairs, ("image", "image"))
    with pytest.raises(ValueError, match=r"without length or indices"):
        from_torch(iter(pairs))
    with pytest.raises(ValueError, match=r"it is empty"):
        from_torch([])


def test_texts():
    equal(encode_text(["aß", "", "abcd"], 3), [[97, 195, 159], [0, 0, 0], [97, 98, 99]], np.uint8)
    with pytest.raises(ValueError, match=r"^length: 0; give a whole number"):
        encode_text(["a"], 0)
    with pytest.raises(ValueError, match=r"^texts: 'ab'; give a list"):
        encode_text("ab", 3)
    with pytest.raises(ValueError, match=r"^texts\[1\]: nan; give a text"):
        encode_text(["a", float("nan")], 3)


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


@pytest.mark.parametrize("end", ["\0", b"\0"])
def test_ids_that_numpy_would_cut_short_are_refused(end):
    with refused("client: row 1 is .*, of which NumPy drops the zeros at the end; strip them"):
        from_huggingface({"client": [end[:0], end]}, client="client")


def test_a_data_set_that_is_read_from_a_stream():
    with refused("dataset: a list_iterator without columns; give a split that is not streamed"):
        from_huggingface(iter([{"image": 0}]))


def test_numbers_that_no_type_holds_together():
    with refused(
        "client: whole numbers that do not all fit in one 64-bit type; give them as strings"
    ):
        from_huggingface({"client": [2**64 - 1, 2**64 - 2, -1]}, client="client")


def test_items_of_other_entries():
    items = [{"image": 1, "label": 0}, {"image": 2, "label": 1, "user": 7}]
    for several in (items, items[::-1]):
        with refused(r"dataset\[1\]: its entries are image, label.*; give all"):
            from_torch(several)
