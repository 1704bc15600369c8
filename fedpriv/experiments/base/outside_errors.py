"""Errors whose cause is outside the program: what happened, and a remedy."""

from __future__ import annotations

import errno

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
