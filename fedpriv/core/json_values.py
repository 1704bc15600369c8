"""Values as JSON knows them, and back: what a dataclass's annotations say is what its JSON must hold."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

T = TypeVar("T")
_Reader: TypeAlias = Callable[[Any], Any]
_MAPPINGS = (dict, Mapping)  # what most are is asked first


def plain(value: Any) -> Any:
    """`value` as JSON knows it, without fields that do not compare; infinity becomes the string "inf", NaN "nan".

    A dataclass becomes an object with a key for each field, which is marked where the field is `PRIVATE`; a field of
    `as_json` is written by that, unless it is empty.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {_key(f): _form(f)[0](held) for f, held in fields.items() if _is_kept(f, held)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


MARK = "_not_private"
"""Ends every name, in files and sinks, of what is not released."""


PRIVATE = MappingProxyType({"mark": MARK})
"""Metadata of a dataclass's field that is not released, which its key in JSON says; files of older versions do not."""


def as_json(write: _Reader = plain, read: _Reader | None = None) -> Mapping[str, Any]:
    """Metadata of a dataclass's field that is written unless it is empty, even where it does not compare.

    Args:
      write: makes of a value what JSON knows.
      read: makes a value of that, or raises ValueError; None: by the field's annotation.
    """
    return MappingProxyType({"json": (write, read)})


def _form(of: dataclasses.Field) -> tuple[_Reader, _Reader | None]:
    """How a field is written, and read where that is not as its annotation says."""
    return of.metadata.get("json", (plain, None))


def _is_kept(of: dataclasses.Field, held: Any) -> bool:
    return bool(held) if "json" in of.metadata else of.compare


def _key(of: dataclasses.Field) -> str:
    """In JSON."""
    return of.name + of.metadata.get("mark", "")


def typed(kind: type[T], value: Any) -> T:
    """The `kind` (a dataclass) that `plain` made `value` of; fields that it does not have are ignored.

    Raises:
      ValueError: naming the field that is missing or of another type.
    """
    return cast(T, of_kind(kind, value, ""))


def of_kind(kind: Any, value: Any, name: str) -> Any:
    """A value read from JSON as an annotation has it: JSON's, or Python's.

    Raises:
      ValueError: it is not of the kind; the message begins with `name`.
    """
    try:
        return _reader(kind)(value)
    except _MisfitError as error:
        raise ValueError(error.text(name)) from None


@contextmanager
def without_collections() -> Iterator[None]:
    """While JSON is read, cyclic garbage waits: there is none, and looking for it takes longer than reading."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


class _MisfitError(ValueError):
    """A value is not of a kind, or a field is missing; `inside` is told the fields and keys around it."""

    def __init__(self, said: str, *path: str):
        self._said, self._path = said, [*path]

    def inside(self, name: str) -> _MisfitError:
        self._path.append(name)
        return self

    def text(self, name: str) -> str:
        dotted = ".".join(filter(None, [name, *reversed(self._path)]))
        return f"{dotted or 'it'}: {self._said}" if self._said else f"lacks {dotted}"


def _reader(kind: Any) -> _Reader:
    """What reads values of a kind: an annotation is looked at once, however many values there are."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind in _PLAIN:
        return _PLAIN[kind]
    fields: bool = dataclasses.is_dataclass(kind)
    if fields:
        return _dataclass_reader(kind)
    if origin in (Union, UnionType):
        return _union_reader(parts)
    if origin is dict:
        return _dict_reader(kind, parts[1])
    if origin is tuple:
        return _tuple_reader(kind, parts)

    def read(value: Any) -> Any:
        if origin is Literal:
            for part in parts:
                if type(part) is type(value) and part == value:
                    return part
        if isinstance(kind, type) and _is_a(kind, value):
            return value
        if kind is Path and isinstance(value, str):
            return Path(value)
        raise _misfit(value, kind)

    return read


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    said = isinstance(value, str) and value in ("inf", "-inf", "nan")
    if said or _is_a(int, value) or _is_a(float, value):
        return float(value)
    raise _misfit(value, float)


def _str(value: Any) -> str:
    if type(value) is str:
        return sys.intern(value)  # the lines of a run say the same again and again
    if isinstance(value, str):
        return value
    raise _misfit(value, str)


_PLAIN: dict[Any, _Reader] = {float: _float, str: _str}


@functools.cache
def _dataclass_reader(kind: Any) -> _Reader:
    hints, missing = field_kinds(kind), dataclasses.MISSING
    fields = [
        (f.name, _key(f), _field_reader(f, hints), f.default is f.default_factory is missing)
        for f in dataclasses.fields(kind)
        if f.compare or "json" in f.metadata
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, _MAPPINGS):
            if isinstance(value, kind):
                return value
            raise _misfit(value, kind)
        given = {}
        for name, key, of, required in fields:
            at = key if key in value else name
            if at in value:
                try:
                    given[name] = of(value[at])
                except _MisfitError as error:
                    raise error.inside(at) from None
            elif required:
                raise _MisfitError("", key)
        return kind(**given)

    return read


def _field_reader(of: dataclasses.Field, hints: dict[str, Any]) -> _Reader:
    _, own = _form(of)
    if own is None:
        return _reader(hints[of.name])

    def read(value: Any) -> Any:
        try:
            return own(value)
        except ValueError as error:
            raise _MisfitError(str(error)) from None

    return read


def _union_reader(parts: tuple[Any, ...]) -> _Reader:
    readers = [_reader(part) for part in parts if part is not NoneType]
    kinds = " or ".join(_said(part) for part in parts if part is not NoneType)

    def read(value: Any) -> Any:
        if value is None and NoneType in parts:
            return None
        for of in readers:
            try:
                return of(value)
            except ValueError:
                continue
        raise _MisfitError(f"{repr(value)[:40]} is not {kinds}")

    return read


def _dict_reader(kind: Any, held: Any) -> _Reader:
    of = _reader(held)

    def read(value: Any) -> Any:
        if not isinstance(value, _MAPPINGS):
            raise _misfit(value, kind)
        found = {}
        for name, each in value.items():
            try:
                found[name] = of(each)
            except _MisfitError as error:
                raise error.inside(name) from None
        return found

    return read


def _tuple_reader(kind: Any, parts: tuple[Any, ...]) -> _Reader:
    readers = [_reader(part) for part in parts if part is not ...]
    of_any_length = parts[1:] == (...,)

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple):
            if of_any_length:
                return tuple(map(readers[0], value))
            if len(readers) == len(value):
                return tuple(of(each) for of, each in zip(readers, value, strict=True))
        raise _misfit(value, kind)

    return read


def _misfit(value: Any, kind: Any) -> _MisfitError:
    return _MisfitError(f"{repr(value)[:40]} is not {_said(kind)}")


def _is_a(kind: type, value: Any) -> bool:
    """Whether it is one; true and false are no numbers, and an integer is one of 64 bits."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    large = kind is int and isinstance(value, int) and abs(value) >= 2**63
    return isinstance(value, kind) and not large


def _said(kind: Any) -> str:
    """The kind, for a message."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _KINDS.get(get_origin(kind) or kind, "an object")


_KINDS = {float: "a number", int: "an integer", str: "text", bool: "true or false", tuple: "a list"}
_KINDS |= {Path: "a path"}
_hints = functools.cache(get_type_hints)


def field_kinds(kind: Any) -> dict[str, Any]:
    """What JSON must hold: the annotations of a class, by name."""
    return _hints(kind)


def flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings, as JSON has them, by dotted names."""
    found: dict[str, Any] = {}
    for name, held in fields.items():
        nested = isinstance(held, dict) and held
        found |= flat(held, f"{prefix}{name}.") if nested else {prefix + name: held}
    return found
