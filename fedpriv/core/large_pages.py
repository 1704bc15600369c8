"""Large pages of memory, which a process of Linux gets from glibc if it was told so before it started.

XLA gives a program's temporary memory back after each call. The next call gets pages anew, which the system clears: of
4 kB one by one, or of 2 MB where glibc asks for them (`glibc.malloc.hugetlb=1` in GLIBC_TUNABLES).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"
ADVICE = (
    f"{VARIABLE}={TUNABLE}=1, set before Python starts, gives this process large pages of memory: transformers and "
    "other rounds with large arrays take less time (docs/how_to/large_pages.md)"
)
LEAST_GLIBC = (2, 35)
SYSTEMS = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Whom the system gives them: `always [madvise] never` is whoever asks."""


def asked_for() -> bool:
    """Whether this process's environment has glibc ask for them."""
    return f"{TUNABLE}=1" in os.environ.get(VARIABLE, "").split(":")


def missing() -> bool:
    """Whether a process with them could be started here, and this one was started with no word about them."""
    if sys.platform != "linux" or TUNABLE in os.environ.get(VARIABLE, ""):
        return False
    try:
        glibc, given = os.confstr("CS_GNU_LIBC_VERSION"), SYSTEMS.read_text()
    except (OSError, ValueError):  # no glibc, or a system that has none
        return False
    version = re.match(r"glibc (\d+)\.(\d+)", glibc or "")
    return (
        version is not None
        and tuple(map(int, version.groups())) >= LEAST_GLIBC
        and "[madvise]" in given
    )


def restart() -> None:
    """Starts this process's program again, with large pages; for the first thing that it does."""
    os.environ[VARIABLE] = ":".join(filter(None, [os.environ.get(VARIABLE), f"{TUNABLE}=1"]))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
