"""Pictures are read as they are seen, whichever of the eight EXIF orientations they are stored in."""

import io
import types

import numpy as np
import pytest
from PIL import Image

from fedpriv.data.datasets import from_huggingface, from_torch, read_images
from fedpriv.data.datasets.columns import columns_of

SEEN = np.random.default_rng(0).integers(0, 256, (8, 4, 3), np.uint8)
# EXIF 2.3, tag 274: where the stored row 0 and column 0 are seen. Each is its own inverse but for 6 and 8.
STORED = {
    1: SEEN,  # top, left
    2: SEEN[:, ::-1],  # top, right
    3: SEEN[::-1, ::-1],  # bottom, right
    4: SEEN[::-1],  # bottom, left
    5: SEEN.transpose(1, 0, 2),  # left, top
    6: SEEN.transpose(1, 0, 2)[::-1],  # right, top
    7: SEEN[::-1, ::-1].transpose(1, 0, 2),  # right, bottom
    8: SEEN.transpose(1, 0, 2)[:, ::-1],  # left, bottom
}


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
