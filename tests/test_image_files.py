"""Folders of images are the arrays that their files hold; whatever is wrong with a file is named."""

import struct

import numpy as np
import pytest
from PIL import Image

import fedpriv as fp
from fedpriv.data.datasets import (
    from_image_folder,
    read_images,
)

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (4, 5), np.uint8)
COLOUR = RNG.integers(0, 256, (4, 5, 3), np.uint8)


def save(file, pixels, mode=None):
    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels)
    (picture.convert(mode) if mode else picture).save(file)
    return file


@pytest.fixture
def pets(tmp_path):
    """Ada has two cats and a dog, Ben a dog."""
    for folder, name, pixels in (
        ("ada/cat", "1.png", GRAY),
        ("ada/cat", "2.PNG", COLOUR),
        ("ada/dog", "1.png", GRAY),
        ("ben/dog", "1.png", COLOUR),
    ):
        save(tmp_path / "pets" / folder / name, pixels)
    return tmp_path / "pets"


def test_clients_with_classes(pets):
    (pets / "ada" / ".cache").mkdir()
    save(pets / "ada" / ".cache" / "thumb.png", GRAY)
    save(pets / "ada" / "cat" / "._1.png", GRAY)
    (pets / "ada" / "cat" / "notes.txt").write_text("no image")
    data = from_image_folder(pets, ("client", "label"))
    assert data["client"].tolist() == ["ada", "ada", "ada", "ben"]
    assert data["label"].tolist() == [0, 0, 1, 1]
    assert data["label"].dtype == np.int32
    gray = np.repeat(GRAY[..., None], 3, -1)
    np.testing.assert_array_equal(data["image"], [gray, COLOUR, gray, COLOUR])
    federation = fp.Federation.from_arrays(data, "client", num_classes=2)
    np.testing.assert_array_equal(federation.size, [3, 1])


def test_classes_alone(pets):
    """Numbered as they are given, also where one is not there; folders may be links."""
    (pets.parent / "linked").mkdir()
    (pets.parent / "linked" / "dog").symlink_to(pets / "ada" / "dog")
    data = from_image_folder(pets.parent / "linked", classes=["cat", "dog"])
    assert set(data) == {"image", "label"}
    assert data["label"].tolist() == [1]
    np.testing.assert_array_equal(data["image"], GRAY[None, ..., None])
    assert from_image_folder(pets / "ben")["label"].tolist() == [0]


def test_files_are_resized_and_jpeg_is_read(tmp_path):
    files = [
        save(tmp_path / "a.jpg", np.full((9, 7, 3), 200, np.uint8)),
        str(save(tmp_path / "b.png", np.full((3, 4), 7, np.uint8))),
    ]
    image = read_images(files, image_size=(4, 6))
    assert image.shape == (2, 4, 6, 3)
    assert image.dtype == np.uint8
    np.testing.assert_allclose(image[0], 200, atol=2)
    np.testing.assert_array_equal(image[1], 7)


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("P", 3), ("RGBA", 3), ("LA", 1)])
def test_other_modes(mode, channels, tmp_path):
    file = save(tmp_path / "a.png", GRAY if mode in ("1", "LA") else COLOUR, mode)
    assert read_images([file]).shape == (1, 4, 5, channels)


def test_fewer_bits_of_a_channel_are_read(tmp_path):
    """A BMP of 16 bits for all three."""
    header = struct.pack("<2sIII", b"BM", 54 + 8, 0, 54)
    header += struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 16, 0, 8, 0, 0, 0, 0)
    (tmp_path / "a.bmp").write_bytes(header + b"\xff\x7f" * 4)
    np.testing.assert_array_equal(read_images([tmp_path / "a.bmp"]), np.full((1, 2, 2, 3), 255))
