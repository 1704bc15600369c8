"""Real data sets as NumPy arrays, read without TensorFlow and never downloaded.

If a data set is missing, an error says how to get it; nothing is substituted.
"""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from fedpriv.core.arguments import Count, check_path, checked
from fedpriv.core.complaints import require
from fedpriv.data.datasets.columns import encode_text
from fedpriv.data.datasets.dataset import CorruptDataError, Dataset, MissingDataError
from fedpriv.data.datasets.digits import load_digits
from fedpriv.data.datasets.image_files import from_image_folder, read_images
from fedpriv.data.datasets.importers import from_huggingface, from_torch
from fedpriv.data.datasets.leaf import from_leaf
from fedpriv.data.datasets.parquet import from_parquet
from fedpriv.data.datasets.partitions import from_partitions
from fedpriv.data.datasets.prepared_sets import load_prepared
from fedpriv.data.datasets.shakespeare import load_shakespeare
from fedpriv.data.datasets.synthetic import synthetic
from fedpriv.data.datasets.tokens import from_tokens

_OWN: dict[str, Callable[[Path], Dataset]] = {
    "digits": load_digits,
    "shakespeare": load_shakespeare,
}
# Both training parts: 73,257 + 531,131 examples.
_TRAIN = {"svhn_cropped": ("train", "extra")}

NAMES = (
    *("mnist", "fashion_mnist", "cifar10", "svhn_cropped", "emnist/balanced", "emnist/bymerge"),
    *_OWN,
)
"""What `load` knows by name; it reads others of TensorFlow Datasets, too."""
"""The sets that the experiments use."""


def default_data_dir() -> Path:
    """The folder of prepared sets: $TFDS_DATA_DIR, else ~/tensorflow_datasets."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    train: Sequence[str] = (),
    test: Sequence[str] = (),
    image_size: tuple[Count, Count] | None = None,
    text_length: Count = 256,
) -> Dataset:
    """Reads a data set: one of `NAMES`, or any of TensorFlow Datasets that has an image or a text, and a label.

    Sets of TensorFlow Datasets have to be prepared as `array_record`. Decoded, they are kept in the user's cache folder
    (`~/.cache/fedpriv/data`), which may be deleted at any time; nothing is written into `data_dir`.

    Args:
        name: such as `mnist`, `emnist/balanced` or `imdb_reviews`.
        data_dir: the folder of prepared sets; default: `default_data_dir()`.
        train, test: the splits for training and for testing; default: those of that name, and for `svhn_cropped` also
            `extra`.
        image_size: (height, width) to which images are resized; needed if they differ in size.
        text_length: number of bytes of each text, see `encode_text`.

    Returns:
        Leaves `image` (u8[N, height, width, channels]) or `text` (u8[N, text_length]), and `label` (i32[N]).

    Raises:
        ValueError: an unknown name (the error suggests a similar one); a data set with other features; sizes that are
            not counts.
        MissingDataError: the data set, or a split of it, is missing.
        CorruptDataError: one of its files cannot be read.
        ModuleNotFoundError: a package that reads it is not installed; says which.
    """
    require(isinstance(name, str), "name", name, "give one of fp.datasets.NAMES, such as 'digits'")
    text_length = checked("text_length", text_length, Count)
    if image_size is not None:
        image_size = checked("image_size", image_size, Sequence[Count])
        require(len(image_size) == 2, "image_size", image_size, "give (height, width)")
    data_dir = default_data_dir() if data_dir is None else data_dir
    check_path("data_dir", data_dir, "give the folder of prepared sets, or leave it out")
    train, test = _listed("train", train), _listed("test", test)
    folder = Path(data_dir).expanduser()
    if name in _OWN:
        if train or test or image_size:
            raise ValueError(f"name={name!r} has no splits or sizes to choose; leave these out")
        return _OWN[name](folder)
    return load_prepared(
        name,
        folder,
        train=train or _TRAIN.get(name, ("train",)),
        test=test or ("test",),
        image_size=image_size,
        text_length=text_length,
        known=NAMES,
    )


def _listed(name: str, splits: Sequence[str] | None) -> Sequence[str]:
    if splits is None or isinstance(splits, str):
        return (splits,) if splits else ()
    names = isinstance(splits, Collection) and all(isinstance(one, str) for one in splits)
    require(names, name, splits, "give names of splits, such as ['train']")
    return tuple(splits)


__all__ = [
    "NAMES",
    "CorruptDataError",
    "Dataset",
    "MissingDataError",
    "default_data_dir",
    "encode_text",
    "from_huggingface",
    "from_image_folder",
    "from_leaf",
    "from_parquet",
    "from_partitions",
    "from_tokens",
    "from_torch",
    "load",
    "read_images",
    "synthetic",
]
