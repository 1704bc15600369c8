"""Writes tiny prepared TensorFlow Datasets sets of images or texts, without TensorFlow.

The folders have the layout of the official builders in the array_record format:
`<name>/<version>/{dataset_info.json, features.json, <name>-<split>.array_record-00000-of-00001}`.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

VERSIONS = {"mnist": "3.0.1", "fashion_mnist": "3.0.1", "cifar10": "3.0.2", "svhn_cropped": "3.1.0"}
EMNIST_VERSION = "3.1.0"

Split = Mapping[
    str, Any
]  # {"image": u8[N, height, width, channels] or texts, "label": i[N]}, under any names


def random_split(
    rng: np.random.Generator, count: int, shape: tuple[int, ...], num_classes: int
) -> Split:
    """Random pixels and labels."""
    image = rng.integers(0, 256, (count, *shape), np.uint8)
    return {"image": image, "label": rng.integers(0, num_classes, count, np.int32)}


def write_random(data_dir: Path, *names: str, train: int, test: int) -> None:
    """Sets of so many random images each, of the shape and with the classes that the real ones have."""
    rng = np.random.default_rng(0)
    for name in names:
        shape = (32, 32, 3) if name == "cifar10" else (28, 28, 1)
        classes = 47 if name.startswith("emnist") else 10
        counts = {"train": train, "test": test}
        splits = {split: random_split(rng, n, shape, classes) for split, n in counts.items()}
        write_images(data_dir, name, splits, classes)


def write_images(
    data_dir: Path,
    name: str,
    splits: Mapping[str, Split],
    num_classes: int | None,
    *,
    supervised: bool = False,
    sized: bool = True,
    shards: int = 1,
    file_format: str = "array_record",
) -> Path:
    """Writes the set and returns its folder; each split goes into `shards` files.

    Args:
        num_classes: None: the labels are plain integers.
        supervised: the description names example and label.
        sized: the description gives the size of the images.
    """
    base, _, config = name.partition("/")
    folder = data_dir / base / config / (EMNIST_VERSION if config else VERSIONS.get(base, "1.0.0"))
    folder.mkdir(parents=True)
    first = next(iter(splits.values()))
    example, label = first
    infos = [
        _write_split(folder, base, split, examples, shards) for split, examples in splits.items()
    ]
    info = {"name": base, "fileFormat": file_format, "splits": infos, "version": folder.name}
    if config:
        info["configName"] = config
    if supervised:
        keys = [{"featureKey": key} for key in first]
        info["supervisedKeys"] = {"tuple": {"items": keys}}
    shape = first[example].shape[1:] if isinstance(first[example], np.ndarray) else None
    features = {example: _feature(shape, sized), label: _label(num_classes)}
    described = {
        "pythonClassName": f"{FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(described))
    return folder


def record_files(folder: Path) -> list[Path]:
    """The record files of a set, sorted."""
    return sorted(folder.glob("*.array_record-*"))


def _write_split(folder: Path, base: str, split: str, examples: Split, shards: int) -> dict:
    from array_record.python.array_record_module import ArrayRecordWriter

    example, label = examples
    pieces = np.array_split(np.arange(len(examples[label])), shards)
    size = 0
    for i, rows in enumerate(pieces):
        path = folder / f"{base}-{split}.array_record-{i:05d}-of-{shards:05d}"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for row in rows:
            record = _record({name: examples[name][row] for name in (example, label)})
            size += len(record)
            writer.write(record)
        writer.close()
    return {
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        "name": split,
        "numBytes": str(size),
        "shardLengths": [str(len(rows)) for rows in pieces],
    }


def encode_png(image: np.ndarray) -> bytes:
    """The PNG file of an image, u8[height, width, channels]."""
    from PIL import Image

    png = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(png, "PNG")
    return png.getvalue()


def _record(values: Mapping[str, Any]) -> bytes:
    from tensorflow_datasets.proto import tf_example_pb2

    record = tf_example_pb2.Example()
    for name, value in values.items():
        feature = record.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif np.ndim(value):
            feature.bytes_list.value.append(encode_png(value))
        else:
            feature.int64_list.value.append(int(value))
    return record.SerializeToString()


FEATURES = "tensorflow_datasets.core.features"


def _feature(shape: tuple[int, ...] | None, sized: bool) -> dict:
    if shape is None:
        return {"pythonClassName": f"{FEATURES}.text_feature.Text", "text": {}}
    sizes = shape if sized else (-1, -1, shape[-1])
    dimensions = {"dimensions": [str(size) for size in sizes]}
    return {
        "pythonClassName": f"{FEATURES}.image_feature.Image",
        "image": {"dtype": "uint8", "shape": dimensions},
    }


def _label(num_classes: int | None) -> dict:
    if num_classes is None:
        scalar = {"shape": {}, "dtype": "int64", "encoding": "none"}
        return {"pythonClassName": f"{FEATURES}.scalar.Scalar", "tensor": scalar}
    return {
        "pythonClassName": f"{FEATURES}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": str(num_classes)},
    }
