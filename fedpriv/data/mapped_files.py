"""Memory-mapped files of arrays: what is wrong with one is said before it is read, with its name.

Reading a part of a file that is no longer there ends the process (SIGBUS), and nothing can be said then.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import jax
import numpy as np

from fedpriv.core.types import PyTree

_ANEW = "copy it again, or make the folder anew with write_clients"


def mapped(path: Path) -> np.ndarray:
    """The array of a .npy file, which is read when it is indexed.

    Raises:
      ValueError: it is no such file, or longer or shorter than its header says.
      OSError: it cannot be opened.
    """
    array = loaded(path, mmap_mode="r")
    size, said = path.stat().st_size, getattr(array, "offset", 0) + array.nbytes
    if isinstance(array, np.memmap) and size != said:
        raise ValueError(f"{path}: it has {size} bytes, but {said} by its header; {_ANEW}")
    return array


def loaded(path: Path, mmap_mode: str | None = None) -> np.ndarray:
    """A .npy file's array; raises ValueError: none, or shorter than its header says; OSError: it cannot be opened."""
    try:
        array = np.load(path, mmap_mode=mmap_mode)  # type: ignore[arg-type]
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; {_ANEW}") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: a {type(array).__name__}, and no array; {_ANEW}")
    return array


def check_not_cut(examples: PyTree) -> None:
    """Raises ValueError: a mapped file, of arrays or of views of them, has become shorter since it was opened."""
    for leaf in jax.tree.leaves(examples):
        array = leaf
        while isinstance(array, np.ndarray) and not isinstance(array.base, mmap.mmap):
            array = array.base
        if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
            size, end = array.base.size(), _end(array, array.base)
            if size < end:
                raise ValueError(
                    f"{array.filename}: it has {size} bytes, but had {end} when it was opened; restore it, and go on "
                    "from the last checkpoint"
                )


def _end(array: np.memmap, file: mmap.mmap) -> int:
    """Bytes up to the end of what is mapped, which starts at a page."""
    return array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + len(file)
