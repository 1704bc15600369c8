"""Large pages of memory, which a process of Linux gets from glibc if it was told so before it started.

XLA gives a program's temporary memory back after each call. The next call gets pages anew, which the system clears: of
4 kB one by one, or of 2 MB where glibc asks for them (`glibc.malloc.hugetlb=1` in GLIBC_TUNABLES).
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"
ADVICE = (
    f"{VARIABLE}={TUNABLE}=1, set before Python starts, gives this process large pages of memory, with which "
    "gradients of transformers took less time (docs/how_to/large_pages.md)"
)
LEAST_GLIBC = (2, 35)
_AGAIN = "FEDPRIV_STARTED_AGAIN"
SYSTEMS = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Whom the system gives them: `always [madvise] never` is whoever asks."""


def asked_for() -> bool:
    """Whether this process's environment has glibc ask for them."""
    return f"{TUNABLE}=1" in os.environ.get(VARIABLE, "").split(":")


def available() -> bool:
    """Whether a process here gets them if its glibc asks."""
    if sys.platform != "linux":
        return False
    try:
        glibc, given = os.confstr("CS_GNU_LIBC_VERSION"), SYSTEMS.read_text()
    except (OSError, ValueError):  # no glibc, or a system that has none
        return False
    version = re.match(r"glibc (\d+)\.(\d+)", glibc or "")
    new_enough = version is not None and tuple(map(int, version.groups())) >= LEAST_GLIBC
    return new_enough and "[madvise]" in given


def missing() -> bool:
    """Whether they are available, and this process was started with no word about them."""
    return TUNABLE not in os.environ.get(VARIABLE, "") and available()


def restart_once() -> None:
    """Starts this process's program again, with large pages; where that cannot be, or was done, it goes on without."""
    if _AGAIN in os.environ:  # and a process in between has dropped the word
        return
    asked = ":".join(filter(None, [os.environ.get(VARIABLE), f"{TUNABLE}=1"]))
    with suppress(OSError):
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, os.environ | {VARIABLE: asked, _AGAIN: "1"})
