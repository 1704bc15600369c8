"""Decoded arrays kept in an uncompressed .npz, beside the data or else in the user's cache.

A cache carries the fingerprint of the files it was made from and is made anew when that differs. One that is damaged or
cannot be written is never an error. A folder without any write permission is left alone, also by root.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_VERSION = 1  # raise it when the decoding or the layout of the cache changes
_FIELD = "fingerprint"
_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH

Arrays = dict[str, np.ndarray]


def cached(
    folder: Path,
    name: str,
    described: Sequence[Path],
    records: Sequence[Path],
    make: Callable[[], Arrays],
) -> Arrays:
    """The arrays of `make()`, from a cache if a valid one is there.

    Args:
        folder: the folder of the data, tried first.
        name: what to call the cache; unique within `folder`.
        described: small files that describe the data; their contents are in the fingerprint.
        records: the data files; their names, sizes and modification times are in the fingerprint.
        make: decodes the data.
    """
    fingerprint = _fingerprint(name, described, records)
    places = [folder / f"fedpriv-{name}.npz"]
    with contextlib.suppress(RuntimeError):  # no home folder
        places.append(user_cache() / f"{name}-{fingerprint[:16]}.npz")
    for place in places:
        arrays = _read(place, fingerprint)
        if arrays is not None:
            return arrays
    arrays = make()
    for place in places:
        if _write(place, fingerprint, arrays):
            break
    return arrays


def user_cache() -> Path:
    """$XDG_CACHE_HOME/fedpriv, else ~/.cache/fedpriv."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedpriv"


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
    """Writes the cache in one step, so that no reader sees half of it; False if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.parent.stat().st_mode & _ANY_WRITE:
            return False  # declared read-only: root could write there, and should not
        with _temporary(path) as file:
            fields: dict[str, Any] = {_FIELD: np.array(fingerprint), **arrays}
            np.savez(file, **fields)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[str]:
    """A file in the same folder that replaces `path` on success and is removed on failure."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".npz", dir=path.parent)
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide it from others sharing the folder
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
