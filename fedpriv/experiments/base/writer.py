"""Who writes to a folder: one process at a time, of which others can tell whether it still does, by no clock."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fedpriv.core.json_values import typed
from fedpriv.experiments.base.files import opened, write_text

WRITER = "writer.json"
PROC = Path("/proc")  # on Linux


@dataclass(frozen=True)
class Writer:
    """A process that writes to a folder, or did.

    Attributes:
      host: the name of its machine, for people.
      pid: its number there.
      table: the machine since it was started, and which of its tables of processes has the number; "" where the system
        does not say.
      began: when the process began, by the system's own count: a later process of the same number has another.
    """

    host: str
    pid: int
    table: str
    began: str

    @property
    def state(self) -> Literal["running", "stopped", "ended", "unknown"]:
        """Stopped is one that a signal halts (SIGSTOP, Ctrl-Z); unknown is one of another machine, or hidden."""
        if not self.table or self.table != _table():
            return "unknown"
        state, began = _stat(self.pid)
        if not state:
            return "unknown"
        # Z: it has ended, and its parent has not asked how
        if began != self.began or state in "ZX":
            return "ended"
        return "stopped" if state in "Tt" else "running"

    def __str__(self) -> str:
        stopped = " (stopped)" * (self.state == "stopped")
        return f"process {self.pid} on {self.host}{stopped}"


def this_process() -> Writer:
    return Writer(socket.gethostname(), os.getpid(), _table(), _stat(os.getpid())[1])


def _table() -> str:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """A process's state, and when it began; ("X", "") where there is none, ("", "") where others' are hidden."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X" if (
            PROC / "1"
        ).exists() else "", ""  # which is always there, and may be hidden (hidepid)
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()  # its name stands before, and may be anything
    return fields[0], fields[19]


def writer_of(folder: Path) -> Writer | None:
    """Who writes to the folder, or was ended while it did; None where nobody is."""
    with suppress(ValueError, RecursionError), opened(folder / WRITER, "") as file:
        return typed(Writer, json.loads(file.read().decode()))
    return None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps others on this machine from holding `folder`, until the end of the context or of the process.

    Inside, and after a process that was ended inside, `writer_of(folder)` says who holds it. On a file system without
    locks it is asked who does.

    Raises:
      ValueError: another one holds it.
    """
    with _locked(folder) as free:
        who, us = writer_of(folder), this_process()
        if free is None:
            free = who is None or who.state not in ("running", "stopped")
        if not free:
            raise ValueError(
                f"{folder}: {who or 'another process'} writes to this run; end it first"
            )
        try:
            with suppress(OSError):  # what has to be written says so itself
                write_text(folder / WRITER, json.dumps(asdict(us)) + "\n")
            yield
        finally:
            with suppress(OSError):
                if writer_of(folder) == us:
                    (folder / WRITER).unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Whether the folder is locked for this context; None where the file system, or the system, has no locks."""
    try:
        import fcntl

        place = os.open(folder, os.O_RDONLY)
    except (OSError, ImportError):
        yield None
        return
    free: bool | None = True
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:
            free = None
        yield free
    finally:
        os.close(place)
