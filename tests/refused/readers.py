"""What reads data sets: files of images, other libraries' data sets, texts, generated ones."""

import gzip
import struct
import zlib
from functools import partial
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
from PIL import Image
from pyarrow import parquet

from fedpriv.data.datasets import (
    CorruptDataError,
    MissingDataError,
    encode_text,
    from_huggingface,
    from_image_folder,
    from_parquet,
    from_partitions,
    from_tokens,
    from_torch,
    load,
    read_images,
    shakespeare,
    synthetic,
)

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
    paths = [Path(f"{i}.png") for i in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        path.write_bytes(picture) if isinstance(picture, bytes) else picture.save(path)
    return read_images(paths)


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


def cut():
    """Reads a small picture that ends before its time."""
    GRAY.save("whole.png")
    images(Path("whole.png").read_bytes()[:-30])


class Parted:
    """A data set of Flower, which does not say in how many."""

    def load_partition(self, i):
        return {"x": [i]}

    def __repr__(self):
        return "Parted"


PARTED = Parted()
SPLIT = SimpleNamespace(column_names=["x"])  # as those of a data set


def stream(*rows, **options):
    return from_huggingface(iter(rows), x="x", **options)


def table(name, *column):
    """Reads a table of one column."""
    return partial(from_huggingface, {name: [*column]}, **{name: name})


def files(*names, of=({"x": [1, 2]},), also="notes", path="set"):
    """Reads column x of Parquet files of these names, of as many tables or of one, beside another file."""
    for i, name in enumerate([*names, also]):
        Path("set", name).parent.mkdir(parents=True, exist_ok=True)
        Path("set", name).write_text("no table")
        if i < len(names):
            parquet.write_table(pa.table(of[i % len(of)]), f"set/{name}")
    from_parquet(path, x="x")


def old_feather():
    """Reads a file that begins as those of Feather's first version."""
    Path("a.feather").write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    from_parquet("a.feather", x="x")


def twice():
    """Reads a column of which there are two."""
    from_huggingface(pd.DataFrame([[1, 2]], columns=["x", "x"]), x="x")


def plays(*lines, which=slice(None)):
    """Reads a file of plays with these lines."""
    Path("plays.jsonl").write_text("".join(lines))
    return shakespeare.load_shakespeare(Path(), which)


def packed():
    """A file that ends before its time."""
    whole = gzip.compress(SPEECH.encode() * 100)
    Path("plays.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    shakespeare.load_shakespeare(Path())


def no_plays():
    return shakespeare.load_shakespeare(Path())


def of_kinds():
    return from_huggingface({"kind": [0]}, label="label")


GAPS = pa.array([None, None], pa.list_(pa.int64()))
SPEECH = '{"play": "A", "act": 1, "scene": 1, "speaker": "ANN", "text": "a"}\n'
BROKEN, GONE = CorruptDataError, MissingDataError
ROWS = [
    ("folder: not there", lambda: from_image_folder("none"), "path", "none"),
    ("folder: nothing in it", pets_with_an_empty_folder, "pets/cem", "no images in it"),
    ("images: none", lambda: read_images([]), "paths", "[]"),
    ("images: a name", lambda: read_images("a.png"), "paths", "'a.png'"),
    ("images: a number", lambda: read_images([3]), "paths[0]", "3"),
    ("images: gone", lambda: read_images(["a.png"]), "a.png", "no such file", GONE),
    ("images: of two sizes", lambda: images(GRAY, SQUARE), "1.png", "3 x 3 pixels"),
    ("images: deep", lambda: images(DEEP), "0.png", "I;16"),
    ("images: too many pixels", too_many_pixels, "a.png", "limit", BROKEN),
    ("images: not one", lambda: images(b"no image"), "0.png", "cannot identify", BROKEN),
    ("images: empty", lambda: images(b""), "0.png", "cannot identify", BROKEN),
    ("images: cut", cut, "0.png", "cannot be read", BROKEN),
    ("table: images of two sizes", table("image", GRAY, SQUARE), "image: row 1", "[3, 3, 1]"),
    ("table: deep", table("image", GRAY, DEEP), "image: row 1", "I;16"),
    ("table: a gap", table("label", 0, None), "label", "row 1 is None"),
    ("table: ragged", table("x", [[1], [1, 2]]), "x: row 0", "[[1], [1, 2]]"),
    ("table: a name that NumPy cuts", table("client", "", "\0"), "client: row 1", r"'\x00'"),
    ("table: bytes that NumPy cuts", table("client", b"", b"\0"), "client: row 1", r"b'\x00'"),
    ("table: numbers of no type", table("client", 2**64 - 1, -1), "client", "64-bit"),
    ("table: no such column", of_kinds, "label", "kind"),
    (
        "table: splits",
        lambda: from_huggingface({"train": SPLIT, "test": SPLIT}),
        "dataset",
        "train, test",
    ),
    ("table: a number", lambda: from_huggingface(3), "dataset", "int"),
    ("stream: nothing", stream, "dataset", "tuple_iterator"),
    (
        "stream: no end",
        lambda: from_huggingface(repeat({"x": 1}), most_rows=9, x="x"),
        "dataset",
        "9",
    ),
    ("stream: an empty list", lambda: from_huggingface([], x="x"), "dataset", "[]"),
    ("stream: a list of numbers", lambda: from_huggingface([3], x="x"), "dataset row 0", "3"),
    ("stream: no column", lambda: stream({"y": 1}), "x", "'x'"),
    ("stream: a hole", lambda: stream({"x": 1}, {}), "dataset row 1", "[]"),
    ("stream: no dicts", lambda: stream({"x": 1}, 2), "dataset row 1", "2"),
    ("stream: a gap", lambda: stream({"x": 1}, {"x": None}), "x", "row 1 is None"),
    ("partitions: a number", lambda: from_partitions(3), "partitions", "3"),
    ("partitions: none", lambda: from_partitions([], x="x"), "partitions", "[]"),
    (
        "partitions: of unknown number",
        lambda: from_partitions(PARTED, x="x"),
        "partitions",
        "Parted",
    ),
    (
        "partitions: empty",
        lambda: from_partitions([{"x": [1]}, {"x": []}], x="x"),
        "partitions[1]",
        "[]",
    ),
    (
        "partitions: a lack",
        lambda: from_partitions([{"x": [1]}, {"y": [1]}], x="x"),
        "x",
        "partitions[1]",
    ),
    ("partitions: clients", lambda: from_partitions([{"x": [1]}], client="x"), "client", "'x'"),
    ("table: a path", lambda: from_huggingface("set", x="x"), "dataset", ("'set'", "from_parquet")),
    ("table: two columns of one name", twice, "dataset", "'x'"),
    ("table: no picture", table("image", b"GIF89a", b""), "image: row 0", "cannot be read", BROKEN),
    ("table: a picture elsewhere", table("image", {"bytes": None, "path": "a"}), "image", "'path'"),
    ("files: no folder", partial(files, path="other"), "path", "other", GONE),
    (
        "files: no such file in a list",
        partial(files, path=["b.parquet"]),
        "path",
        "b.parquet",
        GONE,
    ),
    ("files: a number", partial(files, path=3), "path", "3"),
    ("files: an empty list", partial(files, path=[]), "path", "[]"),
    ("files: none in the folder", files, "path", ("set", ".parquet")),
    ("files: not one", partial(files, path="set/notes"), "set/notes", "cannot be read", BROKEN),
    (
        "files: no such column",
        partial(files, "a.parquet", of=[{"y": [1]}]),
        "x",
        ("a.parquet", "y"),
    ),
    (
        "files: one without it",
        partial(files, "a.parquet", "b.parquet", of=[{"x": [1]}, {"y": [1]}]),
        "x",
        "b.parquet",
    ),
    (
        "files: of two types",
        partial(files, "a.parquet", "b.parquet", of=[{"x": [1]}, {"x": ["a"]}]),
        "b.parquet",
        ("string", "int64"),
        BROKEN,
    ),
    ("files: gaps alone", partial(files, "a.parquet", of=[{"x": GAPS}]), "x", "row 0 is None"),
    ("files: a gap", partial(files, "a.parquet", of=[{"x": [1, None]}]), "x", "row 1 is None"),
    (
        "files: of two splits",
        partial(files, "train-0-of-1.parquet", "test-0-of-1.parquet"),
        "path",
        "test and train",
    ),
    (
        "files: folders of splits",
        partial(files, "train/0.parquet", "val/0.parquet"),
        "path",
        "train and val",
    ),
    (
        "files: a split, and others",
        partial(files, "train/0.parquet", "0.parquet"),
        "path",
        "no split and train",
    ),
    ("files: an old Feather", old_feather, "a.feather", "version 2", BROKEN),
    ("files: of Delta", partial(files, "a.parquet", also="_delta_log/0.json"), "path", "Delta"),
    (
        "files: a damaged list",
        partial(files, "a.parquet", also="state.json"),
        "state.json",
        "cannot be read",
        BROKEN,
    ),
    ("texts: one", lambda: encode_text("ab", 3), "texts", "'ab'"),
    ("texts: NaN", lambda: encode_text(["a", float("nan")], 3), "texts[1]", "nan"),
    ("synthetic: far apart", lambda: synthetic(0.0, 1e13), "beta", "10000000000000.0"),
    ("synthetic: few", lambda: synthetic(0.0, 0.0, records=4), "records", "4"),
    ("synthetic: a seed below", lambda: synthetic(0.0, 0.0, seed=-1), "seed", "-1"),
    ("load: no such set", lambda: load("minst"), "'minst'", "did you mean mnist"),
    ("load: splits of digits", lambda: load("digits", train="train"), "'digits'", "splits"),
    ("load: a list", lambda: load("digits", data_dir=["here"]), "data_dir", "['here']"),
    ("load: a number", lambda: load("digits", train=3), "train", "3"),
    ("load: an array", lambda: load("digits", test=np.ones(3)), "test", "float64[3]"),
    ("plays: gone", no_plays, "dataset shakespeare", "no plays.jsonl.gz", GONE),
    ("plays: one speech", partial(plays, SPEECH), "plays.jsonl", "no role", BROKEN),
    ("plays: half", partial(plays, SPEECH, '{"play": "A"}\n'), "plays.jsonl", "line 2", BROKEN),
    ("plays: broken off", packed, "plays.jsonl.gz", "EOFError", BROKEN),
    ("plays: none", partial(plays, *2 * [SPEECH], which=slice(2, None)), "plays", "none of the 1"),
]
for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
    name, deep = f"{channels} deep channels", partial(images, deep_png(colour, channels))
    ROWS.append((f"images: {name}", deep, "0.png", "more than 8 bits"))
    deep = partial(opened, colour, channels)
    ROWS.append((f"images: {name}, opened", deep, "image: row 0", "more than 8 bits"))

BOTH, TWICE = ("client", "label"), ("label", "label")
for options, field, shown in (
    ({}, "1.png", "2 folders"),
    ({"levels": BOTH, "classes": ["cat", "bird"]}, "classes", "'dog'"),
    ({"levels": "label"}, "levels", "'label'"),
    ({"levels": TWICE}, "levels", "('label', 'label')"),
    ({"levels": ("image", "label")}, "levels", "'image'"),
    ({"levels": ("client", "kind"), "classes": ["a"]}, "levels", "('client', 'kind')"),
    ({"levels": BOTH, "classes": ["a", "a"]}, "classes", "['a', 'a']"),
):
    ROWS.append((f"folder: {options}", partial(pets, **options), field, shown))

PAIRS = [(GRAY, 0), (GRAY, 1)]
ITEMS = [{"image": 1, "label": 0}, {"image": 2, "label": 1, "user": 7}]
for name, given, field, shown in (
    ("three names", (PAIRS, ("image", "label", "client")), "dataset[0]", "2 entries"),
    ("a name twice", (PAIRS, ("image", "image")), "names", "('image', 'image')"),
    ("a stream", (iter(PAIRS),), "dataset", "list_iterator"),
    ("none", ([],), "dataset", "empty"),
    ("more entries", (ITEMS,), "dataset[1]", "image, label, user"),
    ("fewer entries", (ITEMS[::-1],), "dataset[1]", "those of dataset[0] are image, label, user"),
):
    ROWS.append((f"items: {name}", partial(from_torch, *given), field, shown))

# Tokens of texts, clients.
for name, texts, clients, field, shown in (
    ("a token below 0", [[0, 1], [3, -1]], None, "texts[1]", "token -1"),
    ("a token beyond the vocabulary", [[0, 10, 1]], None, "texts[0]", "token 10"),
    ("a token beyond 32 bits", [np.array([2**32, 1])], None, "texts[0]", "token 4294967296"),
    ("half a token", [[0, 0.5]], None, "texts[0]", ("[0, 0.5]", "whole numbers")),
    ("a text that is text", ["a text"], None, "texts[0]", "'a text'"),
    ("a text within a text", [[[0, 1]]], None, "texts[0]", "[[0, 1]]"),
    ("unequal ones within a text", [[[0], [0, 1]]], None, "texts[0]", "[[0], [0, 1]]"),
    ("text", "a text", None, "texts", "'a text'"),
    ("a number", 3, None, "texts", "3"),
    ("texts of a token", [[1], []], None, "texts", "no text has two tokens"),
    ("no text", [], None, "texts", "no text has two tokens"),
    ("a client without tokens", [[0, 1], [1], []], ["a", "b", "b"], "clients", "'b'"),
    ("a client too few", [[0, 1], [1, 2]], ["a"], "clients", "give a list of 2"),
    ("no client", [[0, 1], [1, 2]], ["a", None], "clients", "None in row 1"),
):
    call = partial(from_tokens, texts, clients, length=4, vocabulary=10)
    ROWS.append((f"tokens: {name}", call, field, shown))
