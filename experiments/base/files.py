"""Text files written whole, files to be read, and folders that have a name, or a writer, of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
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


def new_folder_by_time(stem: str) -> Path:
    """Makes runs/STEM-DATE-TIME, or if others have that already, on this machine or another, STEM-DATE-TIME-2, ...

    Raises:
      ValueError: it cannot be made.
    """
    named = Path("runs") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        named.parent.mkdir(exist_ok=True)
        for number in count(1):
            folder = named if number == 1 else named.with_name(f"{named.name}-{number}")
            try:
                folder.mkdir()  # of all that try, one alone can
            except FileExistsError:
                continue
            return folder
        raise AssertionError
    except OSError as error:
        raise ValueError(
            f"output: cannot make {named} ({error.strerror}); choose another"
        ) from None


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
