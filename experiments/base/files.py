"""Text files written whole, files to be read, and folders that one process at a time writes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedpriv.core.files import replacing


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


@contextmanager
def opened(path: Path, remedy: str) -> Iterator[BinaryIO]:
    """A file to be read; a folder in its place, or a pipe, which may never end, is none.

    Raises:
      ValueError: it cannot be read; says why, and the remedy.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"cannot read {path} (it is no file); {remedy}")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}); {remedy}") from None


def write_text(path: Path, text: str) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
