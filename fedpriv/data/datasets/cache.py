"""Decoded arrays kept in an uncompressed .npz in the user's cache; nothing is written beside the data.

A cache is named by the fingerprint of the files it was made from; it replaces those of the same set made from others.
One that is damaged or cannot be written is never an error, and the folder may be deleted at any time.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.core.files import replacing, user_cache

_VERSION = 2  # raise it when the decoding or the layout of the cache changes
_FIELD = "fingerprint"

Arrays = dict[str, np.ndarray]


def cached(
    name: str,
    described: Sequence[Path],
    records: Sequence[Path],
    make: Callable[[], Arrays],
) -> Arrays:
    """The arrays of `make()`, from a cache if a valid one is there.

    Args:
        name: of the cache; says what is decoded, and how.
        described: small files that describe the data; their contents are in the fingerprint.
        records: the data files; their names, sizes and modification times are in the fingerprint.
        make: decodes the data.
    """
    fingerprint = _fingerprint(name, described, records)
    try:
        folder = user_cache() / "data"
    except RuntimeError:  # no home folder
        return make()
    stem = re.sub(r"[^\w+.]", "_", name)
    place = folder / f"{stem}-{fingerprint[:16]}.npz"
    arrays = _read(place, fingerprint)
    if arrays is None:
        arrays = make()
        if _write(place, fingerprint, arrays):
            _forget(folder.glob(f"{stem}-{'?' * 16}.npz"), place)
    return arrays


def _forget(files: Iterable[Path], kept: Path) -> None:
    for file in files:
        if file != kept:
            with contextlib.suppress(OSError):
                file.unlink()


def _fingerprint(name: str, described: Sequence[Path], records: Sequence[Path]) -> str:
    digest = hashlib.sha256(f"fedpriv cache {_VERSION} {name}\n".encode())
    for path in described:
        digest.update(path.read_bytes())
    for path in records:
        file = path.stat()
        digest.update(f"\n{path.name} {file.st_size} {file.st_mtime_ns}".encode())
    return digest.hexdigest()


def _read(path: Path, fingerprint: str) -> Arrays | None:
    """The arrays in a cache; None if it is absent, damaged, or made from other data."""
    try:
        # Opened here, because NumPy leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if str(file[_FIELD]) != fingerprint:
                return None
            return {key: file[key] for key in file.files if key != _FIELD}
    except Exception:  # a damaged file fails in many ways; the data are then decoded again
        return None


def _write(path: Path, fingerprint: str, arrays: Arrays) -> bool:
    """Whether the cache could be written."""
    fields: dict[str, Any] = {_FIELD: np.array(fingerprint), **arrays}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, shared=True) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **fields)
    except OSError:
        return False
    return True
