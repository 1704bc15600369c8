"""Data sets of Hugging Face and of PyTorch as NumPy arrays, for `Federation.from_arrays`. Neither is imported here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.data.datasets.arrow_columns import values_of
from fedpriv.data.datasets.image_files import mode_of, opened, stored_modes, upright
from fedpriv.data.datasets.streams import columns_of_stream, is_stream
from fedpriv.data.validation import columns_of_table

Arrays = dict[str, np.ndarray]
BY_DEFAULT = {"image": "image", "label": "label"}
"""Name of a leaf -> its column."""


def from_huggingface(dataset: Any, *, most_rows: Count = 1_000_000, **columns: str) -> Arrays:
    """One split of a Hugging Face data set, or any table whose columns are `dataset[name]`, as Arrow's or pandas's.

    One that is streamed, or anything else that gives dicts, such as a list, is read to its end.

    Pictures, and files of such as `{"bytes": ...}` or in a column `image`, become u8[N, height, width, channels], as
    their EXIF orientation says they are seen. Lists and arrays become [N, ...], and strings an array of strings (client
    ids, or texts for `encode_text`). 64-bit numbers become 32-bit if they fit; whole numbers, such as ids, if they stay
    the same.

    Args:
        dataset: a `datasets.Dataset`, such as `load_dataset("mnist")["train"]`, or a table in memory. Files are read by
            `from_parquet`.
        most_rows: of a stream of unknown length; one with more is refused, as it may have no end.
        columns: name of a leaf = its column, such as `image="img", label="fine_label", client="writer"`; by default
            `image="image", label="label"`.

    Raises:
        ValueError: all splits at once; a missing column, or two of one name; rows that are missing or differ in shape;
            a stream without rows, or with too many.
    """
    most_rows = checked("most_rows", most_rows, Count)
    values = imported_values("dataset", dataset, columns, most_rows)
    return {leaf: stacked(leaf, column) for leaf, column in values.items()}


def imported_values(
    name: str, dataset: Any, columns: Mapping[str, str], most_rows: int = 1_000_000
) -> dict[str, np.ndarray | Sequence[Any]]:
    """Name of a leaf -> the values of its column; arguments and errors as those of `from_huggingface`.

    Args:
        name: what a complaint calls the data set.
    """
    path = isinstance(dataset, str | os.PathLike)
    require(not path, name, dataset, "read files by fp.datasets.from_parquet, of this path")
    if is_stream(dataset):
        wanted = (columns or BY_DEFAULT).values()
        check = partial(columns_named, columns, where=f" in {name}")
        dataset = columns_of_stream(name, dataset, wanted, most_rows, check)
    if not hasattr(dataset, "__getitem__"):
        raise ValueError(f"{name}: a {type(dataset).__name__} without columns; give a table")
    if _is_of_splits(dataset):
        raise ValueError(
            f"{name}: has the splits {', '.join(dataset)}; give one, such as {name}[{next(iter(dataset))!r}]"
        )
    named = columns_named(columns, columns_of_table(name, dataset), f" in {name}")
    return {leaf: values_of(dataset[column]) for leaf, column in named.items()}


def _is_of_splits(dataset: Any) -> bool:
    """Whether it is Hugging Face's dict of data sets, streamed ones or not."""
    several = isinstance(dataset, Mapping) and len(dataset) > 0
    return several and all(hasattr(one, "column_names") for one in dataset.values())


def columns_named(
    columns: Mapping[str, str], there: Iterable[str], where: str = ""
) -> Mapping[str, str]:
    """Name of a leaf -> its column, by default of an image and its label.

    Args:
        there: the columns that there are.
        where: of which file, for the complaint.

    Raises:
        ValueError: one is not there.
    """
    columns, names = columns or BY_DEFAULT, list(there)
    for leaf, column in columns.items():
        if column not in names:
            listed = ", ".join(map(str, names)) or "none"
            raise ValueError(
                f"{leaf}: there is no column {column!r}{where}, only {listed}; name one that is there, as {leaf}="
            )
    return columns


def from_torch(
    dataset: Any, names: Sequence[str] = ("image", "label"), *, channels_first: bool = True
) -> Arrays:
    """A map-style PyTorch data set; tensors, pictures, arrays and numbers become arrays as in `from_huggingface`.

    Pictures are turned by the EXIF orientation that they still have: turn them yourself by `ImageOps.exif_transpose`,
    which takes it away, not by `transpose` or `rotate`, which may leave it.

    Args:
        dataset: has a length, and items that are tuples or dicts.
        names: names of a tuple's entries; dicts have names.
        channels_first: a tensor `image` is [channels, height, width], as in torchvision, and becomes [height, width,
            channels].

    Raises:
        ValueError: no length; no items; items with another number of entries; rows that differ in shape.
    """
    channels_first = checked("channels_first", channels_first, bool)
    named = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    named = named and len(set(names)) == len(names)
    require(named, "names", names, "give each entry a name, such as ('image', 'label')")
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ValueError(
            f"dataset: a {type(dataset).__name__} without length or indices; give a map-style data set, or stack its "
            "items yourself"
        )
    items = [_named(dataset[i], names, i) for i in range(len(dataset))]
    if not items:
        raise ValueError("dataset: it is empty; give one with items")
    for i, item in enumerate(items):
        if item.keys() != items[0].keys():
            raise ValueError(
                f"dataset[{i}]: its entries are {', '.join(item)}, but those of dataset[0] are "
                f"{', '.join(items[0])}; give all items the same"
            )
    return {
        name: stacked(name, [item[name] for item in items], channels_first) for name in items[0]
    }


