"""The command that makes a run again, from its settings."""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import ModuleType
from typing import Any

from experiments import config as configuration
from experiments.command_line import parse
from experiments.config import Run
from experiments.plain import flat
from experiments.record import plain
from experiments.report.folders import RunFolder

_MISSING = object()


def command(run: RunFolder) -> str | None:
    """What the launcher of this version has to be given for the same settings; None where it takes no such command.

    Fields at the config's default are left out, and so is the folder; fields that the run's version did not have
    yet are at their default.
    """
    try:
        module = configuration.load(run.config)
        words = _words(module, run.settings)
        made = parse(module, run.config, [word for words in words for word in words])
    except (ValueError, TypeError, KeyError, SystemExit):
        return None
    settled, recorded = flat(_settled(made)), flat({**run.settings, "output": None})
    if any(settled.get(field, _MISSING) != value for field, value in recorded.items()):
        return None
    return shlex.join(
        ["python", "-m", "experiments.run", run.config, *(w for ws in words for w in ws)]
    )


def _settled(config: Run) -> dict[str, Any]:
    return plain(replace(config, output=None))


def _words(module: ModuleType, settings: dict[str, Any]) -> list[list[str]]:
    given = {**settings, "output": None}
    return [words for words in _flags(plain(module.config), given) if words]


def _flags(default: dict[str, Any], given: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """A list of words for each field that is not at its default."""
    found: list[list[str]] = []
    for field, value in given.items():
        name, standard = field.replace("_", "-"), default[field]
        if isinstance(value, dict) and isinstance(standard, dict):
            found += _flags(standard, value, f"{prefix}{name}.")
        elif value == standard:
            continue
        elif isinstance(value, bool):
            found.append([f"--{prefix}{name}" if value else f"--{prefix}no-{name}"])
        else:
            found.append([f"--{prefix}{name}", *_values(value)])
    return found


def _values(value: Any) -> list[str]:
    if isinstance(value, list):
        return [word for one in value for word in _values(one)]
    return [str(value)]
