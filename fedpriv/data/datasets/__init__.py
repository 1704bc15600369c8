"""Real datasets as NumPy arrays, read without TensorFlow and never downloaded.

A set that is not there is an error that says how to get it, never a substitute.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedpriv.data.datasets.dataset import CorruptDataError, Dataset, MissingDataError
from fedpriv.data.datasets.digits import load_digits
from fedpriv.data.datasets.images import load_images
from fedpriv.data.datasets.shakespeare import load_shakespeare
from fedpriv.data.datasets.synthetic import synthetic

_LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "mnist": partial(load_images, "mnist"),
    "fashion_mnist": partial(load_images, "fashion_mnist"),
    "cifar10": partial(load_images, "cifar10"),
    # Both training parts: 73,257 + 531,131 examples.
    "svhn_cropped": partial(load_images, "svhn_cropped", train=("train", "extra")),
    "emnist/balanced": partial(load_images, "emnist/balanced", transposed=True),
    "emnist/bymerge": partial(load_images, "emnist/bymerge", transposed=True),
    "digits": load_digits,
    "shakespeare": load_shakespeare,
}

NAMES = tuple(_LOADERS)


def default_data_dir() -> Path:
    """The folder of prepared sets: $TFDS_DATA_DIR, else ~/tensorflow_datasets."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Reads a dataset.

    Args:
        name: one of `NAMES`.
        data_dir: the folder of prepared sets; default: `default_data_dir()`.

    Raises:
        ValueError: unknown name.
        MissingDataError: the set, or a split of it, is not there.
        CorruptDataError: a file of it cannot be read.
        ModuleNotFoundError: a package that reads it is not installed; names it.
    """
    if name not in _LOADERS:
        raise ValueError(f"name={name!r} is not a known dataset; give one of {', '.join(NAMES)}")
    folder = default_data_dir() if data_dir is None else Path(data_dir).expanduser()
    return _LOADERS[name](folder)


__all__ = [
    "NAMES",
    "CorruptDataError",
    "Dataset",
    "MissingDataError",
    "default_data_dir",
    "load",
    "synthetic",
]
