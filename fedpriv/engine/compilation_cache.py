"""XLA's programs kept on disk, so that a script's second run need not compile what its first one did."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from fedpriv.core.files import user_cache

DAYS = 30  # that a program is kept; JAX itself would let the folder grow for ever

# Before it, loading a program on a CPU could print lines of needless warnings (openxla/xla#44565).
QUIET = (0, 10, 2)
_JAXS_OWN = 1.0  # seconds that a program takes to compile, at least, so that JAX keeps it


def cache_programs(folder: str | Path | None = None) -> Path | None:
    """Caches on disk what JAX compiles from now on.

    JAX's own settings come first: `JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off, `JAX_COMPILATION_CACHE_DIR`
    puts it elsewhere. The folder may be deleted at any time; entries are deleted after 30 days. If an entry cannot be
    read, JAX warns and compiles again.

    Args:
      folder: by default fedpriv/xla in the user's cache folder. Each kind of processor gets its own folder in it, as a
        home may be shared by machines that cannot run each other's programs.

    Returns:
      Where programs are kept; later calls return the same. None if nothing is cached: JAX is told not to, no folder can
      be written, or JAX is older than 0.10.2 and was not told where.
    """
    config: Any = jax.config
    if not config.jax_enable_compilation_cache:
        return None
    if config.jax_persistent_cache_min_compile_time_secs == _JAXS_OWN:
        # It would leave out all but the largest program of a small experiment.
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if config.jax_compilation_cache_dir is not None:
        return Path(config.jax_compilation_cache_dir)
    if jax.__version_info__ < QUIET:
        return None
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        chosen = user_cache() / "xla" if folder is None else Path(folder).expanduser()
        path = chosen / instructions()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            _forget(path, time.time() - DAYS * 86400)
            config.update("jax_compilation_cache_dir", str(path))
            compilation_cache.reset_cache()  # JAX has settled for none if it has compiled before
            return path
    return None


def keep_no_programs() -> None:
    """Caches no programs, for what reports how long compiling takes."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX asks once, when it first compiles


def instructions() -> str:
    """A digest of what this machine's processor can do: XLA compiles for that, and rounding follows."""
    features = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(
            (line for line in lines if line.startswith(("flags", "Features"))), features
        )
    kind = hashlib.sha256(f"{platform.system()} {platform.machine()} {features}".encode())
    return kind.hexdigest()[:16]


def _forget(folder: Path, before: float) -> None:
    """Removes programs written earlier than that, and with them any damaged one."""
    for entry in folder.glob("*-cache"):
        with suppress(OSError):  # another run may have removed it
            if entry.stat().st_mtime < before:
                entry.unlink()
