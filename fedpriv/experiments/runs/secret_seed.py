"""The secret seed of a run: in a file of its own, which nobody but its owner may read, and nowhere else."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import fedpriv as fp
from fedpriv.experiments.runs.run_folder import SECRET_SEED


def draw(folder: Path) -> None:
    """Draws a secret seed, and keeps it in the folder of a new run.

    Raises:
      OSError: it cannot be written; then nothing of it is left.
    """
    path = folder / SECRET_SEED
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(opened, "w", encoding="ascii") as file:
            file.write(f"{fp.secret_seed()}\n")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def read(folder: Path) -> int:
    """The secret seed of a run that goes on.

    Raises:
      ValueError: it is not there as it was written.
    """
    path = folder / SECRET_SEED
    remedy = "restore it, as only the same seed gives the same noise again, or begin a new run"
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ValueError(f"resume: cannot read {path} ({error.strerror}); {remedy}") from None
    except UnicodeDecodeError:
        text = "damaged"
    if not text:
        raise ValueError(f"resume: {path} is empty; {remedy}")
    if not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise ValueError(f"resume: {path} holds no seed; {remedy}")
    return int(text)
