"""The user's own code that a run depends on: a config's file, and what it imports from its folder."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

KEPT = "code"  # in the run folder
OURS = ("fedpriv", "experiments", "configs")  # of which the revision tells


def files(module: ModuleType) -> dict[str, Path]:
    """By path within the config's folder; of a config that comes with fedpriv none."""
    config = Path(str(module.__file__)).resolve()
    if config.parent == Path(__file__).resolve().parents[1] / "configs":
        return {}
    found = {config.name: config}
    for name, other in list(sys.modules.items()):
        path = Path(getattr(other, "__file__", None) or "").resolve()
        own = path.suffix == ".py" and path.is_relative_to(config.parent)
        if own and name.partition(".")[0] not in OURS and "site-packages" not in path.parts:
            found[path.relative_to(config.parent).as_posix()] = path
    return dict(sorted(found.items()))


def digests(module: ModuleType) -> dict[str, str]:
    """Of the files' contents."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for name, path in files(module).items()
        if path.is_file()
    }


def keep(module: ModuleType, folder: Path) -> None:
    """Copies the files into the run's folder, so that it says what ran."""
    for name, path in files(module).items():
        if path.is_file():
            copy = folder / KEPT / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
