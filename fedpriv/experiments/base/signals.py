"""How a process ends when it is asked to stop, or something outside it goes wrong: in one line, without a traceback.

Installed before anything heavy is imported. A bug keeps its traceback.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, NamedTuple, NoReturn, TextIO

from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.base.terminal import say

INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 and the signal, as shells have it
ASKED = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what a batch system sends
PATIENCE = 1.0  # seconds until a request that Python has not heard of is answered


class Answer(NamedTuple):
    """What is said of a request to stop.

    Attributes:
      first: what happens then; None: it ends what is computed, as soon as Python gets to it.
      again: how to go on, once a second one has ended the process at once.
    """

    first: str | None = None
    again: str = ""


_answer = Answer()
_watched = False  # whether a thread ends this process when it is asked again
_heard = False  # whether Python has got to a request


def install() -> None:
    """From here on Ctrl-C, SIGTERM, a full disk or memory and a closed pipe end this process in one line."""
    sys.excepthook = _end
    atexit.register(_flush)  # the first registered is the last that is called
    _open_standard_streams()
    sys.stderr = _Dropping(sys.stderr)  # what is only told must not end anything
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows ASCII alone is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    for number in ASKED:
        signal.signal(number, _interrupt)
    _watch()


def _open_standard_streams() -> None:
    """Where one is closed (`>&-`), the next file that is opened would take its number, and get what is printed."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            stream = os.fdopen(number, "w", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


class _Dropping:
    """A stream that drops what cannot be written, as to a closed pipe or a full disk."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError:  # what is in its buffer would fail again, at the latest when Python ends
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Inside, standard output may be closed or full: what is recorded in a folder is worth more than its table."""
    before = sys.stdout
    sys.stdout = _Dropping(before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = before


def _watch() -> None:
    """Has a thread hear of signals: Python's handlers wait while the main thread compiles or computes in XLA."""
    global _watched
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=[heard], daemon=True).start()
    _watched = True


def _listen(pipe: int) -> None:
    """The first request is answered, the second one ends the process."""
    while os.read(pipe, 1)[0] not in ASKED:
        pass
    said = _answer.first
    if said is not None:
        _tell(said)
    elif not select.select([pipe], [], [], PATIENCE)[0] and not _heard:
        _tell("stopping after the current computation; ask again to stop at once")
    while os.read(pipe, 1)[0] not in ASKED:
        pass
    _tell(f"interrupted{_answer.again and '; '}{_answer.again}")
    os._exit(INTERRUPTED)


def _tell(text: str) -> None:
    """By the system's own call: the main thread may hold Python's."""
    if text:
        with contextlib.suppress(OSError):
            os.write(2, f"\n{text}\n".encode(errors="backslashreplace"))


@contextlib.contextmanager
def answering(first: str, again: str) -> Iterator[None]:
    """Inside, a request to stop is answered so; see `Answer`."""
    global _answer
    before, _answer = _answer, Answer(first, again)
    try:
        yield
    finally:
        _answer = before


def watched() -> bool:
    """Whether a thread answers requests to stop, as in a command."""
    return _watched


def asked_again() -> NoReturn:
    """For a handler that has been called before: ends the process, or raises KeyboardInterrupt where it is not ours."""
    if _watched:
        time.sleep(10 * PATIENCE)  # the thread is about to
    raise KeyboardInterrupt


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end of the block; a second one does not."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears of them
        yield
        return
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            asked_again()
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in ASKED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt; inside an import it ends the process: an extension that is cut off may crash it."""
    global _heard
    if _heard:
        asked_again()
    _heard = True
    atexit.register(_leave, "", INTERRUPTED)  # before JAX's: it would wait for what is computed
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
        _leave(f"error: {said}", 1)
    sys.__excepthook__(kind, error, trace)


def _flush() -> None:
    """What is still to be written, which may be where a closed pipe or a full disk is noticed."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave("", PIPE_CLOSED)
    except OSError as error:
        _leave(f"error: standard output: {outside(error)}", 1)


def _leave(said: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # a handler may interrupt a print
        if said:
            say(said, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        _empty(stream)
    os._exit(code)


def _empty(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
