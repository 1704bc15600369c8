"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def imported_when_asked(
    package: str,
    homes: Mapping[str, str],
    otherwise: Callable[[str], Any],
    modules: Sequence[str] = (),
) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
      package: its name.
      homes: module -> the names that come from it, with spaces between them.
      otherwise: what is asked for names that are none of a module in the package, and do not begin with an underscore.
      modules: that are names themselves.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    module_of = {module.rpartition(".")[2]: module for module in modules}

    def found(name: str) -> Any:
        if name in module_of:
            value: Any = import_module(module_of[name])
        elif name in home:
            value = getattr(import_module(home[name]), name)
        elif name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        elif find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        else:
            return otherwise(name)
        setattr(sys.modules[package], name, value)
        return value

    return found
