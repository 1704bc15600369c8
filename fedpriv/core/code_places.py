"""Places in code: whose a file is, and how a message names a line of it."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import jax

_ROOT = Path(__file__).resolve().parents[2]
_OURS = tuple(f"{_ROOT / name}/" for name in ("fedpriv", "experiments"))
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = re.compile(r"/(site|dist)-packages/")  # of any environment
_LIBRARIES = (*(f"{sysconfig.get_path(name)}/" for name in _PATHS), "<frozen")
GENERATED = "<string>"  # what named tuples and dataclasses are made of; and all of `python -c`
_JAX = f"{Path(jax.__file__).parent}/"
_CELL = re.compile(r"^<ipython-input-(\d+)-|[/\\]ipykernel_\d+[/\\]\d+\.py$")


def is_our_file(name: str) -> bool:
    """Whether a file is of fedpriv or of the launcher."""
    return name.startswith(_OURS)


def is_jax_file(name: str) -> bool:
    """Whether a file is of JAX."""
    return name.startswith(_JAX)


def is_users_file(name: str) -> bool:
    """Whether a file is neither of fedpriv nor of a library."""
    if name == GENERATED:
        return sys.argv[:1] == ["-c"]
    return not (name.startswith((*_OURS, *_LIBRARIES)) or _INSTALLED.search(name))


def place(file: str, line: int) -> str:
    """A line, as `my_config.py:34`; in a notebook as `In [14]:3`, the third line of that cell."""
    return f"{_cell(file) or os.path.basename(file)}:{line}"


def _cell(file: str) -> str | None:
    """What a notebook shows beside the cell for whose code IPython made up this file; None where it is no cell's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    made_up = _CELL.search(file)
    if number := numbers.get(file) or (made_up and made_up[1]):
        return f"In [{number}]"
    return "a notebook cell" if made_up else None


_ENGINE = (
    "fedpriv.proof.",
    *(f"fedpriv.rounds.{name}" for name in ("cohort", "messages", "client_")),
)


def user_line() -> str:
    """File and line of what called the cohort, or the shard."""
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(_ENGINE) or is_jax_file(
        frame.f_code.co_filename
    ):
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno)
