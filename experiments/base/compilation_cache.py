"""XLA's programs kept on disk, so that a command's second run need not compile what its first one did.

On by default in every command that trains, in `$XDG_CACHE_HOME/fedpriv/xla`, else `~/.cache/fedpriv/xla`; the folder
may be deleted at any time. JAX's own settings come first: `JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off,
`JAX_COMPILATION_CACHE_DIR` puts it elsewhere. Below JAX 0.10.2 there is none unless JAX is told where (see `QUIET`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import jax

from experiments.base.provenance import instructions

DAYS = 30  # that a program is kept; JAX itself would let the folder grow for ever

# Before it, loading a program on a CPU could print lines of needless warnings (openxla/xla#44565).
QUIET = (0, 10, 2)


def enable() -> None:
    """Turns the cache on unless JAX is told otherwise; call it before anything is compiled.

    Where there is no folder to write to, programs are compiled as without it. Entries that cannot be read are JAX's to
    warn of and to compile again.
    """
    config = jax.config
    if not config.jax_enable_compilation_cache:
        return
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # JAX's own second would leave out all but the largest program of a small experiment.
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if config.jax_compilation_cache_dir is not None:
        return
    if jax.__version_info__ < QUIET:
        return
    folder = _default_folder()
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        folder = folder.expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            _forget(folder, time.time() - DAYS * 86400)
            config.update("jax_compilation_cache_dir", str(folder))


def disable() -> None:
    """For commands that report how long compiling takes, or of which nobody may learn what they compiled."""
    jax.config.update("jax_enable_compilation_cache", False)


def _default_folder() -> Path:
    """Of this kind of CPU: a home folder may be shared by machines that cannot run each other's programs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base / "fedpriv" / "xla" / instructions()


def _forget(folder: Path, before: float) -> None:
    """Removes programs written earlier than that, and with them any damaged one."""
    for entry in folder.glob("*-cache"):
        with suppress(OSError):  # another run may have removed it
            if entry.stat().st_mtime < before:
                entry.unlink()
