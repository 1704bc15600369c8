"""Where an error comes from in the user's own code, which is what its traceback should show."""

from __future__ import annotations

import functools
import linecache
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")

_ROOT = Path(__file__).resolve().parents[2]
_OURS = tuple(f"{_ROOT / name}/" for name in ("fedpriv", "experiments"))
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = re.compile(r"/(site|dist)-packages/")  # of any environment
_LIBRARIES = (*(f"{sysconfig.get_path(name)}/" for name in _PATHS), "<frozen", "<string")


def is_ours(frame: FrameType) -> bool:
    """Whether it is of fedpriv or of the launcher."""
    return frame.f_code.co_filename.startswith(_OURS)


def _is_users(frame: FrameType) -> bool:
    return is_users_file(frame.f_code.co_filename)


def is_users_file(name: str) -> bool:
    """Whether a file is neither of fedpriv nor of a library."""
    return not (name.startswith((*_OURS, *_LIBRARIES)) or _INSTALLED.search(name))


def last_frames(error: BaseException) -> list[TracebackType]:
    """From the user's own line on, the last of them if there are several; nothing where there is none."""
    entries = list(_entries(error.__traceback__))
    users = [i for i, entry in enumerate(entries) if _is_users(entry.tb_frame)]
    return entries[users[-1] :] if users else []


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace:
        yield trace
        trace = trace.tb_next


def user_line(error: BaseException) -> str | None:
    """The user's own line, as "my_config.py:34, in round: x = 1 / 0"; None where the error comes from none."""
    for entry in last_frames(error):
        code = entry.tb_frame.f_code
        source = linecache.getline(code.co_filename, entry.tb_lineno).strip()
        place = f"{Path(code.co_filename).name}:{entry.tb_lineno}, in {code.co_name}"
        return f"{place}: {source}" if source else place
    return None


def names_user_code(fn: Callable[P, R]) -> Callable[P, R]:
    """An error in what the user gave `fn` (a round, a loss, a score) ends with its line, and shows the user's frames.

    The frames of fedpriv and JAX between them are left out, as JAX leaves out its own; JAX_TRACEBACK_FILTERING=off
    shows them all.
    """

    @functools.wraps(fn)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            if line := user_line(error):
                note = f"in your code: {line}"
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)
            if jax.config.jax_traceback_filtering != "off":  # type: ignore[attr-defined]
                error.__traceback__ = _filtered(error)
            raise

    return named


def _filtered(error: BaseException) -> TracebackType | None:
    """The user's frames, and what comes after the last of them: only what raised it, where the message is ours."""
    entries = list(_entries(error.__traceback__))
    kept = [entry for entry in entries if _is_users(entry.tb_frame)]
    if entries and _is_our_message(entries[-1]):
        trace: TracebackType | None = entries[-1]
    else:
        trace = kept.pop() if kept else error.__traceback__
    for entry in reversed(kept):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trace


def _is_our_message(last: TracebackType) -> bool:
    """Whether the error was raised by a statement of ours, and not by what it called."""
    code = last.tb_frame.f_code
    return is_ours(last.tb_frame) and linecache.getline(
        code.co_filename, last.tb_lineno
    ).strip().startswith("raise")
