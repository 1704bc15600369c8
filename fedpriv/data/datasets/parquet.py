"""Files of Parquet and Arrow as NumPy arrays, for `Federation.from_arrays`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fedpriv.core.arguments import check_path
from fedpriv.core.complaints import require
from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets.dataset import CorruptDataError, MissingDataError
from fedpriv.data.datasets.found_files import files_in
from fedpriv.data.datasets.importers import Arrays, columns_named, imported_values, stacked
from fedpriv.data.validation import check_columns

SUFFIXES = (".parquet", ".arrow", ".feather")
# A word of a name, such as of mnist-train, a.test, XTrain, y_test, trainA, training; not of latest or testament.
_SPLIT = re.compile(
    r"(?:(?<![A-Za-z])[XYxy]?|(?<=[a-z])(?=[A-Z]))"
    "(?i:(train|test|validation|valid|val|development|dev|evaluation|eval|hold[-_ ]?out)(?:ing|sets?|data)?)"
    "(?![a-z]|(?<=[A-Z])[A-Z])"
)


def from_parquet(
    path: str | os.PathLike[str] | Collection[str | os.PathLike[str]], **columns: str
) -> Arrays:
    """Files of Parquet or Arrow (Feather, or as Hugging Face saves them): columns, as `from_huggingface` makes them.

    In a folder are read, in the order of their paths, the files whose names end in one of `SUFFIXES`, those of folders
    inside, too; hidden ones are left out. A folder NAME=VALUE, as of a partitioned set, is a column NAME of strings.

    Args:
        path: of a file or a folder; or of several files, such as `sorted(Path("data").glob("train-*.parquet"))`.
        columns: name of a leaf = its column, such as `features="pixels", label="kind", client="writer"`; by default
            `image="image", label="label"`. No others are read.

    Raises:
        ValueError: no such file in a folder, or files of several splits, or of one and of none; a missing column; as
            `from_huggingface`.
        MissingDataError: no such file or folder.
        CorruptDataError: a file that cannot be read, or that has other types than the first.
    """
    with of_package("pyarrow"):
        import pyarrow as pa

    files = _files(path)
    tables = [_read(file, columns) for file in files]
    for file, table in zip(files, tables, strict=True):
        if [f.type for f in table.schema] != [f.type for f in tables[0].schema]:
            ours, first = (str(t.schema).replace("\n", ", ") for t in (table, tables[0]))
            raise CorruptDataError(
                f"{file}: {ours:.200}, but {files[0].name} has {first:.200}; write both alike"
            )
    values = imported_values("path", pa.concat_tables(tables), columns)
    return {leaf: stacked(leaf, column) for leaf, column in values.items()}


def _files(path: Any) -> list[Path]:
    single = isinstance(path, str | os.PathLike)
    remedy = "give the path of a file or a folder, or a list of files"
    require(single or isinstance(path, Collection), "path", path, remedy)
    given = [path] if single else list(path)
    require(len(given) > 0, "path", path, remedy)
    for one in given:
        check_path("path", one, remedy)
    places = [Path(one).expanduser() for one in given]
    if single and places[0].is_dir():
        places = _in_folder(places[0])
    for place in places:
        if not place.is_file():
            raise MissingDataError(f"path: there is no file {place}; correct it")
    return places


def _in_folder(folder: Path) -> list[Path]:
    files = files_in(folder, SUFFIXES)
    if (saved := folder / "state.json").is_file():  # of Hugging Face, beside what it has cached
        try:
            files = [
                folder / each["filename"] for each in json.loads(saved.read_bytes())["_data_files"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(
                f"{saved}: it cannot be read ({error!r}); save the set again"
            ) from None
    if not files:
        raise ValueError(
            f"path: {folder} has no file that ends in {', '.join(SUFFIXES)}; correct it"
        )
    if (folder / "_delta_log").is_dir():
        raise ValueError(
            f"path: {folder} is a Delta table, with files of older versions; read it by its library"
        )
    splits = {_split_of(file.relative_to(folder)) for file in files}
    if len(splits) > 1:
        raise ValueError(
            f"path: {folder} has files of {' and '.join(sorted(splits))}; give one's, as a folder or a list of files"
        )
    return files


def _split_of(file: Path) -> str:
    """Which the file's name and those of its folders say."""
    said = [word[1].lower() for part in file.parts if (word := _SPLIT.search(part))]
    return " in ".join(reversed(said)) or "no split"


def _read(file: Path, columns: dict[str, str]) -> Any:
    """The `pyarrow.Table` of these columns, those that the folders' names say among them."""
    import pyarrow as pa

    told = dict(part.split("=", 1) for part in file.parts[:-1] if "=" in part)
    try:
        names, read = _contents(file)
        check_columns(str(file), names)
        wanted = [*columns_named(columns, [*names, *told], f" in {file}").values()]
        table = read([name for name in names if name in wanted])
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).split())
        raise CorruptDataError(f"{file}: it cannot be read ({said:.200}); replace it") from None

    def column(name: str) -> Any:
        if name in names:
            return table[name]
        value = None if told[name] == "__HIVE_DEFAULT_PARTITION__" else unquote(told[name])
        return pa.repeat(pa.scalar(value, pa.string()), len(table))

    return pa.table({name: column(name) for name in wanted})


def _contents(file: Path) -> tuple[list[str], Callable[[list[str]], Any]]:
    """The names of its columns, and what reads some of them."""
    import pyarrow as pa

    with file.open("rb") as opened:
        begins = opened.read(6)
    if begins.startswith(b"PAR1"):
        from pyarrow.parquet import ParquetFile

        parquet = ParquetFile(file)
        return parquet.schema_arrow.names, lambda names: parquet.read(columns=names)
    if begins.startswith(b"FEA1"):
        raise CorruptDataError(
            f"{file}: it is Feather of version 1; write it as version 2, by pyarrow.feather.write_feather"
        )
    opens = pa.ipc.open_file if begins == b"ARROW1" else pa.ipc.open_stream
    table = opens(pa.memory_map(str(file))).read_all()
    return table.column_names, table.select
