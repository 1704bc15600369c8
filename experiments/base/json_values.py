"""Values as JSON knows them, and back: what a dataclass's annotations say is what its JSON must hold."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")


def plain(value: Any) -> Any:
    """`value` as JSON knows it, without fields that do not compare; infinity becomes the string "inf", NaN "nan"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = (f.name for f in dataclasses.fields(value) if f.compare)
        return {name: plain(getattr(value, name)) for name in compared}
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


def typed(kind: type[T], value: Any) -> T:
    """The `kind` (a dataclass) that `plain` made `value` of; fields that it does not have are ignored.

    Raises:
      ValueError: naming the field that is missing or of another type.
    """
    return cast(T, of_kind(kind, value, ""))


def of_kind(kind: Any, value: Any, name: str) -> Any:
    """`value` as an annotation has it: JSON's, or Python's.

    Raises:
      ValueError: it is not of the kind; the message begins with `name`.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return _dataclass(kind, value, name)
    if origin in (Union, UnionType):
        return _any_of(parts, value, name)
    if origin is dict and isinstance(value, Mapping):
        return {k: of_kind(parts[1], v, _dotted(name, k)) for k, v in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        kinds = parts[:1] * len(value) if parts[1:] == (...,) else parts
        if len(kinds) == len(value):
            return tuple(of_kind(k, v, name) for k, v in zip(kinds, value, strict=True))
    if origin is Literal:
        for part in parts:
            if type(part) is type(value) and part == value:
                return part
    if isinstance(kind, type) and kind is not float and _is_a(kind, value):
        return value
    if kind is float and (
        _is_a(int, value)
        or (isinstance(value, str) and value in ("inf", "-inf", "nan"))
        or _is_a(float, value)
    ):
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    shown = repr(value)[:40]
    raise ValueError(f"{name or 'it'}: {shown} is not {_said(kind)}")


def _any_of(parts: tuple[Any, ...], value: Any, name: str) -> Any:
    for part in parts:
        with suppress(ValueError):
            return of_kind(part, value, name)
    kinds = " or ".join(_said(part) for part in parts if part is not NoneType)
    raise ValueError(f"{name or 'it'}: {repr(value)[:40]} is not {kinds}")


def _is_a(kind: type, value: Any) -> bool:
    """Whether it is one; true and false are no numbers, and an integer is one of 64 bits."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, kind) and not (kind is int and abs(value) >= 2**63)


def _said(kind: Any) -> str:
    """The kind, for a message."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _KINDS.get(get_origin(kind) or kind, "an object")


def _dataclass(kind: Any, value: Mapping[str, Any], name: str) -> Any:
    hints, given = field_kinds(kind), {}
    for field in (f for f in dataclasses.fields(kind) if f.compare):
        if field.name in value:
            dotted = _dotted(name, field.name)
            given[field.name] = of_kind(hints[field.name], value[field.name], dotted)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"lacks {_dotted(name, field.name)}")
    return kind(**given)


_KINDS = {float: "a number", int: "an integer", str: "text", bool: "true or false", tuple: "a list"}
_KINDS |= {Path: "a path"}
field_kinds = functools.cache(get_type_hints)


def _dotted(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    found: dict[str, Any] = {}
    for name, held in fields.items():
        nested = isinstance(held, dict) and held
        found |= flat(held, f"{prefix}{name}.") if nested else {prefix + name: held}
    return found
