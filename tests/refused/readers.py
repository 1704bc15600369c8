"""What reads data sets: files of images, other libraries' data sets, texts, generated ones."""

import gzip
import struct
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from fedpriv.data.datasets import (
    CorruptDataError,
    MissingDataError,
    encode_text,
    from_huggingface,
    from_image_folder,
    from_torch,
    load,
    read_images,
    shakespeare,
    synthetic,
)
from refused.row import Refusal

GRAY, SQUARE = Image.new("L", (5, 4)), Image.new("L", (3, 3))
DEEP = Image.fromarray(np.full((4, 5), 3000, np.uint16))


def pets(**options):
    """Reads a folder of two clients' cats and dogs."""
    for folder in (Path("pets", name) for name in ("ada/cat", "ada/dog", "ben/dog")):
        folder.mkdir(parents=True, exist_ok=True)
        GRAY.save(folder / "1.png")
    return from_image_folder("pets", **options)


def pets_with_an_empty_folder():
    Path("pets/cem/cat").mkdir(parents=True)
    pets(levels=("client", "label"))


def images(*pictures):
    """Reads files of these, each of which is a picture or bytes."""
    for i, picture in enumerate(pictures):
        Path(f"{i}.png").write_bytes(picture) if isinstance(picture, bytes) else picture.save(
            f"{i}.png"
        )
    return read_images([f"{i}.png" for i in range(len(pictures))])


