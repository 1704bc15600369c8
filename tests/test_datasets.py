"""Datasets are read back as they were written; whatever is missing or damaged is named."""

import shutil
import socket

import numpy as np
import prepared
import pytest

from fedpriv.data.datasets import (
    CorruptDataError,
    MissingDataError,
    default_data_dir,
    encode_text,
    load,
    prepared_sets,
)

SETS = {  # name: (image shape, classes, sizes of the splits)
    "mnist": ((28, 28, 1), 10, {"train": 12, "test": 5}),
    "fashion_mnist": ((28, 28, 1), 10, {"train": 3, "test": 2}),
    "cifar10": ((32, 32, 3), 10, {"train": 7, "test": 4}),
    "svhn_cropped": ((32, 32, 3), 10, {"train": 6, "test": 4, "extra": 9}),
    "emnist/balanced": ((28, 28, 1), 47, {"train": 8, "test": 3}),
    "emnist/bymerge": ((28, 28, 1), 47, {"train": 2, "test": 2}),
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No network, and the user's cache inside the test's folder."""

    def refuse(*_):
        raise AssertionError("a test used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def write(data_dir, name, **kwargs):
    """Writes a tiny set; returns its splits and its folder."""
    shape, classes, sizes = SETS[name]
    rng = np.random.default_rng(0)
    splits = {s: prepared.random_split(rng, n, shape, classes) for s, n in sizes.items()}
    return splits, prepared.write_images(data_dir, name, splits, classes, **kwargs)


def same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])
        assert one[key].dtype == other[key].dtype


@pytest.fixture
def decoded(monkeypatch):
    """The splits decoded from record files, in order."""
    calls = []
    original = prepared_sets._decode

    def spy(builder, splits, columns):
        calls.append("+".join(splits))
        return original(builder, splits, columns)

    monkeypatch.setattr(prepared_sets, "_decode", spy)
    return calls


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("shards", [1, 2])
def test_image_sets_are_read_back(tmp_path, name, shards):
    splits, _ = write(tmp_path, name, shards=shards)
    train = splits["train"]
    if name == "svhn_cropped":
        train = {k: np.concatenate([train[k], splits["extra"][k]]) for k in train}
    expected = {"train": train, "test": splits["test"]}
    if name.startswith("emnist"):  # stored transposed, returned upright
        for split in expected.values():
            split["image"] = split["image"].transpose(0, 2, 1, 3)
    for _ in ("decoded", "cached"):
        dataset = load(name, tmp_path)
        same(dataset.train, expected["train"])
        same(dataset.test, expected["test"])
        assert (dataset.name, dataset.num_classes, dataset.keys) == (name, SETS[name][1], None)


def test_batches_of_records(tmp_path, monkeypatch):
    monkeypatch.setattr(prepared_sets, "_BATCH", 5)
    splits, _ = write(tmp_path, "mnist", shards=2)
    same(load("mnist", tmp_path).train, splits["train"])


def caches(tmp_path):
    return sorted((tmp_path / "user" / "fedpriv" / "data").glob("*"))


def test_the_cache_spares_the_records(tmp_path, decoded):
    splits, folder = write(tmp_path, "mnist")
    before = sorted(folder.iterdir())
    load("mnist", str(tmp_path))
    assert decoded == ["train", "test"]
    same(load("mnist", tmp_path).train, splits["train"])
    assert decoded == ["train", "test"]
    assert sorted(folder.iterdir()) == before  # nothing is written beside the data
    assert [file.name.split("_")[1] for file in caches(tmp_path)] == ["test", "train"]


def test_a_set_prepared_anew_replaces_its_cache(tmp_path, decoded):
    _, folder = write(tmp_path, "mnist")
    load("mnist", tmp_path)
    old = caches(tmp_path)
    shutil.rmtree(folder)
    rng = np.random.default_rng(1)
    splits = {s: prepared.random_split(rng, 4, (28, 28, 1), 10) for s in ("train", "test")}
    prepared.write_images(tmp_path, "mnist", splits, 10)
    same(load("mnist", tmp_path).train, splits["train"])
    assert decoded == ["train", "test"] * 2
    assert len(caches(tmp_path)) == 2
    assert not set(old) & set(caches(tmp_path))


@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.99])
def test_a_truncated_cache_is_made_anew(tmp_path, decoded, keep):
    splits, _ = write(tmp_path, "mnist")
    load("mnist", tmp_path)
    file = caches(tmp_path)[1]
    content = file.read_bytes()
    file.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    same(load("mnist", tmp_path).train, splits["train"])
    assert decoded == ["train", "test", "train"]
    load("mnist", tmp_path)
    assert len(decoded) == 3


def test_without_any_cache(tmp_path, monkeypatch, decoded):
    splits, _ = write(tmp_path, "mnist")
    (tmp_path / "user").write_text("no folder")
    for _ in range(2):
        same(load("mnist", tmp_path).train, splits["train"])
    assert decoded == ["train", "test"] * 2


def test_images_and_texts_under_any_name(tmp_path, decoded):
    rng = np.random.default_rng(0)
    image = {"photo": rng.integers(0, 256, (5, 6, 7, 3), np.uint8), "kind": np.arange(5)}
    held = {name: leaf[3:] for name, leaf in image.items()}
    splits = {"train": image, "validation": held}
    prepared.write_images(tmp_path, "leaves", splits, None, supervised=True)
    found = load("leaves", tmp_path, test="validation")
    same(found.train, {"image": image["photo"], "label": np.arange(5, dtype=np.int32)})
    same(found.test, {name: leaf[3:] for name, leaf in found.train.items()})
    assert found.num_classes == 5  # one more than the greatest
    with pytest.raises(MissingDataError, match="no split 'test', only 'train', 'validation'"):
        load("leaves", tmp_path)
    texts = {"text": ["so good", "baaad, übel"], "label": np.array([1, 0])}
    prepared.write_images(tmp_path, "opinions", {"train": texts, "test": texts}, 2)
    for length in (4, 20):
        found = load("opinions", tmp_path, text_length=length)
        assert found.num_classes == 2
        np.testing.assert_array_equal(found.test["label"], [1, 0])
        expected = [text.encode()[:length] for text in texts["text"]]
        assert [row.tobytes().rstrip(b"\0") for row in found.train["text"]] == expected
        assert found.train["text"].shape == (2, length)
        same({"text": encode_text(texts["text"], length)}, {"text": found.train["text"]})


def test_images_of_any_size_are_resized(tmp_path):
    flat = {"image": np.full((3, 9, 5, 1), 77, np.uint8), "label": np.arange(3)}
    prepared.write_images(
        tmp_path, "beans_of_any_size", dict.fromkeys(("train", "test"), flat), 3, sized=False
    )
    with pytest.raises(
        ValueError, match="differ in size; resize them, for example with image_size"
    ):
        load("beans_of_any_size", tmp_path)
    for size in ((4, 6), (2, 2)):
        found = load("beans_of_any_size", tmp_path, image_size=size).train["image"]
        np.testing.assert_array_equal(found, np.full((3, *size, 1), 77))


def test_a_set_without_an_image_or_a_text(tmp_path):
    prepared.write_images(
        tmp_path, "odd", {"train": {"audio": ["a"], "label": np.zeros(1, int)}}, 2
    )
    with pytest.raises(ValueError, match="no image or text with a label among its features"):
        load("odd", tmp_path, test="train")


def test_a_missing_set(tmp_path):
    with pytest.raises(MissingDataError) as error:
        load("svhn_cropped", tmp_path)
    message = str(error.value)
    assert "\n" not in message
    for part in (
        f"dataset svhn_cropped is not in {tmp_path}",
        "pip install tensorflow",
        f"tfds build svhn_cropped --file_format=array_record --data_dir={tmp_path}",
    ):
        assert part in message


def test_a_missing_split(tmp_path):
    rng = np.random.default_rng(0)
    splits = {"test": prepared.random_split(rng, 4, (28, 28, 1), 47)}
    prepared.write_images(tmp_path, "emnist/bymerge", splits, 47)
    with pytest.raises(MissingDataError, match="has no split 'train', only 'test'"):
        load("emnist/bymerge", tmp_path)


def test_a_missing_file(tmp_path):
    _, folder = write(tmp_path, "mnist")
    gone = prepared.record_files(folder)[0]
    gone.unlink()
    with pytest.raises(MissingDataError, match=f"lacks the file {gone}"):
        load("mnist", tmp_path)


def test_another_file_format(tmp_path):
    write(tmp_path, "mnist", file_format="tfrecord")
    with pytest.raises(MissingDataError, match="tfrecord format, not array_record"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("keep", [0, 0.1, 0.5, 0.9])
def test_a_truncated_record_file(tmp_path, keep):
    _, folder = write(tmp_path, "mnist", shards=2)
    damaged = folder / "mnist-train.array_record-00001-of-00002"
    content = damaged.read_bytes()
    damaged.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(CorruptDataError) as error:
        load("mnist", tmp_path)
    assert str(error.value).startswith(f"{damaged} may be truncated: ")
    assert "\n" not in str(error.value)
    assert not caches(tmp_path)


def test_an_undecodable_image(tmp_path, monkeypatch):
    encode = prepared.encode_png
    monkeypatch.setattr(prepared, "encode_png", lambda image: encode(image)[:60])
    _, folder = write(tmp_path, "mnist")
    damaged = folder / "mnist-train.array_record-00000-of-00001"
    message = f"{damaged} may be truncated: example 0 cannot be decoded"
    with pytest.raises(CorruptDataError, match=message):
        load("mnist", tmp_path)


def test_a_damaged_description(tmp_path):
    _, folder = write(tmp_path, "mnist")
    (folder / "dataset_info.json").write_text('{"name": ')
    with pytest.raises(CorruptDataError, match="description of dataset mnist"):
        load("mnist", tmp_path)


def test_the_default_folder(tmp_path, monkeypatch):
    splits, _ = write(tmp_path, "mnist")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    same(load("mnist").test, splits["test"])
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(default_data_dir()) == "/home/someone/tensorflow_datasets"


def test_digits():
    dataset = load("digits")
    assert dataset.train["image"].shape == (1437, 8, 8, 1)
    assert dataset.test["image"].shape == (360, 8, 8, 1)
    assert dataset.train["image"].dtype == np.uint8
    assert dataset.train["image"].max() == 255
    counts = np.bincount(dataset.test["label"], minlength=10)
    assert counts.min() >= 34
    assert counts.max() <= 38
    same(dataset.test, load("digits").test)


@pytest.mark.parametrize("where", ["beside the package", "somewhere else"])
def test_digits_are_those_of_scikit_learn(where, monkeypatch):
    from sklearn.datasets import load_digits

    if where == "somewhere else":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    raw = load_digits()
    dataset = load("digits")
    found = [
        (label, image.tobytes())
        for part in (dataset.train, dataset.test)
        for label, image in zip(part["label"], part["image"], strict=True)
    ]
    pixels = np.round(raw.images * 255 / 16).astype(np.uint8)
    images = (image.tobytes() for image in pixels)
    assert sorted(found) == sorted(zip(raw.target, images, strict=True))
