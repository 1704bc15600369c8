"""Which features of a set are the example and its label, and how one of them is decoded."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets.image_files import upright


class Columns(NamedTuple):
    """What is read of each record: the columns of a data set.

    Attributes:
        name: "image" or "text", what the example is called.
        source, label: the features it and its label are read from.
        shape: of one decoded example.
        decode: bytes -> u8[shape].
        num_classes: labels lie in [0, num_classes), if the set says so.
        variant: tells decodings of one set apart.
    """

    name: str
    source: str
    label: str
    shape: tuple[int, ...]
    decode: Callable[[bytes], np.ndarray]
    num_classes: int | None
    variant: str


def columns_of(
    info: Any,
    name: str,
    image_size: tuple[int, int] | None,
    text_length: int,
    transposed: bool,
) -> Columns:
    """The supervised keys of a builder's `info`, or else `image` or `text` and `label`.

    Raises:
        ValueError: there are none, an image of any size without `image_size`, or labels that are no integers.
    """
    import tensorflow_datasets as tfds

    features = dict(info.features.items())
    source, label = _keys(info.supervised_keys, features, name)
    example, labels = features[source], features[label]
    if np.shape(labels) or not np.issubdtype(labels.np_dtype, np.integer):
        raise ValueError(
            f"dataset {name}: the label {label!r} is {labels}; it has to be an integer"
        )
    num_classes = getattr(labels, "num_classes", None)
    if isinstance(example, tfds.features.Text):
        return Columns(
            "text",
            source,
            label,
            (text_length,),
            lambda text: encode_text([text], text_length)[0],
            num_classes,
            f"{source}-{text_length}",
        )
    if not isinstance(example, tfds.features.Image) or example.np_dtype != np.uint8:
        raise ValueError(
            f"dataset {name}: {source!r} is {example}; it has to be a text or an image of bytes"
        )
    height, width, channels = example.shape
    if image_size is None and None in (height, width):
        raise ValueError(
            f"dataset {name}: its images differ in size; resize them, for example with image_size=(64, 64)"
        )
    shape = (*(image_size or (height, width)), channels or 3)
    return Columns(
        "image",
        source,
        label,
        (shape[1], shape[0], shape[2]) if transposed else shape,
        lambda encoded: _image(encoded, shape, image_size is not None, transposed),
        num_classes,
        "x".join(map(str, shape)),
    )


def _keys(supervised: Any, features: dict[str, Any], name: str) -> tuple[str, str]:
    if supervised and all(isinstance(key, str) for key in supervised):
        return supervised[0], supervised[1]
    for source in ("image", "text"):
        if source in features and "label" in features:
            return source, "label"
    raise ValueError(
        f"dataset {name}: no image or text with a label among its features {', '.join(features)}; "
        "read it yourself, into arrays for `fp.Federation.from_arrays`"
    )


def encode_text(texts: Iterable[str | bytes], length: Count) -> np.ndarray:
    """Texts as UTF-8 bytes, truncated or padded with zeros; u8[N, length], so at most 256 tokens for an embedding.

    Raises:
        ValueError: length < 1; something that is not a text.
    """
    length = checked("length", length, Count)
    single = isinstance(texts, str | bytes) or not isinstance(texts, Iterable)
    single |= getattr(texts, "ndim", 1) == 0
    require(not single, "texts", texts, "give a list of texts")
    encoded = [_utf8(i, text) for i, text in enumerate(texts)]
    joined = b"".join(text[:length].ljust(length, b"\0") for text in encoded)
    return np.frombuffer(joined, np.uint8).reshape(-1, length).copy()


def _utf8(i: int, text: str | bytes) -> bytes:
    require(isinstance(text, str | bytes), f"texts[{i}]", text, "give a text")
    return text.encode(errors="surrogatepass") if isinstance(text, str) else bytes(text)


def _image(encoded: bytes, shape: tuple[int, ...], resized: bool, transposed: bool) -> np.ndarray:
    """Decodes a PNG or JPEG: u8[height, width, channels], or with these axes of the picture exchanged."""
    with of_package("pillow"):
        from PIL import Image

    with Image.open(io.BytesIO(encoded)) as opened:
        mode = {1: "L", 4: "RGBA"}.get(shape[-1], "RGB")
        seen = (
            upright(opened) if resized else opened
        )  # a set of one size says that of what is stored
        picture = seen if seen.mode == mode else seen.convert(mode)
        if resized:
            picture = picture.resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
        pixels = np.asarray(picture).reshape(shape)
    return pixels.transpose(1, 0, 2) if transposed else pixels
