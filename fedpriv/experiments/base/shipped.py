"""The configs that ship: configs/ in a checkout, fedpriv/configs/ in a wheel (setup.py puts them there)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import fedpriv

PACKAGE = Path(fedpriv.__file__).resolve().parent
_OURS = ("configs/quickstart.py", "experiments/speed/rivals/runner.py")
CHECKOUT = PACKAGE.parent if all((PACKAGE.parent / file).is_file() for file in _OURS) else None
"""The folder that a checkout is; None where the package was installed alone."""


def _configs() -> ModuleType:
    """As `configs` where that name means ours; a user may have a package of that name."""
    if CHECKOUT is None:
        return importlib.import_module("fedpriv.configs")
    file = CHECKOUT / "configs" / "__init__.py"
    found = importlib.util.find_spec("configs")
    if found and found.origin and Path(found.origin).resolve() == file:
        return importlib.import_module("configs")
    spec = importlib.util.spec_from_file_location(
        "fedpriv.configs", file, submodule_search_locations=[str(file.parent)]
    )
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONFIGS = _configs()


def ships(file: str | Path) -> bool:
    """Whether a config's file is one of these."""
    return Path(file).resolve().parent in map(Path, CONFIGS.__path__)
