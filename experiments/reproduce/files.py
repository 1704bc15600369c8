"""Files that are there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def write_text(path: Path, content: str) -> None:
    write(path, lambda unfinished: unfinished.write_text(content))


def write(path: Path, how: Callable[[Path], object]) -> None:
    """Makes `path` and its folder; `how` writes to another name beside it, which then takes its place.

    Raises:
      OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"unfinished-{path.name}")
    try:
        how(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
