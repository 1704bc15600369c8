"""Config modules by name or path: those that ship, and a user's own."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import configs


def names() -> list[str]:
    """The configs that ship, and those a user has put beside them."""
    return sorted(m.name for m in pkgutil.iter_modules(configs.__path__) if m.name[0] != "_")


def load(name: str) -> ModuleType:
    """The config module of that name, or in that file, which ends in .py and may lie anywhere.

    It has `config` (an instance of `experiments.config.Run`) and `build` (config -> Experiment).

    It may have `ledger` (config -> Ledger), which answers without the data that `build` needs, and `load` (config ->
    Dataset) with `on` (config, data -> Experiment), of which `build` is made, for tuning on parts of the data.

    Raises:
      ValueError: there is no such config, or it lacks something.
    """
    if name.endswith(".py"):
        module = _in_file(Path(name))
    elif name in names():
        module = importlib.import_module(f"configs.{name}")
    else:
        near = difflib.get_close_matches(name, names(), 1)
        meant = f"did you mean {near[0]}? Choose" if near else "choose"
        raise ValueError(
            f"config: there is no {name!r}; {meant} one of {', '.join(names())}, or give a file (my_config.py)"
        )
    for needed in ("__doc__", "config", "build"):
        if not getattr(module, needed, None):
            raise ValueError(
                f"config: {module.__file__} has no {needed}; it needs a docstring, `config` and `build`"
            )
    return module


def _in_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"config: there is no file {path}; give the path of a Python file")
    name = f"configs._{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None  # for any file that ends in .py
        module = importlib.util.module_from_spec(spec)
        beside = str(path.resolve().parent)
        if beside not in sys.path:  # as `python my_config.py` would find what lies there
            sys.path.insert(0, beside)
        sys.modules[name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
