"""Configs by name or path: those that ship, and a user's own."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from fedpriv.experiments.base.shipped import CONFIGS, ships
from fedpriv.experiments.config.settings import Settings


def names() -> list[str]:
    """Names of configs: those that ship, and those a user has put beside them."""
    return sorted(m.name for m in pkgutil.iter_modules(CONFIGS.__path__) if m.name[0] != "_")


class Config(Protocol):
    """A config: a module, or an object, with a docstring, settings, and what makes an experiment of them.

    That is build(settings) -> Experiment, or its two halves, between which a fold of the training records can be held
    out: load(settings) -> Dataset and on(settings, data) -> Experiment. It may also have
      ledger(settings) -> Ledger: what accounting needs, with blank federations, so that no data are read.

    Attributes:
      settings: a dataclass that derives from `fedpriv.experiments.config.Settings`, with their defaults.
    """

    __doc__: str | None

    @property
    def settings(self) -> Any: ...


def named(config: str | Path | Config) -> tuple[str, Config]:
    """A config and its name: one that ships is named as it is, a file by its whole path, an object by its class.

    Raises:
      ValueError: there is no such config, or it lacks something.
    """
    if isinstance(config, str | Path):
        name = str(config)
        name = str(Path(name).absolute()) if name.endswith(".py") else name
        return name, load(name)
    name, file = (
        getattr(config, "__name__", type(config).__name__),
        getattr(config, "__file__", None),
    )
    if file and ships(file):
        name = Path(file).stem
    elif file:
        name = str(Path(file).absolute())
    return name, _whole(config, name)


def load(name: str) -> Config:
    """The config module of that name, or in that file, which ends in .py and may lie anywhere.

    Raises:
      ValueError: there is no such config, or it lacks something.
    """
    if name.endswith(".py"):
        module = _in_file(Path(name))
    elif name in names():
        module = importlib.import_module(f"{CONFIGS.__name__}.{name}")
    elif (Path(name) / "config.json").is_file():
        raise ValueError(
            f"config: {name} is a run folder, from which no code is run; fedpriv report shows what was recorded, "
            "or give the config itself"
        )
    else:
        near = difflib.get_close_matches(name, names(), 1)
        meant = f"did you mean {near[0]}? Choose" if near else "choose"
        raise ValueError(
            f"config: there is no {name!r}; {meant} one of {', '.join(names())}, or give a file (my_config.py)"
        )
    return _whole(module, str(module.__file__))


def _whole(config: Any, name: str) -> Config:
    halves = getattr(config, "load", None) and getattr(config, "on", None)
    for needed in ("__doc__", "settings", *["build"] * (not halves)):
        if not getattr(config, needed, None):
            raise ValueError(
                f"config: {name} has no {needed}; it needs a docstring, `settings`, and `build` or `load` and `on`"
            )
    if not isinstance(config.settings, Settings):
        raise ValueError(
            f"config: {name} has {type(config.settings).__name__} as its settings; derive them from "
            "fedpriv.experiments.config.Settings"
        )
    return config


def _in_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"config: there is no file {path}; give the path of a Python file")
    content = str(path.resolve()).encode() + path.read_bytes()  # an edited file is another module
    name = f"{CONFIGS.__name__}._{path.stem}_{hashlib.sha256(content).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        beside = str(path.resolve().parent)
        if beside not in sys.path:  # as `python my_config.py` would find what lies there
            sys.path.insert(0, beside)
        sys.modules[name] = module  # dataclasses look their module up
        try:
            # Not by the loader: bytecode of a file edited in the same second would be taken for its own.
            exec(compile(path.read_bytes(), spec.origin or str(path), "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
