"""The ways in which fedjax runs clients."""

from __future__ import annotations

import os


def prepare(threads: int) -> tuple[str, ...]:
    """Makes a device of each core and names the backends to try; to be called before JAX starts.

    "jit" is fedjax's default, one client after another on all cores; "pmap" runs one client per device side by side.
    """
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={threads}"
    return ("jit", "pmap") if threads > 1 else ("jit",)