def deep_png(colour, channels):
    """The bytes of a PNG of 16 bits for each channel, which Pillow would read in 8."""
    rows = b"".join(b"\0" + np.full((5, channels), 300, ">u2").tobytes() for _ in range(4))
    header = struct.pack(">IIBBBBB", 5, 4, 16, colour, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(rows), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


def opened(colour, channels):
    """The same, as Pillow gives it to another library's data set."""
    Path("a.png").write_bytes(deep_png(colour, channels))
    with Image.open("a.png") as picture:
        from_huggingface({"image": [picture]}, image="image")


def too_many_pixels():
    Image.new("RGB", (50, 50)).save("a.png")
    most, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 9
    try:
        read_images(["a.png"])
    finally:
        Image.MAX_IMAGE_PIXELS = most


def png():
    """The bytes of a small one."""
    GRAY.save("whole.png")
    return Path("whole.png").read_bytes()


BY_CLIENT = {"levels": ("client", "label")}
ROWS = [
    Refusal(f"folder: {name}", partial(pets, **options), field, value)
    for name, options, field, value in (
        ("clients not named", {}, "1.png", "2 folders"),
        ("another class", BY_CLIENT | {"classes": ["cat", "bird"]}, "classes", "'dog'"),
        ("no levels", {"levels": ()}, "levels", "()"),
        ("a name for levels", {"levels": "label"}, "levels", "'label'"),
        ("a level twice", {"levels": ("label", "label")}, "levels", "('label', 'label')"),
        ("images of images", {"levels": ("image", "label")}, "levels", "'image'"),
        ("classes of no level", {"levels": ("client", "kind"), "classes": ["a"]}, "levels", "kind"),
        ("a class twice", BY_CLIENT | {"classes": ["a", "a"]}, "classes", "['a', 'a']"),
    )
]
ROWS += [
    Refusal("folder: not there", lambda: from_image_folder("none"), "path", "none"),
    Refusal("folder: nothing in it", pets_with_an_empty_folder, "cem", ""),
    Refusal("images: none", lambda: read_images([]), "paths", "[]"),
    Refusal("images: a name", lambda: read_images("a.png"), "paths", "'a.png'"),
    Refusal("images: a number", lambda: read_images([3]), "paths[0]", "3"),
    Refusal("images: gone", lambda: read_images(["a.png"]), "a.png", "", MissingDataError),
    Refusal("images: of two sizes", lambda: images(GRAY, SQUARE), "1.png", "3 x 3 pixels"),
    Refusal("images: deep", lambda: images(DEEP), "0.png", "I;16"),
    Refusal("images: too many pixels", too_many_pixels, "a.png", "limit", CorruptDataError),
    Refusal(
        "images: deep, of a table",
        lambda: from_huggingface({"image": [GRAY, DEEP]}, image="image"),
        "image: row 1",
        "I;16",
    ),
]
for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
    deep = partial(images, deep_png(colour, channels))
    ROWS.append(Refusal(f"images: {channels} deep channels", deep, "0.png", ";16"))
    deep = partial(opened, colour, channels)
    ROWS.append(Refusal(f"images: {channels} deep channels, opened", deep, "image: row 0", ";16"))
ROWS += [
    Refusal(f"images: {name}", lambda cut=cut: images(cut(png())), "0.png", "", CorruptDataError)
    for name, cut in (
        ("not one", lambda b: b"no image"),
        ("cut", lambda b: b[:-30]),
        ("", lambda b: b""),
    )
]


class Splits(dict):
    """As those of a data set, together."""

    @property
    def num_rows(self):
        return {"train": 1, "test": 1}


def table(name, *column):
    """Reads a table of one column."""
    return from_huggingface({name: [*column]}, **{name: name})


ROWS += [
    Refusal(f"table: {name}", partial(table, *given), field, value)
    for name, given, field, value in (
        ("images of two sizes", ("image", GRAY, SQUARE), "image: row 1", "[3, 3, 1]"),
        ("a gap", ("label", 0, None), "label", "row 1 is None"),
        ("ragged", ("x", [[1], [1, 2]]), "x: row 0", "[[1], [1, 2]]"),
        ("a name that NumPy cuts", ("client", "", "\0"), "client: row 1", ""),
        ("bytes that NumPy cuts", ("client", b"", b"\0"), "client: row 1", ""),
        ("numbers of no type", ("client", 2**64 - 1, -1), "client", "64-bit"),
    )
]
ROWS += [
    Refusal(
        "table: no such column",
        lambda: from_huggingface({"kind": [0]}, label="label"),
        "label",
        "kind",
    ),
    Refusal("table: splits", lambda: from_huggingface(Splits(train=0, test=0)), "train, test"),
    Refusal("table: a stream", lambda: from_huggingface(iter([{}])), "dataset", "list_iterator"),
]

PAIRS = [(GRAY, 0), (GRAY, 1)]
ITEMS = [{"image": 1, "label": 0}, {"image": 2, "label": 1, "user": 7}]
ROWS += [
    Refusal(f"items: {name}", partial(from_torch, *given), field, value)
    for name, given, field, value in (
        ("three names", (PAIRS, ("image", "label", "client")), "dataset[0]", "2 entries"),
        ("a name twice", (PAIRS, ("image", "image")), "names", "('image', 'image')"),
        ("a stream", (iter(PAIRS),), "dataset", ""),
        ("none", ([],), "dataset", "empty"),
        ("more entries", (ITEMS,), "dataset[1]", "image, label"),
        ("fewer entries", (ITEMS[::-1],), "dataset[1]", "image, label"),
    )
]
ROWS += [
    Refusal("texts: one", lambda: encode_text("ab", 3), "texts", "'ab'"),
    Refusal("texts: NaN", lambda: encode_text(["a", float("nan")], 3), "texts[1]", "nan"),
    Refusal("synthetic: far apart", lambda: synthetic(0.0, 1e13), "beta", "10000000000000.0"),
    Refusal("synthetic: few", lambda: synthetic(0.0, 0.0, records=4), "records", "4"),
    Refusal("synthetic: a seed below", lambda: synthetic(0.0, 0.0, seed=-1), "seed", "-1"),
    Refusal("load: no such set", lambda: load("minst"), "'minst'", remedy="did you mean mnist"),
    Refusal("load: splits of digits", lambda: load("digits", train="train"), "'digits'", "splits"),
    Refusal("load: a list", lambda: load("digits", data_dir=["here"]), "data_dir", "['here']"),
    Refusal("load: a number", lambda: load("digits", train=3), "train", "3"),
    Refusal("load: an array", lambda: load("digits", test=np.ones(3)), "test", "float64[3]"),
]


def plays(*lines, which=slice(None)):
    """Reads a file of plays with these lines."""
    Path("plays.jsonl").write_text("".join(lines))
    return shakespeare.load_shakespeare(Path(), which)


def packed():
    """A file that ends before its time."""
    whole = gzip.compress(SPEECH.encode() * 100)
    Path("plays.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    shakespeare.load_shakespeare(Path())


SPEECH = '{"play": "A", "act": 1, "scene": 1, "speaker": "ANN", "text": "a"}\n'
ROWS += [
    Refusal(f"plays: {name}", call, "plays.jsonl", said, error)
    for name, call, said, error in (
        ("gone", lambda: shakespeare.load_shakespeare(Path()), "", MissingDataError),
        ("one speech", partial(plays, SPEECH), "no role", CorruptDataError),
        ("a line of less", partial(plays, SPEECH, '{"play": "A"}\n'), "line 2", CorruptDataError),
        ("broken off", packed, "", CorruptDataError),
        ("none of them", partial(plays, *2 * [SPEECH], which=slice(2, None)), "2", ValueError),
    )
]
