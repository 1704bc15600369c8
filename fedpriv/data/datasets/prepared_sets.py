"""Sets of TensorFlow Datasets with an image or a text, and a label, read without TensorFlow.

It is needed once, to *prepare* a set::

    pip install tensorflow && tfds build mnist --file_format=array_record --data_dir=DIR

Records are taken as raw bytes and decoded here, several times faster than by the library itself.
"""

import contextlib
import difflib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets.cache import Arrays, cached
from fedpriv.data.datasets.columns import Columns, columns_of
from fedpriv.data.datasets.dataset import CorruptDataError, Dataset, MissingDataError

_BATCH = 1000  # records read at a time


def load_prepared(
    name: str,
    data_dir: Path,
    *,
    train: Sequence[str] = ("train",),
    test: Sequence[str] = ("test",),
    image_size: tuple[int, int] | None = None,
    text_length: int = 256,
    known: Sequence[str] = (),
) -> Dataset:
    """The examples in the order of the files, as `load` gives them.

    Args:
        name: of the builder, with its configuration (`emnist/balanced`).
        data_dir: the folder of prepared sets.
        train, test: the splits that make the training and the test set, one after the other.
        image_size, text_length: as `load`.
        known: further names, to suggest where this one is none.

    Raises:
        ValueError: unknown name; features that are not an image or a text and a label.
        MissingDataError: the set is not prepared there, or lacks a split or a file.
        CorruptDataError: a record file cannot be read.
        ModuleNotFoundError: tensorflow-datasets or Pillow is not installed.
    """
    with _quiet():
        builder = _prepared(name, data_dir, known)
        _check_splits(builder, name, [*train, *test])
        # EMNIST is stored with rows and columns exchanged.
        transposed = name.split("/")[0] == "emnist"
        columns = columns_of(builder.info, name, image_size, text_length, transposed)
        parts = [_splits(builder, name, splits, columns) for splits in (train, test)]
    num_classes = columns.num_classes
    if num_classes is None:
        num_classes = 1 + int(parts[0]["label"].max(initial=0))
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


def _prepared(name: str, data_dir: Path, known: Sequence[str]) -> Any:
    """The builder of a set that is there in the array_record format."""
    with of_package("tensorflow-datasets"):
        import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=str(data_dir))
    except tfds.core.DatasetNotFoundError:
        every = {*known, *tfds.list_builders(with_community_datasets=False)}
        near = difflib.get_close_matches(name, sorted(every), 3)
        raise ValueError(
            f"name={name!r} is not a known dataset; "
            + (f"did you mean {' or '.join(near)}? " if near else "")
            + "give one of `fp.datasets.NAMES` or of TensorFlow Datasets"
        ) from None
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


def _splits(builder: Any, name: str, splits: Sequence[str], columns: Columns) -> Arrays:
    """The joined splits, from the cache or decoded."""
    folder = Path(builder.data_dir)
    return cached(
        "-".join([name, "+".join(splits), columns.variant]),
        [folder / "dataset_info.json", folder / "features.json"],
        [path for split in splits for path in _files(builder, split)],
        lambda: _decode(builder, splits, columns),
    )


def _decode(builder: Any, splits: Sequence[str], columns: Columns) -> Arrays:
    from tensorflow_datasets.proto import tf_example_pb2

    total = sum(builder.info.splits[split].num_examples for split in splits)
    values = np.empty((total, *columns.shape), np.uint8)
    label = np.empty(total, np.int32)
    for row, (path, record) in enumerate(_records(builder, splits)):
        feature = tf_example_pb2.Example.FromString(record).features.feature
        try:  # a truncated file can also give empty records
            values[row] = columns.decode(feature[columns.source].bytes_list.value[0])
            label[row] = feature[columns.label].int64_list.value[0]
        except (OSError, ValueError, IndexError, SyntaxError) as error:  # what Pillow may raise
            raise CorruptDataError(
                f"{path} may be truncated: example {row} cannot be decoded ({_reason(error)}); "
                "copy or prepare it anew"
            ) from error
    return {columns.name: values, "label": label}


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
