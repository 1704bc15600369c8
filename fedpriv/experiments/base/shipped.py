"""The configs that ship: configs/ in a checkout, fedpriv/configs/ in a wheel (setup.py puts them there)."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import fedpriv

PACKAGE = Path(fedpriv.__file__).resolve().parent
CHECKOUT = PACKAGE.parent if (PACKAGE.parent / "experiments" / "speed").is_dir() else None
"""The folder that a checkout is; None where the package was installed alone."""

CONFIGS: ModuleType = importlib.import_module("configs" if CHECKOUT else "fedpriv.configs")


def ships(file: str | Path) -> bool:
    """Whether a config's file is one of these."""
    return Path(file).resolve().parent in map(Path, CONFIGS.__path__)
