"""The folder of a sweep and its sweep.json: which points were asked for there, with which settings and code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedpriv.core.json_values import plain
from fedpriv.engine.checkpoint import differences
from fedpriv.experiments.base import user_modules
from fedpriv.experiments.base.command import one_line
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.runs.run_folder import SWEEP
from fedpriv.experiments.runs.unfinished import decisive_settings, how_ended, summary_of
from fedpriv.experiments.search.sweep_grid import Point

UNFINISHED = f"{SWEEP}.unfinished"  # as `fedpriv.core.files.replacing` calls it
PARTS = ("rounds", "best", "privacy", "versions", "diverged", "reused_from")
"""Of a point's summary.json, which a damaged one may lack; such a point is trained again."""


def sweep_description(
    name: str,
    module: Config,
    grid: Mapping[str, Sequence[str]],
    every: Sequence[Point],
) -> dict:
    """What sweep.json says."""
    listed = [
        {
            "folder": p.name,
            "values": p.values,
            "settings": decisive_settings(p.settings) | {"metric": p.settings.metric},
        }
        for p in every
    ]
    said = {"config": name, "code": user_modules.digests(module), "grid": plain(dict(grid))}
    return said | {"points": listed}


def read_sweep_folder(folder: Path, wanted: dict, module: Config) -> dict | None:
    """What sweep.json says in `folder`, if the sweep that is wanted, or some of its points, was begun there.

    Raises:
      ValueError: it holds another one, or something else.
    """
    path = folder / SWEEP
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or _foreign(folder)):
            raise ValueError(f"output: {folder} exists and holds no sweep; choose another")
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
    """Whether there is anything but what a `begin_sweep_folder` that was stopped leaves."""
    return any(file.name != UNFINISHED for file in folder.iterdir())


def begin_sweep_folder(folder: Path, wanted: dict) -> None:
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
    then, now = ({name: said.get(name) for name in names} for said in (there, wanted))
    if texts := list(differences(then, now)):
        return texts[0]
    points = {point["folder"]: point["settings"] for point in wanted["points"]}
    if not {point["folder"] for point in there["points"]} <= points.keys():
        return next(differences({"grid": there["grid"]}, {"grid": wanted["grid"]}), "its points")
    pairs = ((point["settings"], points[point["folder"]]) for point in there["points"])
    return next((text for a, b in pairs for text in differences(a, b)), None)


def point_ended(folder: Path) -> bool:
    """Whether a point's run got to its end, if only to diverge."""
    summary = summary_of(folder)
    return how_ended(folder) is not None and all(
        isinstance(summary.get(part), dict) for part in PARTS
    )
