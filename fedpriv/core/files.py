"""Files that are there as a whole or not at all, whenever a process is killed or the disk is full; the cache folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """The path to write to; what is there then takes the place of `path` at once, or is removed after an error.

    It is on the disk before it takes the place, so that a machine that stops leaves the old file or the new one. A
    process that is killed may leave NAME.unfinished, which the next one overwrites unless it is `shared`.

    Args:
      path: of a file in a folder that exists.
      shared: other processes may write the same file meanwhile; then each has an unfinished file of its own.

    Raises:
      OSError: it cannot be written, such as on a full disk; the error names `path`, which is as it was.
    """
    own = f".{secrets.token_hex(4)}" if shared else ""
    unfinished = path.with_name(f"{path.name}{own}.unfinished")
    try:
        yield unfinished
        to_disk(unfinished)
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            known = error.filename not in (None, str(unfinished))
            error.filename = error.filename if known else str(path)
        raise


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Saves a figure of matplotlib, by `replacing`, in the format of the path's ending, or in matplotlib's own.

    The folder is made where there is none.

    Args:
      options: of `Figure.savefig`.

    Raises:
      OSError: as `replacing`.
      ValueError: a format that matplotlib does not write.
    """
    kind = options.pop("format", path.suffix[1:])
    if not kind:
        kind = figure.canvas.get_default_filetype()
        path = path.with_name(f"{path.name.rstrip('.')}.{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, shared=True) as unfinished:
        figure.savefig(unfinished, format=kind, **options)


def to_disk(file: Path) -> None:
    """Waits until the file's content is on the disk."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def user_cache() -> Path:
    """fedpriv in the user's cache folder, such as ~/.cache ($XDG_CACHE_HOME).

    Raises:
      RuntimeError: the user has no home folder.
    """
    import platformdirs

    return platformdirs.user_cache_path("fedpriv").expanduser()
