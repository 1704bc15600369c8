"""The examples of fedpriv/data/README.md run as they stand there, on small files of the same form."""

import json
import sys
import types

import jax
import numpy as np
import pytest
from PIL import Image
from test_importers import Table, Tensor
from test_readme import snippets

import fedpriv as fp

RNG = np.random.default_rng(0)


def run(word, names=None):
    """The names that the first example with the word leaves."""
    names = {"fp": fp} if names is None else names
    exec(next(text for text in snippets("fedpriv/data/README.md") if word in text), names)
    return names


def write_leaf(folder, user_data):
    users = {"users": [*user_data], "num_samples": [len(own["y"]) for own in user_data.values()]}
    folder.mkdir(parents=True)
    (folder / "all.json").write_text(json.dumps(users | {"user_data": user_data}))


def synthetic(sizes):
    """Users whose label is the largest of their features."""
    data = {}
    for user, count in sizes.items():
        x = RNG.normal(size=(count, 10))
        data[user] = {"x": x.tolist(), "y": [float(k) for k in x.argmax(1)]}
    return data


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def of_leaf(folder):
    """Two users who are in both parts, one who only trains, one who is new."""
    write_leaf(folder / "synthetic/data/train", synthetic({"ada": 40, "ben": 25, "cem": 3}))
    write_leaf(folder / "synthetic/data/test", synthetic({"dan": 6, "ben": 9, "ada": 7}))


def test_leaf(of_leaf):
    names = run("synthetic =")
    np.testing.assert_array_equal(names["synthetic"].size, [40, 25, 3])


def test_images_and_texts_of_leaf(folder):
    pixels = {"x": RNG.random((3, 784)).tolist(), "y": [0, 61, 5]}
    write_leaf(folder / "femnist/data/train", {"f1": pixels, "f2": pixels})
    write_leaf(folder / "celeba/data/train", {"7": {"x": ["1.jpg", "2.jpg"], "y": [0, 1]}})
    raw = folder / "celeba/data/raw/img_align_celeba"
    raw.mkdir(parents=True)
    for name in ("1.jpg", "2.jpg"):
        Image.new("RGB", (178, 218)).save(raw / name)
    lines = {"x": ["thou art ", "no more o"], "y": ["a", "f"]}
    write_leaf(folder / "shakespeare/data/train", {"KING": lines})
    names = run("femnist =")
    assert names["femnist"].examples["image"].shape == (6, 28, 28, 1)
    assert names["celeba"].examples["image"].shape == (2, 84, 84, 3)
    texts = names["shakespeare"].examples
    assert bytes(np.asarray(texts["text"][0])).rstrip(b"\0") == b"thou art "
    assert np.asarray(texts["label"]).tolist() == [ord("a"), ord("f")]


def test_folders_of_images(folder):
    for name in ("train/ada/cat", "train/ada/dog", "train/ben/cat", "test/cat", "test/dog"):
        (folder / "pets" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(folder / "pets" / name / "1.jpg")
    names = run("pets =")
    np.testing.assert_array_equal(names["pets"].size, [2, 1])
    assert names["test"]["label"].tolist() == [0, 1]


def test_csv(folder):
    rows = ["north,61,140,flu", "south,35,120,cold", "north,50,130,cold"]
    (folder / "visits.csv").write_text("\n".join(["hospital,age,pressure,diagnosis", *rows]))
    names = run("hospitals =")
    np.testing.assert_array_equal(names["hospitals"].size, [2, 1])
    assert np.asarray(names["hospitals"].examples["label"]).tolist() == [1, 0, 0]
    assert names["diagnoses"].tolist() == ["cold", "flu"]
    for missing, said in (
        (",50,130,flu", r"examples\['hospital'\]: nan in row 3"),
        ("south,50,,flu", r"examples\['features'\]: nan in row 3"),
        ("south,50,130,", r"examples\['label'\]: -1 in row 3"),
    ):
        lines = ["hospital,age,pressure,diagnosis", *rows, missing]
        (folder / "visits.csv").write_text("\n".join(lines))
        with pytest.raises(ValueError, match=said):
            run("hospitals =")


def test_hugging_face(monkeypatch):
    """With the package where it is installed, else with a stand-in; nothing is downloaded."""
    try:
        import datasets
    except ImportError:
        datasets = types.ModuleType("datasets")
        monkeypatch.setitem(sys.modules, "datasets", datasets)
    columns = {
        "image": [Image.fromarray(RNG.integers(0, 256, (28, 28), np.uint8)) for _ in range(3)],
        "character": [0, 61, 7],
        "writer_id": ["f1", "f2", "f1"],
    }
    split = datasets.Dataset.from_dict(columns) if hasattr(datasets, "Dataset") else Table(columns)
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": split}, raising=False)
    names = run("load_dataset")
    np.testing.assert_array_equal(names["writers"].size, [2, 1])
    assert names["writers"].examples["image"].shape == (3, 28, 28, 1)


def test_torch(monkeypatch):
    """With the package where it is installed, else with a stand-in."""
    try:
        import torch  # noqa: F401
    except ImportError:
        data = types.SimpleNamespace(Dataset=object)
        stand_in = types.ModuleType("torch")
        stand_in.utils = types.SimpleNamespace(data=data)
        stand_in.as_tensor = lambda values: Tensor(np.asarray(values, np.float32))
        monkeypatch.setitem(sys.modules, "torch", stand_in)
    names = run("import torch")
    np.testing.assert_array_equal(names["users"].size, [2, 1])
    assert names["users"].examples["features"].shape == (3, 2)


@pytest.mark.slow
def test_training_and_test_part_of_each_user(of_leaf, quick_to_compile, capsys):
    names = run("known users")
    assert names["of_each"].num_clients == 3
    np.testing.assert_array_equal(names["known"], [False] * 6 + [True] * 16)
    assert names["history"].metric("per_client_accuracy_worst_decile").shape == (5, 1)
    assert "known users" in capsys.readouterr().out


def test_a_share_of_each_user_is_held_out(of_leaf):
    example = np.zeros(10, np.float32)
    model = fp.models.classifier(fp.models.LogisticRegression(10), example, inputs="features")
    names = run("hold_out(", {"fp": fp, "np": np, "model": model})
    federation = names["federation"]
    np.testing.assert_array_equal(federation.size, [32, 20, 2])
    np.testing.assert_array_equal(federation.held_out_size, [8, 5, 1])
    state = fp.start(model.init(jax.random.key(0)), federation)
    assert "held_out_accuracy_worst_decile" in names["measure"](state, federation)
