"""The line of the user's code that runs now."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from fedpriv.core.code_places import GENERATED, is_users_file, place


def is_users_frame(frame: FrameType) -> bool:
    """As `is_users_file`, of the code that a frame runs."""
    name = frame.f_code.co_filename
    generated = name == GENERATED and frame.f_globals.get("__name__") != "__main__"
    return is_users_file(name) and not generated


def callers_line() -> str | None:
    """The user's line that runs now, the innermost if there are several, as `place`; None where there is none."""
    frame = callers_frame()
    return place(frame.f_code.co_filename, frame.f_lineno) if frame else None


def callers_frame() -> FrameType | None:
    """As `callers_line`."""
    frame: FrameType | None = sys._getframe(1)
    while frame and not is_users_frame(frame):
        frame = frame.f_back
    return frame


def warn_where_called(said: str | Warning, module: str) -> None:
    """Warns at the user's line that runs now, once for each line and text.

    Args:
      said: a text, for a UserWarning.
      module: ours that says it.
    """
    at = callers_frame() or sys._getframe()
    warnings.warn_explicit(
        said,
        UserWarning,
        at.f_code.co_filename,
        at.f_lineno,
        module=module,
        registry=at.f_globals.setdefault("__warningregistry__", {}),
    )
