"""The user's own code that a run depends on: a config's file, and every module that is nobody's package."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedpriv.experiments.base.shipped import CHECKOUT, PACKAGE, ships

KEPT = "code"  # in the run folder
OURS = (
    PACKAGE,
    *(CHECKOUT / name for name in ("experiments", "configs") if CHECKOUT),
)  # the revision tells
STANDARD = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


def files(config: Any) -> dict[str, Path]:
    """The user's modules that are loaded by now, by path from the config's folder; none for a config of fedpriv's.

    Args:
      config: a module, or an object, whose file is that of its `build`, or `on`.
    """
    own = _config_file(config)
    if own is None or ships(own):
        return {}
    loaded = {_file(getattr(other, "__file__", None)) for other in list(sys.modules.values())}
    found = {own} | {path for path in loaded if path and _own(path)}
    return {Path(os.path.relpath(path, own.parent)).as_posix(): path for path in sorted(found)}


def _config_file(config: Any) -> Path | None:
    if isinstance(config, ModuleType) and (own := _file(getattr(config, "__file__", None))):
        return own
    made = getattr(config, "build", None) or getattr(
        config, "on", None
    )  # a notebook's have no file
    code = getattr(inspect.unwrap(made), "__code__", None) if made else None
    return _file(getattr(code, "co_filename", None))


def _file(name: Any) -> Path | None:
    if not isinstance(name, str) or not name.endswith(".py"):
        return None
    return Path(name).resolve() if Path(name).is_file() else None


def _own(path: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_file() and not installed and not any(map(path.is_relative_to, OURS + STANDARD))


def digests(config: Any, also: Iterable[str] = ()) -> dict[str, str]:
    """Digests of the contents of the user's files.

    Args:
      also: names of files that an earlier call gave, which may not be loaded yet; one that is gone is left out.
    """
    own = _config_file(config)
    every = {name: own.parent / name for name in also} if own else {}
    every |= files(config)
    return {name: _digest(path) for name, path in sorted(every.items()) if path.is_file()}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def keep(config: Any, folder: Path) -> None:
    """Copies the user's files into this folder, so that it says what ran."""
    for name, path in files(config).items():
        copy = folder / name.replace("../", "above/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
