"""The files of a data set in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def files_in(root: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files in a folder and in folders inside whose names end in one of these, sorted; hidden ones are left out."""
    found = []
    for folder, inner, names in os.walk(root, followlinks=True):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            if name.lower().endswith(tuple(suffixes)) and not name.startswith("."):
                found.append(Path(folder, name))
    return sorted(found)
