"""Files of examples sorted by client, written one client at a time: for federations that are larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike

from fedpriv.core.arguments import check_path
from fedpriv.core.complaints import require
from fedpriv.core.files import replacing
from fedpriv.data.labels import stored
from fedpriv.data.validation import check_lengths, leaves_of

_SIZES = "sizes"


def write_clients(
    folder: str | os.PathLike[str],
    clients: Iterable[Mapping[str, ArrayLike]],
    *,
    public: Mapping[str, ArrayLike] | None = None,
) -> None:
    """Writes the files that `StreamedFederation.from_folder` reads: NAME.npy for each array, and sizes.npy.

    For a partition of arrays, give `({name: a[rows] for name, a in examples.items()} for rows in partition)`.

    Args:
      folder: made if it does not exist; files in it are not overwritten.
      clients: dicts or tables of arrays [records, ...] with the same names, shapes and data types. Lists of numbers
        become arrays, and 64-bit ones 32-bit.
      public: the server's examples, likewise.

    Raises:
      ValueError: a folder that already has such files; no client; a client without records, with other arrays than the
        first client, or with values that are NaN, infinite or beyond 32 bits.
      OSError: a file cannot be written, such as on a full disk; the error names it.
    """
    check_path("folder", folder, "give the path of an empty folder, or of one to make")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.npy")):
        raise ValueError(f"{folder}: there are .npy files in it; give an empty folder")
    sizes, files = [], _Files(folder)
    with files:
        for i, examples in enumerate(clients):
            sizes.append(files.append(examples, f"clients[{i}]"))
        if not sizes:
            raise ValueError("clients: there are none; give the examples of each")
        if public is not None:
            files.append(public, "public")
    last = folder / f"{_SIZES}.npy"  # its absence marks what was broken off
    with replacing(last) as unfinished, unfinished.open("wb") as file:
        np.save(file, np.array(sizes, np.int64))


class _Files:
    """Arrays that grow along their first axis: NumPy's header has room for its length, which is written at the end."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._open: dict[str, tuple[BinaryIO, np.dtype, tuple[int, ...]]] = {}
        self._rows = 0

    def append(self, examples: Mapping[str, ArrayLike], whose: str) -> int:
        """Writes somebody's examples; how many they are."""
        try:
            leaves = leaves_of(examples)
            require(isinstance(leaves, Mapping), "examples", leaves, "give a dict of arrays")
            count = check_lengths(leaves)
            kept = stored(leaves, None)
            arrays = {name: np.asarray(array) for name, array in kept.items()}
        except ValueError as error:
            raise ValueError(f"{whose}: {error}") from None
        if count == 0:
            raise ValueError(f"{whose} has no records; leave it out")
        if not self._open:
            self._create(arrays)
        self._check(arrays, whose)
        for name, (file, _, _) in self._open.items():
            with _named(file):
                file.write(arrays[name].tobytes())
        self._rows += count
        return count

    def _create(self, arrays: dict[str, np.ndarray]) -> None:
        if _SIZES in arrays:
            raise ValueError(f"examples[{_SIZES!r}]: the name is taken; give it another one")
        for name, array in arrays.items():
            if not name or name.startswith(".") or set(name) & set("/\\\0"):
                raise ValueError(f"examples[{name!r}]: cannot name a file; give it another name")
            if array.dtype.kind not in "biuf":
                raise ValueError(
                    f"examples[{name!r}]: NumPy's files have no {array.dtype}; give float32"
                )
            file = (self._folder / f"{name}.npy").open("w+b")
            self._open[name] = file, array.dtype, array.shape[1:]
            self._header(name)

    def _header(self, name: str) -> None:
        file, dtype, shape = self._open[name]
        file.seek(0)
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
        npy.write_array_header_1_0(file, header | {"shape": (self._rows, *shape)})

    def _check(self, arrays: dict[str, np.ndarray], whose: str) -> None:
        ours = {name: (dtype, shape) for name, (_, dtype, shape) in self._open.items()}
        theirs = {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
        if ours != theirs:
            name = next(n for n in [*ours, *theirs] if ours.get(n) != theirs.get(n))
            here, first = _words(theirs.get(name)), _words(ours.get(name))
            raise ValueError(
                f"{whose}: {name!r} is {here}, but {first} for the first client; give all the same"
            )

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name, (file, _, _) in self._open.items():
            with _named(file), file:
                self._header(name)


@contextmanager
def _named(file: BinaryIO) -> Iterator[None]:
    """An error while it is written names it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or file.name
        raise


def _words(array: tuple[np.dtype, tuple[int, ...]] | None) -> str:
    return (
        "missing" if array is None else f"{array[0]}[{', '.join(['records', *map(str, array[1])])}]"
    )
