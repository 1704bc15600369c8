"""python -m experiments.benchmark rounds [--workload W] [--torch] [--peers] [--json]: how fast a round, or a step, is.

Workload A: a round of DP-FedAvg with 100 clients of 10 images (random bytes of Fashion-MNIST's shape), Fed-SMP's CNN of
1,663,370 parameters, 10 local SGD steps with momentum on batches of 10, clipping and noise. Workload B: a round of
DP-SCAFFOLD with 20 of 100 clients of 4,000 records, logistic regression of 40 features and 10 classes, 50 local steps
on exact subsets of 800 records, the gradient of each record clipped, and noise. Both are set against the rate that
JAX's own float32 matrix product reaches on the same devices. Workload C, on one device: the Haar transform of
[256, 32768] numbers set against a copy, and DP-SGD's step with noise on Haar coefficients set against one without, a
CNN of 28,874 parameters on 64 records. Workload D: A with that small CNN. Workload E: A with the quickstart's network
and images, 4,810 parameters. Workload F: rounds of DP-FedAvg with 10 clients of 4 texts of 80 characters, Fed-SMP's
LSTM of 820,522 parameters, 3 steps each. Workload G, on one device: DP-SGD's step of a transformer of 1,024,986
parameters on 32 texts of 80 characters, beside its gradient without privacy.

--torch sets each against plain PyTorch, in A, D and E also against PyTorch that trains all clients at once
(torch.func.vmap) and, on a GPU, by CUDA graphs; --peers also against others: fedjax, pfl and flower; in C and G, where
these have no such step, jax_privacy and Opacus. Peers with pins of their own (requirements/ in
experiments/speed/rivals) get virtual environments under ~/.cache/fedpriv/peers (or FEDPRIV_PEERS_DIR), which the first
run builds from the package index: up to 1.5 GB each, more where PyTorch comes with CUDA. One that cannot be built, or
fails, is left out with a word why. On a GPU fedjax and flower are left out, and the others run in this Python where it
has them. Rivals have as many threads as we have devices; a single JAX device uses all cores it may, so for a fair
comparison pin all to one core: taskset -c 1 python -m experiments.benchmark rounds --peers.

On a GPU products of float32 numbers are float32 for all ("highest"), or TF32 for all where
JAX_DEFAULT_MATMUL_PRECISION=tensorfloat32. Ours of records' gradients, on which a bound rests, are always float32. To
JAX "bfloat16" and "default" are TF32 there, too.

All take turns in one run, so that other load on the machine hits all alike; medians (lowest to highest). ratio_to_X is
our speed over that of X's fastest run, in C and G over that of the same run, turn by turn: above 1, fedpriv is faster.

In the object of --json a spread is {"median", "min", "max", "all"}. "ratio_to_X" is the median and "ratios_to_X" the
spread; in C and G "ratios_to_X" alone, with a spread for each run that X has, too, by the run's name.

Exit code 2 means that something given was wrong, 1 that PyTorch failed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax

from experiments.speed import attention_speed, haar_speed, round_speed
from experiments.speed.rivals.runner import Rivals, Settings
from experiments.speed.workloads import WORKLOADS
from fedpriv.devices.layout import Strategy, cores, default, split_cpu
from fedpriv.engine import compilation_cache
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number

STEPS = {"C": haar_speed, "G": attention_speed}
"""Workloads that are no rounds."""


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark rounds`."""

    workload: Literal["A", "B", "C", "D", "E", "F", "G"] = "A"
    """See above."""
    clients: Number | None = None
    """A smaller cohort, for a quick look."""
    repeats: Number = 3
    """Turns."""
    devices: Number | None = None
    """By default all; on CPU one per core."""
    torch: bool = False
    """Also time PyTorch."""
    peers: bool = False
    """Also time PyTorch and other simulators."""
    json: bool = False
    """Print one JSON object, nothing else."""


def main(options: Options) -> int:
    result = measure(options)
    say(json.dumps(result) if options.json else table(result))
    return int("unavailable" in result.get("torch", {}))


def measure(options: Options) -> dict[str, Any]:
    """The object of `rounds --json`: {"workload", "precision", ...}; a rival that failed is {"unavailable": why}.

    Raises:
      ValueError: an option cannot be had.
    """
    _check(options)
    compilation_cache.keep_no_programs()
    step, rivals = STEPS.get(options.workload), options.torch or options.peers
    split_cpu(min(options.devices or cores(), cores()))
    if rivals:  # all take turns on one GPU, where each needs memory
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    cpu = jax.default_backend() == "cpu"
    strategy = Strategy(default().clients, options.devices or default().devices)
    threads = (options.devices or cores()) if cpu else cores()
    if rivals and threads < cores():
        print(
            f"note: rivals have {threads} thread(s), but a JAX device may use all {cores()} cores; "
            f"for a fair comparison pin to {threads} core(s), see --help",
            file=sys.stderr,
        )
    sizes: Any = step.WORKLOAD if step else WORKLOADS[options.workload]
    cohort = 1 if step else options.clients or sizes.clients
    # On CPU this is what float32 means anyway; elsewhere it keeps TF32 and bfloat16 out, unless
    # JAX_DEFAULT_MATMUL_PRECISION asks for them.
    known: Any = jax.config
    precision = "default" if cpu else known.jax_default_matmul_precision or "highest"
    device = "cpu" if cpu else "cuda"
    settings = Settings(options.workload, asdict(sizes), cohort, threads, device, precision)
    with (
        jax.default_matmul_precision(precision),
        Rivals(rivals, options.peers, settings) as started,
    ):
        if step:
            numbers = step.measure(sizes, options.repeats, started)
        else:
            numbers = round_speed.measure(sizes, cohort, options.repeats, strategy, started)
    return {"workload": options.workload, "precision": precision} | numbers


def _check(options: Options) -> None:
    """Raises ValueError where PyTorch is missing, or a step is asked for clients or devices."""
    if (options.torch or options.peers) and importlib.util.find_spec("torch") is None:
        option = "peers" if options.peers else "torch"
        raise ValueError(f"{option}: PyTorch is not installed; pip install torch")
    alone = options.clients is None and options.devices in (None, 1)
    if options.workload in STEPS and not alone:
        raise ValueError(f"workload: {options.workload} has no clients and runs on one device")


def table(result: dict[str, Any]) -> str:
    """What `benchmark rounds` measured, for a reader."""
    return STEPS.get(result["workload"], round_speed).table(result)
