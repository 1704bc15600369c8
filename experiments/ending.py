"""How a command ends where something outside it goes wrong: one line, no traceback, whatever was running.

Installed before anything heavy is imported. A bug keeps its traceback.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import NoReturn, TextIO

INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 and the signal, as shells have it

SPACE = "free some space or choose another folder"
REMEDIES = {
    errno.ENOSPC: SPACE,
    errno.EDQUOT: SPACE,
    errno.EFBIG: SPACE,
    errno.EACCES: "choose another folder or file, or change its permissions",
    errno.EPERM: "choose another folder or file, or change its permissions",
    errno.EROFS: "choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
MEMORY = "fewer clients, seeds or records at a time need less (--layout.clients map)"


def install() -> None:
    """From here on Ctrl-C, SIGTERM, a full disk or memory and a closed pipe end this process in one line."""
    sys.excepthook = _end
    atexit.register(_flush)  # the first registered is the last that is called
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows ASCII alone is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def outside(error: BaseException) -> str | None:
    """In one line, with a remedy, what went wrong outside the program; None for a bug."""
    if isinstance(error, OSError):
        what = error.strerror or " ".join(str(error).split()) or type(error).__name__
        where = f"{error.filename}: " if error.filename is not None else ""
        remedy = REMEDIES.get(error.errno or 0)
        return f"{where}{what}" + (f"; {remedy}" if remedy else "")
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"not enough memory{f' ({text})' if text else ''}; {MEMORY}"
    if (
        type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
        and "RESOURCE_EXHAUSTED" in text
    ):
        return f"not enough memory ({text[:200]}); {MEMORY}"
    return None


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end of the block; a second one does not."""
    asked = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt; inside an import it ends the process: an extension that is cut off may crash it."""
    while frame:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            _leave("interrupted", INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        _leave("interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        _leave("", PIPE_CLOSED)
    if said := outside(error):
        _leave(said, 1)
    sys.__excepthook__(kind, error, trace)


def _flush() -> None:
    """What is still to be written, which may be where a closed pipe or a full disk is noticed."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave("", PIPE_CLOSED)
    except OSError as error:
        _leave(f"standard output: {outside(error)}", 1)


def _leave(said: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # a handler may interrupt a print
        if said:
            print(f"error: {said}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        _empty(stream)
    os._exit(code)


def _empty(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
