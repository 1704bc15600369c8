"""The points of a sweep: what a grid asks for, and what a sweep's folder says was asked for before."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.base import user_modules
from experiments.base.command import one_line
from experiments.base.files import write_text
from experiments.base.json_values import plain
from experiments.config import Run
from experiments.config.modules import Config
from experiments.config.settings import as_typed
from experiments.runs.unfinished import fixed, how_ended, summary_of
from fedpriv.engine.checkpoint import differences

PARTS = ("rounds", "best", "privacy", "versions", "diverged", "reused_from")
"""Of a point's summary.json, which a damaged one may lack; such a point is trained again."""
SWEEP = "sweep.json"
UNFINISHED = f"{SWEEP}.unfinished"  # as `fedpriv.core.files.replacing` calls it
FOLD = "fold"  # the field of `Run`


class Point(NamedTuple):
    """One point of the grid.

    Attributes:
      values: swept field -> its value, as given.
      config: the settings of this point.
      name: of its run folder.
      key: the one seed of a trial (see `best_of`), whose data are those of seed 0; None: the config's seeds.
    """

    values: dict[str, str]
    config: Run
    name: str
    key: int | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of training."""
        return tuple(range(self.config.seeds)) if self.key is None else (self.key,)

    @property
    def title(self) -> str:
        return title(self.values)


def title(values: Mapping[str, str]) -> str:
    return ", ".join(f"{field} {value}" for field, value in values.items())


Axes = Sequence[tuple[str, Sequence[Any]]]
"""Fields with the values to try."""


def axes(grid: Axes) -> dict[str, list[str]]:
    """Field (with underscores) -> its values as texts, those of several words as in "18 18".

    Raises:
      ValueError: nothing to vary, or a field or a value twice.
    """
    found: dict[str, list[str]] = {}
    for name, values in grid:
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ValueError(
                f"grid: {name}: {values!r} is no list of values; give [{values!r}, ...]"
            )
        field, texts = name.replace("-", "_"), [as_typed(value).strip() for value in values]
        if not field or not texts or not all(texts):
            raise ValueError(f"grid: {name!r} has no values, or an empty one")
        if field in found or len(set(texts)) < len(texts):
            raise ValueError(f"grid: {name!r} names a field or a value again; give each once")
        if field == "output":
            raise ValueError("grid: every point has a folder of its own; leave output out")
        found[field] = texts
    if not found:
        raise ValueError("grid: none is given; name fields and values, as in rounds=10,20")
    return found


def points(grid: Axes, settle: Callable[[Mapping[str, Any]], Run]) -> list[Point]:
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
            config = settle(dict(zip(texts, given, strict=True)))
        except ValueError as error:
            raise ValueError(f"{error} (at {title(values)})") from None
        same = seen.setdefault(json.dumps(plain(config)), title(values))
        if same != title(values):
            raise ValueError(f"grid: {same} and {title(values)} are the same settings")
        found.append(Point(values, config, _folder_name(values, len(found), found)))
    return found


def _folder_name(values: Mapping[str, str], index: int, others: Sequence[Point]) -> str:
    name = ",".join(f"{field}={value}" for field, value in values.items())
    name = re.sub(r"[^\w.,=+-]", "-", name)
    if len(name) > 120 or any(other.name == name for other in others):
        return f"{name[:110]}-{index}"
    return name


def described(
    name: str,
    module: Config,
    grid: Mapping[str, Sequence[str]],
    every: Sequence[Point],
) -> dict:
    """What sweep.json says."""
    listed = [{"folder": p.name, "values": p.values, "settings": fixed(p.config)} for p in every]
    said = {"config": name, "code": user_modules.digests(module), "grid": plain(dict(grid))}
    return said | {"points": listed}


def begun(folder: Path, wanted: dict, module: Config) -> dict | None:
    """What sweep.json says in `folder`, if the sweep that is wanted, or some of its points, was begun there.

    Raises:
      ValueError: it holds another one, or something else.
    """
    path = folder / SWEEP
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or _foreign(folder)):
            raise ValueError(f"output: {folder} is there and holds no sweep; choose another")
        return None
    try:
        there = json.loads(path.read_text())
        code = user_modules.digests(module, there["code"])  # also what `build` is to import
        difference = _difference(there, wanted | {"code": code})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"output: cannot read {path} ({one_line(error)}); choose another folder"
        ) from None
    if difference:
        raise ValueError(
            f"output: {folder} holds another sweep: {difference}; choose another folder"
        )
    return there


def _foreign(folder: Path) -> bool:
    """Whether there is anything but what a `begin` that was stopped leaves."""
    return any(file.name != UNFINISHED for file in folder.iterdir())


def begin(folder: Path, wanted: dict) -> None:
    """Makes the sweep's folder, with a sweep.json that is there as a whole or not at all.

    Raises:
      ValueError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / SWEEP, json.dumps(wanted, indent=2) + "\n")
    except OSError as error:
        raise ValueError(
            f"output: cannot write to {folder} ({error.strerror}); choose another"
        ) from None


def _difference(there: dict, wanted: dict) -> str | None:
    """The first field that differs, with both values."""
    names = ("config", "code", "best_of", *["grid"] * ("best_of" in wanted))
    told = [{name: said.get(name) for name in names} for said in (there, wanted)]
    if texts := list(differences(*told)):
        return texts[0]
    now = {point["folder"]: point["settings"] for point in wanted["points"]}
    if not {point["folder"] for point in there["points"]} <= now.keys():
        return next(differences({"grid": there["grid"]}, {"grid": wanted["grid"]}), "its points")
    points = ((point["settings"], now[point["folder"]]) for point in there["points"])
    return next((text for a, b in points for text in differences(a, b)), None)


def ended(folder: Path) -> bool:
    """Whether a point's run got to its end, if only to diverge."""
    summary = summary_of(folder)
    return how_ended(folder) is not None and all(
        isinstance(summary.get(part), dict) for part in PARTS
    )


def cleared(folder: Path) -> Path:
    """The folder of a point to train, without what an interrupted run has left there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "metrics.jsonl", "summary.json"):
        (folder / name).unlink(missing_ok=True)
    return folder
