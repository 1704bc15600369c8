"""How fast a round, or a step, is on this machine, beside what limits it and beside rivals."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict
from typing import Any

import jax

from experiments.config.fields import Number, check_each
from experiments.speed import attention_speed, haar_speed, round_speed
from experiments.speed.rivals.runner import Rivals, Settings
from experiments.speed.workloads import WORKLOADS
from fedpriv.devices.layout import Strategy, cores, default, split_cpu
from fedpriv.engine import compilation_cache

STEPS = {"C": haar_speed, "G": attention_speed}
"""Workloads that are no rounds."""


def measure(
    workload: str = "A",
    *,
    clients: int | None = None,
    repeats: int = 3,
    devices: int | None = None,
    torch: bool = False,
    peers: bool = False,
) -> dict[str, Any]:
    """The object of `python -m experiments.benchmark --json`, where the workloads are explained.

    Args:
      workload: "A" to "G".
      clients: in a round; by default the workload's.
      repeats: turns.
      devices: by default all; on CPU one for each core.
      torch: also times PyTorch.
      peers: also times the other rivals, on CPU.

    Returns:
      {"workload", "precision", ...}; a rival that failed is {"unavailable": why}.

    Raises:
      ValueError: an argument is out of range or cannot be had.
    """
    step = STEPS.get(workload)
    if step is None and workload not in WORKLOADS:
        raise ValueError(f"workload: {workload!r}; give one of {', '.join([*WORKLOADS, *STEPS])}")
    check_each(Number, clients=clients, repeats=repeats, devices=devices)
    if (torch or peers) and importlib.util.find_spec("torch") is None:
        option = "peers" if peers else "torch"
        raise ValueError(f"{option}: PyTorch is not installed; pip install torch")
    if step and (clients is not None or devices not in (None, 1)):
        raise ValueError(f"workload: {workload} has no clients and runs on one device")
    compilation_cache.keep_no_programs()
    split_cpu(min(devices or cores(), cores()))
    cpu = jax.default_backend() == "cpu"
    if peers and not cpu:
        raise ValueError("peers: they are compared on CPU only; set JAX_PLATFORMS=cpu")
    strategy = Strategy(default().clients, devices or default().devices)
    threads = (devices or cores()) if cpu else cores()
    if (torch or peers) and threads < cores():
        print(
            f"note: rivals have {threads} thread(s), but a JAX device may use all {cores()} cores; "
            f"for a fair comparison pin to {threads} core(s), see --help",
            file=sys.stderr,
        )
    sizes: Any = step.WORKLOAD if step else WORKLOADS[workload]
    cohort = 1 if step else clients or sizes.clients
    settings = Settings(workload, asdict(sizes), cohort, threads, "cpu" if cpu else "cuda")
    # On CPU this is what float32 means anyway; elsewhere it keeps TF32 and bfloat16 out, unless
    # JAX_DEFAULT_MATMUL_PRECISION asks for them.
    precision = "default" if cpu else jax.config.jax_default_matmul_precision or "highest"
    with jax.default_matmul_precision(precision), Rivals(torch or peers, peers, settings) as rivals:
        if step:
            numbers = step.measure(sizes, repeats, rivals)
        else:
            numbers = round_speed.measure(sizes, cohort, repeats, strategy, rivals)
    return {"workload": workload, "precision": precision} | numbers


def table(result: dict[str, Any]) -> str:
    """What `measure` found, for a reader."""
    return STEPS.get(result["workload"], round_speed).table(result)
