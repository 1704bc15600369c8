"""Text files written whole, files to be read, and folders that have a name of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO

from fedpriv.core.files import replacing


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
    """Writes the file whole, and makes its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
