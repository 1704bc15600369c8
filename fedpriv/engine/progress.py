"""What is shown while an algorithm trains: a heading, then a bar, or a line per evaluation where there is no bar."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fedpriv.core.terminal_text import PROSE, printable, span, terminal_width, wrapped
from fedpriv.core.waiting import LOG
from fedpriv.devices.fitting import Compiler

SHORT = 30.0  # seconds: who waits no longer needs no forecast


def is_watched() -> bool:
    """Whether somebody sees what is written on standard error as it comes: in a notebook or a terminal."""
    return _in_notebook() or getattr(sys.stderr, "isatty", bool)()


class Progress:
    """Shows an algorithm's progress, on standard error.

    Args:
      name: of the algorithm, for people.
      rounds: that it is to train for.
      heading: what is said of it before; None: nothing.

    Attributes:
      done: rounds at the evaluation before.
    """

    def __init__(self, name: str, rounds: int, heading: str | None = None):
        self._name, self._rounds, self.done = name, rounds, 0
        if heading:
            _say(f"{name}: {heading}")
        self._bar = _bar(name, rounds)
        self._waits = _Waits(self._show)
        if self._bar is not None:
            _HEARD.add(self._waits)
        self._began = time.perf_counter()
        self._show("compiling", 0)

    def timed(self, compiler: Compiler) -> Compiler:
        """The compiler, which says when it is done."""

        def compile(fn: Callable[..., Any], args: tuple, donated: Any) -> Any:
            done = compiler(fn, args, donated)
            self._show(f"compiled in {time.perf_counter() - self._began:.1f} s", 0)
            return done

        return compile

    def evaluated(self, round: int, seconds: float, text: str) -> float:
        """Shows what is known after so many rounds.

        Args:
          seconds: that the rounds since the evaluation before took.

        Returns:
          Seconds that a round took of these.
        """
        each = seconds / (round - self.done)
        left, self.done = each * (self._rounds - round), round
        # A bar says what is left by itself.
        said = f", {span(left)} left" if left > SHORT and self._bar is None else ""
        self._show(f"{text}{said}", round)
        return each

    def note(self, text: str) -> None:
        """Says something beside the bar."""
        if self._bar is None:
            _say(text)
        else:
            self._bar.write(printable(text), file=sys.stderr)

    def _show(self, text: str, done: int) -> None:
        if self._bar is None:
            at = f" {done}/{self._rounds}" if done else ""
            _say(f"{self._name}{at} {text}")
            return
        self._bar.update(max(done - self._bar.n, 0))
        self._bar.set_postfix_str(printable(text))

    def close(self) -> None:
        """Ends what is shown."""
        if self._bar is not None:
            _HEARD.remove(self._waits)
            self._bar.close()


class _Waits(logging.Handler):
    """Shows, in the place of the bar's metric, what the engine says that it waits for."""

    def __init__(self, show: Callable[[str, int], None]):
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage(), 0)


class _Heard:
    """The engine's logger while bars are shown, in any thread: it is changed at the first, and restored at the last."""

    def __init__(self) -> None:
        self._lock, self._bars = threading.Lock(), set[_Waits]()
        self._before = LOG.level, LOG.propagate

    def add(self, waits: _Waits) -> None:
        """Lets a bar show what the logger says."""
        with self._lock:
            if not self._bars:
                self._before = LOG.level, LOG.propagate
                LOG.propagate = LOG.isEnabledFor(logging.INFO)  # to whoever has asked for it
                LOG.setLevel(logging.INFO)
            self._bars.add(waits)
            LOG.addHandler(waits)

    def remove(self, waits: _Waits) -> None:
        """Of a bar that was added; of another it does nothing."""
        with self._lock:
            if waits not in self._bars:
                return
            LOG.removeHandler(waits)
            self._bars.remove(waits)
            if not self._bars:
                level, LOG.propagate = self._before
                LOG.setLevel(level)


_HEARD = _Heard()


def _in_notebook() -> bool:
    """Whether a kernel runs this: a notebook shows what comes at once."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _bar(name: str, rounds: int) -> Any:
    """A notebook's, where its widgets are installed, else one of text; None where nobody watches."""
    if sys.stderr is None or not is_watched():
        return None
    name = printable(name)
    if _in_notebook() and importlib.util.find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as notebook_bar

        return notebook_bar(total=rounds, desc=name)
    from tqdm import tqdm

    shape = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
    columns = min(terminal_width(sys.stderr), PROSE)
    return tqdm(total=rounds, desc=f"{name:<15.20}", ncols=columns, bar_format=shape)


def _say(text: str) -> None:
    if sys.stderr is None:  # a service, or a program without a console
        return
    lines = wrapped(text, terminal_width(sys.stderr)).split("\n")
    sys.stderr.write("\n".join(map(printable, lines)) + "\n")
    sys.stderr.flush()