def _named(item: Any, names: Sequence[str], i: int) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    if not isinstance(item, tuple | list) or len(item) != len(names):
        entries = f"{len(item)} entries" if isinstance(item, tuple | list) else "no tuple"
        raise ValueError(
            f"dataset[{i}]: {entries} for the names {', '.join(names)}; give names=, one for each entry"
        )
    return dict(zip(names, item, strict=True))


def stacked(
    name: str, values: np.ndarray | Sequence[Any], channels_first: bool = False
) -> np.ndarray:
    """[N, ...] of N imported values.

    Args:
        name: of the leaf.
        values: pictures of Pillow or their files, tensors, arrays, lists, numbers or strings.
        channels_first: as `from_torch`, of tensors.

    Raises:
        ValueError: a value that is missing, of another shape than the first, a string beside numbers, one that ends in
            a zero character, a picture of more than 8 bits, or bytes that are none.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufM":
        return narrowed(values[..., None] if name == "image" and values.ndim == 3 else values)
    values = [_decoded(name, i, value) for i, value in enumerate(values)]
    modes = {
        mode_of(f"{name}: row {i}", stored_modes(value))
        for i, value in enumerate(values)
        if is_picture(value)
    }
    mode = "RGB" if "RGB" in modes else "L"
    rows = [_array(name, value, mode, channels_first) for value in values]
    for i, row in enumerate(rows):
        if row.dtype == object:
            raise ValueError(
                f"{name}: row {i} is {values[i]!r:.40}; leave out such rows, or turn them into numbers"
            )
        if is_text(row) and row.ndim == 0 and row != np.asarray(values[i], object):
            raise ValueError(
                f"{name}: row {i} is {values[i]!r:.40}, of which NumPy drops the zeros at the end; strip them"
            )
        if is_text(row) != is_text(rows[0]):
            raise ValueError(
                f"{name}: row {i} is {values[i]!r:.40}, row 0 is {values[0]!r:.40}; give all numbers or all strings"
            )
        if row.shape != rows[0].shape:
            raise ValueError(
                f"{name}: row {i} has the shape {list(row.shape)}, row 0 has {list(rows[0].shape)}; give all the "
                f"same shape{', by resizing pictures' * any(map(is_picture, (values[i], values[0])))}"
            )
    column = np.stack(rows) if rows else np.zeros(0)
    if column.dtype.kind == "f" and all(row.dtype.kind in "iu" for row in rows) and rows:
        raise ValueError(
            f"{name}: whole numbers that do not all fit in one 64-bit type; give them as strings"
        )
    return narrowed(column)


def narrowed(column: np.ndarray) -> np.ndarray:
    """An imported column, 64-bit numbers in 32 bits; not whole numbers that would become others, such as ids."""
    narrow = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    if column.dtype not in narrow:
        return column
    with np.errstate(over="ignore"):  # infinity, which is refused where it matters
        short = column.astype(narrow[column.dtype])
    changed = (column == np.round(column)).all() and (short != column).any()
    return column if changed else short


def is_picture(value: Any) -> bool:
    """Whether an imported value is one of Pillow."""
    return hasattr(value, "convert") and hasattr(value, "mode")


def _decoded(name: str, row: int, value: Any) -> Any:
    """The picture of a file, as data sets of Hugging Face and others hold them in Parquet; else the value."""
    held = isinstance(value, dict) and {"bytes", "path"} >= value.keys()
    file = value.get("bytes") if held else value if name == "image" else None
    return opened(f"{name}: row {row}", file) if isinstance(file, bytes) else value


def is_text(array: np.ndarray) -> bool:
    """Whether the entries of an imported column are strings."""
    return array.dtype.kind in "US"


def of_tensor(value: Any) -> Any:
    """A tensor of PyTorch as an array, of bfloat16 in float32; anything else as it is."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    short = str(getattr(tensor, "dtype", None)) == "torch.bfloat16"  # which NumPy has not
    return (tensor.float() if short else tensor).numpy()


def _array(name: str, value: Any, mode: str, channels_first: bool) -> np.ndarray:
    if is_picture(value):
        value, channels_first = np.asarray(upright(value).convert(mode)), False
    elif hasattr(value, "detach"):
        value = of_tensor(value)
    else:
        channels_first = False
        try:
            value = np.asarray(value)
        except ValueError:  # lists of unequal length
            value = np.asarray(None)
    if name == "image" and value.ndim == 3 and channels_first:
        value = value.transpose(1, 2, 0)
    return value[..., None] if name == "image" and value.ndim == 2 else value
