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

KEPT = "code"  # in the run folder
HERE = Path(__file__).resolve().parents[2]
OURS = tuple(HERE / name for name in ("fedpriv", "experiments", "configs"))  # the revision tells
STANDARD = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


def files(module: Any) -> dict[str, Path]:
    """What is loaded by now, by its path from the config's folder; for a config that comes with fedpriv none."""
    config = _file(module)
    if config is None or config.parent == HERE / "configs":
        return {}
    loaded = {_file(other) for other in list(sys.modules.values())}
    found = {config} | {path for path in loaded if path and _own(path)}
    return {Path(os.path.relpath(path, config.parent)).as_posix(): path for path in sorted(found)}


def _file(module: Any) -> Path | None:
    """Of a module; of an object that is a config, the file of its `build`."""
    if isinstance(module, ModuleType):
        name = getattr(module, "__file__", None)
    else:
        code = getattr(inspect.unwrap(module.build), "__code__", None)
        name = getattr(code, "co_filename", None)
    if not isinstance(name, str) or not name.endswith(".py"):
        return None
    return Path(name).resolve() if Path(name).is_file() else None


def _own(path: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_file() and not installed and not any(map(path.is_relative_to, OURS + STANDARD))


def digests(module: Any, also: Iterable[str] = ()) -> dict[str, str]:
    """Of the files' contents.

    Args:
      also: names of files that an earlier call gave, which may not be loaded yet; one that is gone is left out.
    """
    config = _file(module)
    every = {name: config.parent / name for name in also} if config else {}
    every |= files(module)
    return {name: _digest(path) for name, path in sorted(every.items()) if path.is_file()}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def keep(module: Any, folder: Path) -> None:
    """Copies the files into this folder, so that it says what ran."""
    for name, path in files(module).items():
        copy = folder / name.replace("../", "above/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
