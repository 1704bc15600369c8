"""The points of a sweep: the product of a grid."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedpriv.core.json_values import plain
from fedpriv.experiments.config.settings import Settings, as_typed

FOLD = "fold"  # the field of `Settings`


class Point(NamedTuple):
    """One point of the grid.

    Attributes:
      values: swept field -> its value, as given.
      settings: of this point.
      name: of its run folder.
      key: the one seed of a trial (see `best_of`), whose data are those of seed 0; None: the seeds of the settings.
    """

    values: dict[str, str]
    settings: Settings
    name: str
    key: int | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of training."""
        return tuple(range(self.settings.seeds)) if self.key is None else (self.key,)

    @property
    def title(self) -> str:
        return title(self.values)


def title(values: Mapping[str, str]) -> str:
    return ", ".join(f"{field} {value}" for field, value in values.items())


Axes = Sequence[tuple[str, Sequence[Any]]]
"""Fields with the values to try."""


def axes(grid: Axes) -> dict[str, list[str]]:
    """A grid's fields (with underscores) -> their values as texts, those of several words as in "18 18".

    Raises:
      ValueError: nothing to vary, or a field or a value twice.
    """
    found: dict[str, list[str]] = {}
    for name, values in grid:
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ValueError(
                f"grid: {name}: {values!r} is not a list of values; give [{values!r}, ...]"
            )
        field, texts = name.replace("-", "_"), [as_typed(value).strip() for value in values]
        if not field or not texts or not all(texts):
            raise ValueError(f"grid: {name!r} has no values, or an empty one")
        if field in found or len(set(texts)) < len(texts):
            raise ValueError(f"grid: {name!r} repeats a field or a value; give each once")
        if field == "output":
            raise ValueError("grid: every point has its own folder; leave output out")
        found[field] = texts
    if not found:
        raise ValueError("grid: none is given; name fields and values, as in rounds=10,20")
    return found


def points(grid: Axes, settle: Callable[[Mapping[str, Any]], Settings]) -> list[Point]:
    """The product of the grid, the last field changing fastest.

    Args:
      settle: the settings with these fields.

    Raises:
      ValueError: a point's settings are refused, or two points are the same.
    """
    texts, found, seen = axes(grid), list[Point](), dict[str, str]()
    every = itertools.product(*(values for _, values in grid))
    for given, chosen in zip(every, itertools.product(*texts.values()), strict=True):
        values = dict(zip(texts, chosen, strict=True))
        try:
            settings = settle(dict(zip(texts, given, strict=True)))
        except ValueError as error:
            raise ValueError(f"{error} (at {title(values)})") from None
        same = seen.setdefault(json.dumps(plain(settings)), title(values))
        if same != title(values):
            raise ValueError(f"grid: {same} and {title(values)} are the same settings")
        found.append(Point(values, settings, _folder_name(values, len(found), found)))
    return found


def _folder_name(values: Mapping[str, str], index: int, others: Sequence[Point]) -> str:
    name = ",".join(f"{field}={value}" for field, value in values.items())
    name = re.sub(r"[^\w.,=+-]", "-", name)
    if len(name) > 120 or any(other.name == name for other in others):
        return f"{name[:110]}-{index}"
    return name
