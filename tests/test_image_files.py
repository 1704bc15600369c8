"""Folders of images are the arrays that their files hold; whatever is wrong with a file is named."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from small import refused

import fedpriv as fp
from fedpriv.data.datasets import (
    CorruptDataError,
    MissingDataError,
    from_huggingface,
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
    with refused(r"b\.png: 3 x 4 pixels, but .*a\.jpg has 9 x 7; give a size"):
        read_images(files)


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("P", 3), ("RGBA", 3), ("LA", 1)])
def test_other_modes(mode, channels, tmp_path):
    file = save(tmp_path / "a.png", GRAY if mode in ("1", "LA") else COLOUR, mode)
    assert read_images([file]).shape == (1, 4, 5, channels)


def test_no_bits_are_cut_off(tmp_path):
    deep = Image.fromarray(np.full((4, 5), 3000, np.uint16))
    deep.save(tmp_path / "a.png")
    with refused(r"a\.png: its mode is I;16, more than 8 bits"):
        read_images([tmp_path / "a.png"])
    with refused(r"^image: row 1: its mode is I;16, more than 8 bits"):
        from_huggingface({"image": [Image.fromarray(GRAY), deep]}, image="image")


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_no_bits_of_a_channel_are_cut_off(colour, channels, tmp_path):
    """A PNG of 16 bits for each channel, which Pillow would read in 8."""
    rows = b"".join(b"\0" + np.full((5, channels), 300, ">u2").tobytes() for _ in range(4))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 5, 4, 16, colour, 0, 0, 0),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    written = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
    file = tmp_path / "a.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + written)
    with refused(r"a\.png: its mode is .*;16B?, more than 8 bits for each channel"):
        read_images([file])
    said = r"^image: row 0: its mode is .*;16B?, more than 8 bits"
    with Image.open(file) as opened, refused(said):
        from_huggingface({"image": [opened]}, image="image")


def test_fewer_bits_of_a_channel_are_read(tmp_path):
    """A BMP of 16 bits for all three."""
    header = struct.pack("<2sIII", b"BM", 54 + 8, 0, 54)
    header += struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 16, 0, 8, 0, 0, 0, 0)
    (tmp_path / "a.bmp").write_bytes(header + b"\xff\x7f" * 4)
    np.testing.assert_array_equal(read_images([tmp_path / "a.bmp"]), np.full((1, 2, 2, 3), 255))


def test_files_that_cannot_be_read(pets):
    with refused(r"none\.png: there is no such file", MissingDataError):
        read_images([pets / "none.png"])
    whole = (pets / "ada" / "cat" / "1.png").read_bytes()
    for damaged in (b"no image", whole[:-30], b""):
        (pets / "ada" / "cat" / "1.png").write_bytes(damaged)
        with refused(r"cat/1\.png: it cannot be read .*; replace it", CorruptDataError):
            from_image_folder(pets, ("client", "label"))


def test_an_image_of_too_many_pixels(tmp_path, monkeypatch):
    file = save(tmp_path / "a.png", COLOUR, "RGB")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    with refused(r"a\.png: it cannot be read .*exceeds limit", CorruptDataError):
        read_images([file])


def test_folders_that_say_something_else(pets):
    with refused(r"1\.png: it lies in 2 folders, but levels names 1 \(label\)"):
        from_image_folder(pets)
    with refused("classes: the folder 'dog' is none of cat, bird; add it"):
        from_image_folder(pets, ("client", "label"), classes=["cat", "bird"])
    with refused("path: no images in a folder .*none"):
        from_image_folder(pets / "none")
    (pets / "cem" / "cat").mkdir(parents=True)
    with refused("cem: no images in it; remove it"):
        from_image_folder(pets, ("client", "label"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"levels": ()}, r"levels: \(\); give names"),
        ({"levels": "label"}, "levels: 'label'; give names"),
        ({"levels": ("label", "label")}, "levels: .*; give names"),
        ({"levels": ("image", "label")}, "levels: .*; call none of them 'image'"),
        ({"levels": ("client", "kind"), "classes": ["a"]}, "levels: .* 'label', or leave classes"),
        ({"levels": ("client", "label"), "classes": ["a", "a"]}, r"classes: \['a', 'a'\]; give"),
    ],
)
def test_levels_and_classes(given, said, pets):
    with refused(said):
        from_image_folder(pets, **given)


def test_no_files():
    for paths, said in (([], r"paths: \[\]; give at"), ("a.png", "paths: 'a.png'; give a list")):
        with refused(said):
            read_images(paths)
    with refused(r"paths\[0\]: 3; give the path"):
        read_images([3])
