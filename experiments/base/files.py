"""Files that are there as a whole or not at all, whenever the process is killed or the disk is full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path to write to; what is there then takes the place of `path` at once, or is removed after an error."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps others on this machine from holding `folder`, until the end of the context or of the process.

    Raises:
      ValueError: another one holds it.
    """
    opened = None
    try:
        import fcntl

        opened = os.open(folder, os.O_RDONLY)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{folder}: another process writes to this run; end it first") from None
    except (OSError, ImportError):  # a file system, or a system, without locks
        pass
    try:
        yield
    finally:
        if opened is not None:
            os.close(opened)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
