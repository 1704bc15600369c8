"""Values as JSON knows them, and back: what a dataclass's annotations say is what its JSON must hold."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def plain(value: Any) -> Any:
    """`value` as JSON knows it; infinity becomes the string "inf", NaN "nan"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
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
    return cast(T, _typed(kind, value, ""))


def _typed(kind: Any, value: Any, name: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _dataclass(kind, value, name)
    if origin in (Union, UnionType):
        (inner,) = (part for part in parts if part is not NoneType)
        return None if value is None else _typed(inner, value, name)
    if origin is dict and isinstance(value, dict):
        return {k: _typed(parts[1], v, _dotted(name, k)) for k, v in value.items()}
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(parts[0], v, name) for v in value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and (number or value in ("inf", "-inf", "nan")):
        return float(value)
    if (kind in (str, bool) and isinstance(value, kind)) or (
        kind is int and number and isinstance(value, int) and abs(value) < 2**63
    ):
        return value
    shown = repr(value)[:40]
    raise ValueError(f"{name or 'it'}: {shown} is not {_KINDS.get(origin or kind, 'an object')}")


def _dataclass(kind: Any, value: dict[str, Any], name: str) -> Any:
    hints, given = _hints(kind), {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            dotted = _dotted(name, field.name)
            given[field.name] = _typed(hints[field.name], value[field.name], dotted)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"lacks {_dotted(name, field.name)}")
    return kind(**given)


_KINDS = {float: "a number", int: "an integer", str: "text", bool: "true or false", tuple: "a list"}
_hints = functools.cache(get_type_hints)


def _dotted(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    found: dict[str, Any] = {}
    for name, held in fields.items():
        nested = isinstance(held, dict) and held
        found |= flat(held, f"{prefix}{name}.") if nested else {prefix + name: held}
    return found
