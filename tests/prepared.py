"""Writes tiny prepared TensorFlow Datasets image sets, without TensorFlow.

The folders have the layout of the official builders in the array_record format:
`<name>/<version>/{dataset_info.json, features.json, <name>-<split>.array_record-00000-of-00001}`.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

VERSIONS = {"mnist": "3.0.1", "fashion_mnist": "3.0.1", "cifar10": "3.0.2", "svhn_cropped": "3.1.0"}
EMNIST_VERSION = "3.1.0"

Split = Mapping[str, np.ndarray]  # {"image": u8[N, height, width, channels], "label": i[N]}


def random_split(
    rng: np.random.Generator, count: int, shape: tuple[int, ...], num_classes: int
) -> Split:
    """Random pixels and labels."""
    image = rng.integers(0, 256, (count, *shape), np.uint8)
    return {"image": image, "label": rng.integers(0, num_classes, count, np.int32)}


def write_images(
    data_dir: Path,
    name: str,
    splits: Mapping[str, Split],
    num_classes: int,
    *,
    shards: int = 1,
    file_format: str = "array_record",
) -> Path:
    """Writes the set and returns its folder; each split goes into `shards` files."""
    base, _, config = name.partition("/")
    folder = data_dir / base / config / (EMNIST_VERSION if config else VERSIONS[base])
    folder.mkdir(parents=True)
    shape = next(iter(splits.values()))["image"].shape[1:]
    infos = [
        _write_split(folder, base, split, examples, shards) for split, examples in splits.items()
    ]
    info = {"name": base, "fileFormat": file_format, "splits": infos, "version": folder.name}
    if config:
        info["configName"] = config
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(_features(shape, num_classes)))
    return folder


def record_files(folder: Path) -> list[Path]:
    """The record files of a set, sorted."""
    return sorted(folder.glob("*.array_record-*"))


def _write_split(folder: Path, base: str, split: str, examples: Split, shards: int) -> dict:
    from array_record.python.array_record_module import ArrayRecordWriter

    pieces = np.array_split(np.arange(len(examples["label"])), shards)
    size = 0
    for i, rows in enumerate(pieces):
        path = folder / f"{base}-{split}.array_record-{i:05d}-of-{shards:05d}"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for row in rows:
            record = _record(examples["image"][row], int(examples["label"][row]))
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


def _record(image: np.ndarray, label: int) -> bytes:
    from tensorflow_datasets.proto import tf_example_pb2

    example = tf_example_pb2.Example()
    example.features.feature["image"].bytes_list.value.append(encode_png(image))
    example.features.feature["label"].int64_list.value.append(label)
    return example.SerializeToString()


def _features(shape: tuple[int, ...], num_classes: int) -> dict:
    base = "tensorflow_datasets.core.features"
    dimensions = {"dimensions": [str(size) for size in shape]}
    image = {
        "pythonClassName": f"{base}.image_feature.Image",
        "image": {"dtype": "uint8", "shape": dimensions},
    }
    label = {
        "pythonClassName": f"{base}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": str(num_classes)},
    }
    return {
        "pythonClassName": f"{base}.features_dict.FeaturesDict",
        "featuresDict": {"features": {"image": image, "label": label}},
    }
