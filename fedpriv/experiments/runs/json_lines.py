"""A file with a JSON object on each line, which grows while a run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedpriv.core.json_values import plain
from fedpriv.experiments.base.files import write_text


class JsonLines:
    """Lines of JSON that are on the disk once `write` returns.

    Args:
      path: the file.
      every: gives all objects that the file is to have.

    Attributes:
      new: objects that it does not have yet.
      stale: whether it has some that it is not to have any more.
    """

    def __init__(self, path: Path, every: Callable[[], Iterable[Any]]):
        self._path, self._every = path, every
        self.new: list[Any] = []
        self.stale = False
        self._size = 0  # in bytes, as it was left here

    def write(self) -> None:
        """Adds the new ones, or writes all anew where the file is not as it was left.

        Raises:
          OSError: it cannot be written; it then is as it was.
        """
        if self.stale or (self._path.stat().st_size if self._path.exists() else 0) != self._size:
            self.write_all()
        elif self.new:
            self._add()

    def _add(self) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_text(self.new))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # a part of a line
                os.truncate(self._path, self._size)
            raise
        self._size, self.new = self._path.stat().st_size, []

    def write_all(self) -> None:
        """Raises OSError: it cannot be written."""
        text = _text(self._every())
        write_text(self._path, text)
        self._size, self.new, self.stale = len(text.encode()), [], False


def _text(objects: Iterable[Any]) -> str:
    return "".join(json.dumps(plain(each)) + "\n" for each in objects)
