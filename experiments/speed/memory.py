"""Peak memory of processes. Standard library only: rivals ask, too, in virtual environments of their own."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")  # on Linux


def peak_mb() -> float:
    """Megabytes (10^6 bytes) of main memory that this process has had at most.

    By the kernel's VmHWM where there is one: `ru_maxrss` starts, on Linux, from the peak of the parent.
    """
    kib = _peak_kib("self")
    if kib is not None:
        return kib * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def peak_of_all_mb() -> float:
    """Also of the processes it has started (on Linux); their peaks are added up, shared pages counted in each."""
    others = sum(_peak_kib(str(pid)) or 0 for pid in _descendants(os.getpid()))
    return peak_mb() + others * 1024 / 1e6


def _peak_kib(pid: str) -> int | None:
    with contextlib.suppress(OSError), open(PROC / pid / "status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return None


def _descendants(pid: int) -> Iterator[int]:
    for path in (PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)
