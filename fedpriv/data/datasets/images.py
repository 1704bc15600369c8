"""Image sets of TensorFlow Datasets, read without TensorFlow.

It is needed once, to *prepare* a set::

    pip install tensorflow && tfds build mnist --file_format=array_record --data_dir=DIR

Records are taken as raw bytes, and the PNG or JPEG decoded here, several times faster than by the library itself.
"""

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets.cache import Arrays, cached
from fedpriv.data.datasets.dataset import CorruptDataError, Dataset, MissingDataError

_BATCH = 1000  # records read at a time


def load_images(
    name: str,
    data_dir: Path,
    *,
    train: Sequence[str] = ("train",),
    test: Sequence[str] = ("test",),
    transposed: bool = False,
) -> Dataset:
    """An image set: image u8[N, height, width, channels], label i32[N], in the order of the files.

    Args:
        name: of the TensorFlow Datasets builder, with its configuration (`emnist/balanced`).
        data_dir: the folder of prepared sets.
        train, test: the splits that make the training and the test set, one after the other.
        transposed: the set stores rows and columns exchanged, as EMNIST does; the images returned are upright.

    Raises:
        MissingDataError: the set is not prepared there, or lacks a split or a file.
        CorruptDataError: a record file cannot be read.
        ModuleNotFoundError: tensorflow-datasets or Pillow is not installed.
    """
    with _quiet():
        builder = _prepared(name, data_dir)
        _check_splits(builder, name, [*train, *test])
        num_classes = int(builder.info.features["label"].num_classes)
        parts = [_splits(builder, splits, transposed) for splits in (train, test)]
    return Dataset(name, parts[0], parts[1], num_classes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the library's log lines on variant folders and record groups; they are harmless."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _prepared(name: str, data_dir: Path) -> Any:
    """The builder of a set that is there in the array_record format."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=str(data_dir))
    except ImportError:
        raise
    except Exception as error:  # the library has no one error for a damaged dataset_info.json
        raise CorruptDataError(
            f"the description of dataset {name} in {data_dir} cannot be read ({_reason(error)}); "
            "copy or prepare it anew"
        ) from error
    how = (
        "prepare it once where TensorFlow is installed (pip install tensorflow && "
        f"tfds build {name} --file_format=array_record --data_dir={data_dir}), "
        "or give the data_dir of a folder where it is prepared"
    )
    # Without this check, reading absent data raises an error about another file format.
    if not builder.is_prepared():
        raise MissingDataError(f"dataset {name} is not in {builder.data_dir}; {how}")
    if builder.info.file_format.value != "array_record":
        raise MissingDataError(
            f"dataset {name} in {builder.data_dir} is in the {builder.info.file_format.value} "
            f"format, not array_record; {how}"
        )
    return builder


def _check_splits(builder: Any, name: str, splits: Sequence[str]) -> None:
    for split in splits:
        if split not in builder.info.splits:
            raise MissingDataError(
                f"dataset {name} in {builder.data_dir} has no split {split!r}, only "
                f"{', '.join(map(repr, builder.info.splits))}; prepare the whole set there, "
                "or give the data_dir of a folder where it is complete"
            )
        for path in _files(builder, split):
            if not path.exists():
                raise MissingDataError(f"dataset {name} lacks the file {path}; prepare it anew")


def _files(builder: Any, split: str) -> list[Path]:
    return [Path(path) for path in builder.info.splits[split].filepaths]


def _splits(builder: Any, splits: Sequence[str], transposed: bool) -> Arrays:
    """The joined splits, from the cache or decoded."""
    folder = Path(builder.data_dir)
    return cached(
        folder,
        "+".join(splits),
        [folder / "dataset_info.json", folder / "features.json"],
        [path for split in splits for path in _files(builder, split)],
        lambda: _decode(builder, splits, transposed),
    )


def _decode(builder: Any, splits: Sequence[str], transposed: bool) -> Arrays:
    from tensorflow_datasets.proto import tf_example_pb2

    shape = builder.info.features["image"].shape
    total = sum(builder.info.splits[split].num_examples for split in splits)
    image = np.empty((total, *shape), np.uint8)
    label = np.empty(total, np.int32)
    for row, (path, record) in enumerate(_records(builder, splits)):
        feature = tf_example_pb2.Example.FromString(record).features.feature
        try:  # a truncated file can also give empty records
            pixels = _pixels(feature["image"].bytes_list.value[0], shape)
            label[row] = feature["label"].int64_list.value[0]
        except (OSError, ValueError, IndexError, SyntaxError) as error:  # what Pillow may raise
            raise CorruptDataError(
                f"{path} may be truncated: example {row} cannot be decoded ({_reason(error)}); "
                "copy or prepare it anew"
            ) from error
        image[row] = pixels.transpose(1, 0, 2) if transposed else pixels
    return {"image": image, "label": label}


def _records(builder: Any, splits: Sequence[str]) -> Iterator[tuple[Path, bytes]]:
    """Every record with the file it is in."""
    from tensorflow_datasets import decode

    raw = decode.DeserializeMethod.RAW_BYTES
    for split in splits:
        source = builder.as_data_source(split, deserialize_method=raw)
        start = 0
        lengths = builder.info.splits[split].shard_lengths
        for path, length in zip(_files(builder, split), lengths, strict=True):
            for first in range(start, start + length, _BATCH):
                wanted = range(first, min(first + _BATCH, start + length))
                yield from ((path, record) for record in _read(source, wanted, path))
            start += length


def _read(source: Any, wanted: range, path: Path) -> Sequence[bytes]:
    # A truncated file opens, and mostly fails when it is read.
    try:
        return source.__getitems__(wanted)
    except (RuntimeError, ValueError, IndexError) as error:
        raise CorruptDataError(
            f"{path} may be truncated: it cannot be read ({_reason(error)}); "
            "copy or prepare it anew"
        ) from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _pixels(encoded: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Decodes a PNG or JPEG: u8[height, width, channels]."""
    with of_package("pillow"):
        from PIL import Image

    with Image.open(io.BytesIO(encoded)) as picture:
        mode = "L" if shape[-1] == 1 else "RGB"
        return np.asarray(picture if picture.mode == mode else picture.convert(mode)).reshape(shape)
