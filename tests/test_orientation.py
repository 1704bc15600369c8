"""Pictures are read as they are seen, whichever of the eight EXIF orientations they are stored in."""

import io
import types
import warnings

import numpy as np
import pytest
from PIL import Image

from fedpriv.data.datasets import from_huggingface, from_torch, read_images
from fedpriv.data.datasets.columns import columns_of

SEEN = np.random.default_rng(0).integers(0, 256, (8, 4, 3), np.uint8)


def stored(seen):
    """Each way to store it. EXIF 2.3, tag 274: where the stored row 0 and column 0 are seen."""
    turned = seen.swapaxes(0, 1)
    return {
        1: seen,  # top, left
        2: seen[:, ::-1],  # top, right
        3: seen[::-1, ::-1],  # bottom, right
        4: seen[::-1],  # bottom, left
        5: turned,  # left, top
        6: turned[::-1],  # right, top
        7: turned[::-1, ::-1],  # right, bottom
        8: turned[:, ::-1],  # left, bottom
    }


STORED = stored(SEEN)


def file_of(orientation, suffix):
    exif, file = Image.Exif(), io.BytesIO()
    exif[274] = orientation
    options = {"lossless": True} if suffix == "webp" else {}
    Image.fromarray(STORED[orientation]).save(file, suffix, exif=exif, **options)
    return file.getvalue()


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("suffix", ["png", "tiff", "webp"])
def test_every_reader(orientation, suffix, tmp_path):
    file = file_of(orientation, suffix)
    (tmp_path / "a").write_bytes(file)
    pictures = [Image.open(io.BytesIO(file)) for _ in range(2)]
    for image in (
        read_images([tmp_path / "a"]),
        from_huggingface({"image": pictures[:1]}, image="image")["image"],
        from_huggingface({"image": [{"bytes": file, "path": None}]}, image="image")["image"],
        from_huggingface({"image": [file]}, image="image")["image"],
        from_torch([(pictures[1], 0)])["image"],
    ):
        np.testing.assert_array_equal(image, SEEN[None])


@pytest.mark.parametrize("suffix", ["jpeg", "webp"])
def test_whatever_is_damaged_of_exif(suffix, tmp_path):
    """The pixels are read, in one of the eight orientations."""
    exif = Image.Exif()
    for tag, value in {274: 6, 271: "maker", 282: 72.0, 306: "2020:01:01"}.items():
        exif[tag] = value
    Image.fromarray(SEEN).save(tmp_path / "a", suffix, exif=exif)
    whole, block = (tmp_path / "a").read_bytes(), exif.tobytes().removeprefix(b"Exif\0\0")
    pixels = np.asarray(Image.open(tmp_path / "a").convert("RGB"))
    ways = [way.tolist() for way in stored(pixels).values()]
    rng, found = np.random.default_rng(0), set()
    for _ in range(300):
        damaged = bytearray(whole)
        for place in whole.index(block) + rng.integers(0, len(block), 3):
            damaged[place] = rng.integers(256)
        (tmp_path / "b").write_bytes(damaged)
        with warnings.catch_warnings(action="ignore"), Image.open(tmp_path / "b") as picture:
            image = read_images([tmp_path / "b"])[0]
            np.testing.assert_array_equal(from_torch([(picture, 0)])["image"][0], image)
        found.add(ways.index(image.tolist()))
    assert found >= {0, 7}


def test_sizes_are_those_seen(tmp_path):
    """So that pictures of one camera, held both ways, are resized as they are seen."""
    (tmp_path / "a").write_bytes(file_of(6, "png"))
    image = read_images([tmp_path / "a"], image_size=(4, 2))
    expected = Image.fromarray(SEEN).resize((2, 4), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(image[0], np.asarray(expected))


def test_a_set_that_is_resized_is_seen_and_one_of_one_size_is_as_it_is_stored():
    """Of TensorFlow Datasets, whose sizes are of what is stored."""
    import tensorflow_datasets as tfds

    def decoded(shape, size):
        features = {
            "image": tfds.features.Image(shape=shape),
            "label": tfds.features.ClassLabel(num_classes=2),
        }
        info = types.SimpleNamespace(
            features=tfds.features.FeaturesDict(features), supervised_keys=None
        )
        return columns_of(info, "a", size, 1, False).decode(file_of(6, "png"))

    np.testing.assert_array_equal(decoded((None, None, 3), (8, 4)), SEEN)
    np.testing.assert_array_equal(decoded((4, 8, 3), None), STORED[6])
