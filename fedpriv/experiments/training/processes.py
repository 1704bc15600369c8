"""The launcher in several processes: joining them, failing together, stopping together; only the first speaks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from fedpriv import distributed
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.command import one_line
from fedpriv.experiments.base.terminal import say

LONGEST = 1000  # bytes of an error that are passed on


class Processes:
    """The processes that train together, of which this is one; an error that leaves it as a context ends this one.

    Attributes:
      count: how many there are.
      first: whether this is the one that writes, prints and draws.
      others_gone: whether others may have ended before this one.
      terminated: whether what asked to stop wants the process to end (SIGTERM).
    """

    def __init__(self, count: int = 1, first: bool = True):
        self.count, self.first, self.others_gone = count, first, False
        self.terminated = False
        self._stop = False

    def __enter__(self) -> Processes:
        if self.count > 1:
            # What is asked of one process has to reach the others before any of them leaves: they wait for each other.
            # JAX, too, has taken SIGTERM for itself.
            for asked in signals.ASKED:
                signal.signal(asked, self._ask)
        return self

    def __exit__(self, _: Any, error: BaseException | None, trace: Any) -> None:
        if self.count > 1 and isinstance(error, Exception | KeyboardInterrupt):
            traceback.print_exception(error)
            leave(1)

    def _ask(self, number: int, _: Any) -> None:
        if self._stop:
            self.others_gone = self.count > 1
            signals.asked_again()
        if self.first and not signals.watched():
            say("stopping after the next evaluation; ask again to stop at once", file=sys.stderr)
        self._stop, self.terminated = True, number == signal.SIGTERM

    @contextmanager
    def stopping(self, goes_on: str) -> Iterator[None]:
        """Inside, a request to stop takes effect when the processes meet; asked again, it does at once.

        Args:
          goes_on: the command that does, after that.
        """
        alone = self.count == 1 and threading.current_thread() is threading.main_thread()
        asked = signals.ASKED if alone else ()
        before = {number: signal.signal(number, self._ask) for number in asked}
        said = "stopping after the next evaluation; ask again to stop at once" if self.first else ""
        try:
            with signals.answering(said, goes_on if self.first else ""):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """What is wrong in one process, inside, is wrong in all; so is an interruption.

        Raises:
          ValueError: the first process's complaint, or another one's with its number.
          KeyboardInterrupt: some process was asked to stop.
          ConnectionError: some process is no longer there.
        """
        problem = ""
        try:
            yield
        except (ValueError, OSError) as error:
            if self.count == 1:
                raise
            problem = one_line(error)
        self.meet(problem)

    def meet(self, problem: str = "") -> None:
        """Waits for all processes; see `agreed` for what it raises."""
        if self.count > 1:
            self._compare(problem)
        elif self._stop:
            self._stop = False
            raise KeyboardInterrupt

    def _compare(self, problem: str) -> None:
        row = np.zeros(LONGEST + 1, np.uint8)
        text = problem.encode()[:LONGEST]
        row[: len(text)] = np.frombuffer(text, np.uint8)
        row[LONGEST] = self._stop
        rows = distributed.gather(row)
        problems = [bytes(r[:LONGEST]).rstrip(b"\0").decode(errors="ignore") for r in rows]
        for process, said in enumerate(problems):
            if said:
                raise ValueError(said if process == 0 else f"process {process}: {said}")
        if rows[:, LONGEST].any():
            self._stop = False
            raise KeyboardInterrupt


def join(
    coordinator: str | None = None, count: int | None = None, process: int | None = None
) -> Processes:
    """Joins the processes that are named, or those of Slurm; without either, this one trains alone.

    Raises:
      ValueError: see `distributed.initialize`.
    """
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)  # JAX waits where Python hears nothing
    try:
        joined = distributed.initialize(coordinator, count, process)
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if process is None:
        process = int(os.environ["SLURM_PROCID"]) if joined > 1 else 0
    if process > 0 and sys.__stdout__:
        # Collectives on CPU announce themselves on standard output, from C++.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
    return Processes(joined, process == 0)


def leave(code: int) -> NoReturn:
    """Ends one of several processes at once; the ordinary end would wait for others that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
