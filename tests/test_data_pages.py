"""Pages of one's own data that need a package or files which are not there; `test_site_pages.py` runs the others."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from small import refused
from test_importers import Table, Tensor
from test_site_pages import DOCS, EXAMPLE

import fedpriv as fp

RNG = np.random.default_rng(0)


def run(page):
    """The names that a page's examples leave, one after the other."""
    names: dict = {}
    for code, _ in EXAMPLE.findall((DOCS / "how_to" / page).read_text()):
        exec(code, names)
    return names


class Stream:
    """Rows, one after another, as `datasets` streams them."""

    def __init__(self, columns):
        self.columns = columns

    def take(self, n):
        return Stream({name: column[:n] for name, column in self.columns.items()})

    def __iter__(self):
        rows = zip(*self.columns.values(), strict=True)
        return (dict(zip(self.columns, row, strict=True)) for row in rows)


def picture():
    return Image.fromarray(RNG.integers(0, 256, (28, 28), np.uint8))


def flower():
    """Stand-ins for the modules of Flower, whose partitions have a picture each."""
    module, partitioners = map(types.ModuleType, ("flwr_datasets", "flwr_datasets.partitioner"))
    partitioners.DirichletPartitioner = lambda num_partitions, partition_by, alpha: num_partitions
    of_one = types.SimpleNamespace(
        load_partition=lambda i, name: Table(image=[picture()], label=[i % 10])
    )
    module.FederatedDataset = lambda dataset, partitioners: of_one
    return {each.__name__: each for each in (module, partitioners)}


def test_hugging_face(monkeypatch):
    """With the package where it is installed, else with a stand-in; nothing is downloaded."""
    try:
        import datasets
    except ImportError:
        datasets = types.ModuleType("datasets")
        monkeypatch.setitem(sys.modules, "datasets", datasets)
    columns = {
        "image": [picture() for _ in range(3)],
        "character": [0, 61, 7],
        "writer_id": ["f1", "f2", "f1"],
    }
    own = datasets.Dataset.from_dict(columns) if hasattr(datasets, "Dataset") else Table(columns)

    def load(name, split=None, streaming=False):
        return Stream(columns) if streaming else {"train": own}

    monkeypatch.setattr(datasets, "load_dataset", load, raising=False)
    for name, module in flower().items():
        monkeypatch.setitem(sys.modules, name, module)
    names = run("hugging_face.md")
    np.testing.assert_array_equal(names["writers"].size, [2, 1])
    assert names["writers"].examples["image"].shape == (3, 28, 28, 1)
    assert names["federation"].num_clients == 100


class TensorDataset:
    """Items are tuples of a row of each tensor."""

    def __init__(self, *tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors[0].array)

    def __getitem__(self, i):
        return tuple(Tensor(np.asarray(tensor.array[i])) for tensor in self.tensors)


def test_torch(monkeypatch):
    """With the package where it is installed, else with a stand-in."""
    try:
        import torch  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("torch")
        stand_in.utils = types.SimpleNamespace(
            data=types.SimpleNamespace(TensorDataset=TensorDataset)
        )
        stand_in.tensor = lambda values: Tensor(np.asarray(values))
        monkeypatch.setitem(sys.modules, "torch", stand_in)
    names = run("pytorch.md")
    np.testing.assert_array_equal(names["users"].size, [2, 1])
    assert names["users"].examples["features"].shape == (3, 2)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("hospital", r"examples\['hospital'\]: nan in row 1"),
        ("age", r"examples\['age'\]: nan in row 1"),
        ("label", r"examples\['label'\]: -1 in row 1"),
    ],
)
def test_a_gap_in_a_table_is_named_with_its_row(column, said):
    """As pandas reads it from a file, and numbers a class that is missing."""
    table = pd.DataFrame(
        {"hospital": ["a", "b"], "age": [61.0, 35.0], "diagnosis": ["flu", "cold"]}
    )
    table.loc[1, "diagnosis" if column == "label" else column] = np.nan
    label, diagnoses = pd.factorize(table.pop("diagnosis"), sort=True)
    with refused(said):
        fp.Federation.from_arrays(table.assign(label=label), "hospital", num_classes=len(diagnoses))
