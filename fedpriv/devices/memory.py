"""How many clients fit side by side into a device's memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np

from fedpriv.devices import distributed
from fedpriv.devices.layout import UNFITTED, Strategy, use

_SHARE = 0.75  # of the free memory: allocators do not use the last of it, and the fastest kernels may need more

_TRIAL: dict[str, str | bool] = {"xla_gpu_autotune_level": "0"}
"""No search for the fastest kernels: two thirds of the time that a GPU's programs take to compile."""


def fitted(
    strategy: Strategy, lowered: Callable[[], jax.stages.Lowered], free: int | None = None
) -> Strategy:
    """`strategy` with as many clients side by side as fit the free memory, if it leaves that open (`clients="fit"`).

    A program for two at a time is compiled, and half of its temporary memory counted for each: not too little, as some
    of it serves both.

    Args:
      lowered: the program, traced under the strategy in force.
      free: bytes; by default `free_memory()`.
    """
    if strategy.clients != "fit":
        return strategy
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return replace(strategy, clients=UNFITTED)  # nothing is compiled
    with use(trial_layout(strategy)):
        analysis = lowered().compile(compiler_options=_TRIAL).memory_analysis()
    if analysis is None:  # a backend that does not tell
        return replace(strategy, clients=UNFITTED)
    each = max(analysis.temp_size_in_bytes / 2, 1)
    room = _SHARE * (free_memory() if free is None else free)
    clients = max(1, int(room / each))
    if jax.process_count() > 1:  # all have to run the same program
        clients = int(distributed.gather(np.array([clients])).min())
    return replace(strategy, clients=clients)


def trial_layout(strategy: Strategy) -> Strategy:
    """The layout of the program by which `fitted` measures."""
    return replace(strategy, clients=2)


def free_memory() -> int:
    """Bytes that the least free of this process's devices has left; on CPU its share of what the system has."""
    free = []
    for device in jax.local_devices():
        about = device.memory_stats() or {}
        if "bytes_limit" in about:
            free.append(about["bytes_limit"] - about.get("bytes_in_use", 0))
    if free:
        return min(free)
    system = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return system // len(jax.local_devices())
