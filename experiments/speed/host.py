"""Part of experiments.benchmark scale_out: a process that takes part in our own round, alone or with others."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from experiments.speed import workloads
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.round_speed import compiled_round
from experiments.speed.workloads import parameters
from fedpriv.devices.distributed import initialize, replicate
from fedpriv.devices.layout import default, split_cpu
from fedpriv.engine import compilation_cache


def build(settings: Settings) -> Baseline:
    """A process of scale_out runs: a round; sums over the devices of vectors of so many numbers each.

    The settings' workload has `processes`, `process`, `port` and `sums`; one of several processes has a core of
    its own, as a host has.
    """
    own = settings.workload
    compilation_cache.keep_no_programs()
    if own.processes > 1:
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[own.process % len(mine)]})
    split_cpu(settings.threads)
    if own.processes > 1:
        initialize(f"127.0.0.1:{own.port}", own.processes, own.process)
    workload = workloads.WORKLOADS["A"]
    runs: dict[str, Callable[[], Any]] = {
        "round": compiled_round(workload, settings.clients, default()).run
    }
    runs |= {f"sum of {size}": _sum(size) for size in own.sums}
    return Baseline(runs, parameters(workload), ("jax", "jaxlib"))


def _sum(size: int) -> Callable[[], jax.Array]:
    mesh = default().mesh
    added = jax.shard_map(
        lambda x: jax.lax.psum(x, "clients"),
        mesh=mesh,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    x = replicate(jnp.ones(size), mesh)
    compiled = jax.jit(added).lower(x).compile()
    return lambda: compiled(x)


WORKLOADS = {"A": build}
