"""Files in LEAF's JSON format as NumPy arrays, for `Federation.from_arrays`.

S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097. A file is an object with `users`, their
names, `num_samples`, how many records each has, and `user_data`: of each user an object with the lists `x` and `y`.
Other entries, such as `hierarchies`, are not read.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.core.arguments import check_path
from fedpriv.core.complaints import shown
from fedpriv.data.datasets.dataset import CorruptDataError
from fedpriv.data.datasets.importers import Arrays, is_text, narrowed, stacked


def from_leaf(path: str | os.PathLike[str], **columns: str) -> Arrays:
    """Reads a file in LEAF's format, or a folder of them: columns, and `client`, the user of each record.

    Users come in the order of file names and of `users` in each file. A user in several files has the records of all.
    Hidden files are left out. Numbers, lists of them and strings become arrays as in `from_huggingface`.

    Args:
        path: FILE.json, FILE.json.gz, or a folder of such files, such as LEAF's `data/train`.
        columns: name of a leaf = its name in `user_data`, such as `image="x", label="y"`; by default `features="x",
            label="y"`.

    Raises:
        ValueError: no such file; a user who occurs twice in a file, or has no records; numbers of records that
            disagree; missing values or NaN; records that differ in shape.
        CorruptDataError: a file that cannot be read.
    """
    columns = columns or {"features": "x", "label": "y"}
    if "client" in columns:
        raise ValueError("client: this name is taken by the users; give the column another name")
    clients: list[str] = []
    parts: dict[str, list[np.ndarray]] = {leaf: [] for leaf in columns}
    for file in _files(path):
        for user, count, records in _users_of(file, list(columns.values())):
            clients += [user] * count
            for leaf, column in columns.items():
                own = _array(f"{file}: user {user!r}", leaf, records[column], parts[leaf])
                parts[leaf].append(own)
    arrays = {leaf: narrowed(np.concatenate(each)) for leaf, each in parts.items()}
    return arrays | {"client": np.array(clients)}


def _files(path: str | os.PathLike[str]) -> list[Path]:
    check_path("path", path, "give a file in LEAF's format, or a folder of such")
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    inside = sorted(place.iterdir()) if place.is_dir() else []
    files = [file for file in inside if _is_json(file)]
    if not files:
        raise ValueError(
            f"path: {place} is no file, and no folder of .json or .json.gz files; correct it"
        )
    for file in files:
        if file.with_name(f"{file.name}.gz") in files:
            raise ValueError(f"{file}: {file.name}.gz exists, too; remove one of them")
    return files


def _is_json(file: Path) -> bool:
    ends = file.name.lower().endswith((".json", ".json.gz"))
    return ends and file.is_file() and not file.name.startswith(".")


def _users_of(file: Path, columns: list[str]) -> Iterator[tuple[str, int, Mapping[str, list]]]:
    """The users of a file, each with the number of records, and a list of it for every column."""
    content = _content(file)
    users, data = content.get("users"), content.get("user_data")
    counts = content.get("num_samples")
    if not isinstance(users, list) or not isinstance(data, dict) or not users:
        raise ValueError(
            f"{file}: it has no users or no user_data; give a file in LEAF's format, an object with both"
        )
    for user in users:
        if not isinstance(user, str) or not user or user.endswith("\0"):  # NumPy would lose this
            raise ValueError(f"{file}: users: {shown(user)}; give names, which are strings")
    if twice := _twice(users):
        raise ValueError(f"{file}: user {twice!r} occurs twice; list each user once")
    if other := data.keys() - set(users):
        raise ValueError(
            f"{file}: user_data has {min(other)!r}, which users has not; add it there, or remove it"
        )
    if counts is not None and (not isinstance(counts, list) or len(counts) != len(users)):
        raise ValueError(
            f"{file}: num_samples: {shown(counts)} for {len(users)} users; give a number for each"
        )
    for i, user in enumerate(users):
        count = _check_records(f"{file}: user {user!r}", data.get(user), columns)
        if counts is not None and counts[i] != count:
            raise ValueError(
                f"{file}: user {user!r} has {count} records, but {shown(counts[i])} by num_samples; correct the file"
            )
        yield user, count, data[user]


def _check_records(whose: str, records: Any, columns: list[str]) -> int:
    """How many there are."""
    if not isinstance(records, dict):
        raise ValueError(f"{whose} is not in user_data; add the records, or remove the user")
    for column in columns:
        if not isinstance(records.get(column), list):
            names = ", ".join(map(repr, records)) or "nothing"
            raise ValueError(f"{whose} has no list {column!r}, only {names}; name existing columns")
    lengths = {column: len(records[column]) for column in columns}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{count} in {column!r}" for column, count in lengths.items())
        raise ValueError(f"{whose} has {told}; give every record all of them")
    (count,) = set(lengths.values())
    if count == 0:
        raise ValueError(f"{whose} has no records; remove the user")
    return count


def _array(whose: str, leaf: str, values: list, before: list[np.ndarray]) -> np.ndarray:
    """[n, ...] of a user's values, alike those of the users before."""
    try:
        own = stacked(leaf, values)
    except ValueError as error:
        raise ValueError(f"{whose}: {error}") from None
    if own.dtype.kind == "f" and not np.isfinite(own).all():
        row = int(np.argwhere(~np.isfinite(own))[0][0])
        raise ValueError(f"{whose}: {leaf}: row {row} is not finite; remove or repair it")
    if before and (own.shape[1:] != before[0].shape[1:] or is_text(own) != is_text(before[0])):
        raise ValueError(
            f"{whose}: {leaf}: {_words(own)}, but {_words(before[0])} of the first user; give all the same shape"
        )
    return own


def _words(array: np.ndarray) -> str:
    kind = "strings" if is_text(array) else "numbers"
    return f"{kind} of the shape {list(array.shape[1:])}"


def _content(file: Path) -> dict[str, Any]:
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8-sig") as text:
            content = json.load(text, object_pairs_hook=_once)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise CorruptDataError(f"{file}: it cannot be read ({error}); repair it") from None
    return content if isinstance(content, dict) else {}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, of which Python's reader would keep the last of two values with one name."""
    if twice := _twice([name for name, _ in pairs]):
        raise ValueError(f"{twice!r} occurs twice in one object")
    return dict(pairs)


def _twice(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
