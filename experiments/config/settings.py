"""A config's settings, changed from Python or read back from a run folder: by name, nested ones by dots or mappings."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from experiments.base.json_values import field_kinds, flat, of_kind, plain
from experiments.config.experiment import Run

AnyRun = TypeVar("AnyRun", bound=Run)


def changed(config: AnyRun, given: Mapping[str, Any]) -> AnyRun:
    """`config` with other settings: `{"rounds": 10, "local.epochs": 2}` or `{"local": {"epochs": 2}}`.

    Raises:
      ValueError: there is no such setting, or a value is not of its kind.
    """
    known = list(flat(plain(config)))
    return _changed(config, given, "", known)


def _changed(part: Any, given: Mapping[str, Any], prefix: str, known: list[str]) -> Any:
    hints, values = field_kinds(type(part)), dict[str, Any]()
    for name, value in given.items():
        field, _, inner = str(name).replace("-", "_").partition(".")
        if field not in {f.name for f in dataclasses.fields(part)}:
            near = difflib.get_close_matches(prefix + field, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{prefix}{name}: there is no such setting{hint}")
        now = values.get(field, getattr(part, field))
        value = {inner: value} if inner else value
        if dataclasses.is_dataclass(now) and isinstance(value, Mapping):
            values[field] = _changed(now, value, f"{prefix}{field}.", known)
        else:
            values[field] = of_kind(hints[field], _python(value), prefix + field)
    return dataclasses.replace(part, **values)


def _python(value: Any) -> Any:
    """NumPy's and JAX's numbers as Python's."""
    if isinstance(value, list | tuple):
        return [_python(one) for one in value]
    if isinstance(value, np.generic) or getattr(value, "shape", None) == ():
        return value.item()
    return value


def as_typed(value: Any) -> str:
    """A value as a user types it; several words are those of a list."""
    if isinstance(value, list | tuple):
        return " ".join(map(as_typed, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
