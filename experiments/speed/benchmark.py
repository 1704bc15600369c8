"""The command `benchmark`: how fast a round is on this machine.

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

--torch sets each against plain PyTorch, --peers also against other simulators: fedjax, pfl and, in A, flower; in C and
G, where these have no such step, against jax_privacy and Opacus. Peers with pins of their own get virtual environments
under ~/.cache/fedpriv/peers (or FEDPRIV_PEERS_DIR), which the first run builds from the package index: up to 1.5 GB
each, more where PyTorch comes with CUDA. One that cannot be built, or fails, is left out with a word why. Rivals have
as many threads as we have devices; a single JAX device uses all cores it may, so pin all to one core for a fair
comparison of one: taskset -c 1 python -m experiments.benchmark --peers.

All take turns in one run, so that other load on the machine hits all alike; medians (lowest to highest). ratio_to_X is
our speed over that of X's fastest run, in C and G over that of the same run, turn by turn: above 1, fedpriv is faster.

In the object of --json a spread is {"median", "min", "max", "all"}. "ratio_to_X" is the median and "ratios_to_X" the
spread; in C and G "ratios_to_X" alone, with a spread for each run that X has, too, by the run's name.

Exit code 2 means that something given was wrong, 1 that PyTorch failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import jax

from experiments.base.command import Parser, command
from experiments.config.fields import Number, check_each
from experiments.speed import attention_speed, haar_speed, round_speed
from experiments.speed.rivals.child import Settings
from experiments.speed.rivals.rival import Rivals
from experiments.speed.workloads import WORKLOADS
from fedpriv.devices.layout import Strategy, cores, default, split_cpu
from fedpriv.engine import compilation_cache

STEPS = {"C": haar_speed, "G": attention_speed}
"""Workloads that are no rounds."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    compilation_cache.keep_no_programs()
    strategy = checked(args)
    cpu = jax.default_backend() == "cpu"
    threads = (args.devices or cores()) if cpu else cores()
    if (args.torch or args.peers) and threads < cores():
        print(
            f"note: rivals have {threads} thread(s), but a JAX device may use all {cores()} cores; "
            f"for a fair comparison pin to {threads} core(s), see --help",
            file=sys.stderr,
        )
    step = STEPS.get(args.workload)
    workload: Any = step.WORKLOAD if step else WORKLOADS[args.workload]
    clients = 1 if step else args.clients or workload.clients
    settings = Settings(asdict(workload), clients, threads, "cpu" if cpu else "cuda")
    # On CPU this is what float32 means anyway; elsewhere it keeps TF32 and bfloat16 out, unless
    # JAX_DEFAULT_MATMUL_PRECISION asks for them.
    precision = "default" if cpu else jax.config.jax_default_matmul_precision or "highest"
    with (
        jax.default_matmul_precision(precision),
        Rivals(args.workload, args.torch or args.peers, args.peers, settings) as rivals,
    ):
        if step:
            numbers = step.measure(workload, args.repeats, rivals)
        else:
            numbers = round_speed.measure(workload, clients, args.repeats, strategy, rivals)
    result = {"workload": args.workload, "precision": precision} | numbers
    table = step.table if step else round_speed.table
    print(json.dumps(result) if args.json else table(result))
    return 1 if "torch" in rivals.failures else 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.benchmark", description=details)
    parser.add_argument(
        "--workload",
        default="A",
        choices=[*WORKLOADS, *STEPS],
        metavar="W",
        help="A (default) to G",
    )
    parser.add_argument(
        "--clients", type=int, metavar="N", help="a smaller cohort, for a quick look"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="turns (default: 3)")
    parser.add_argument(
        "--devices", type=int, metavar="N", help="default: all; on CPU one per core"
    )
    parser.add_argument("--torch", action="store_true", help="also time PyTorch")
    parser.add_argument(
        "--peers", action="store_true", help="also time PyTorch and other simulators (on CPU)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    return parser.parse_args(argv)


def checked(args: argparse.Namespace) -> Strategy:
    """What the options ask for.

    Raises:
      ValueError: an option is out of range or cannot be had.
    """
    check_each(
        Number, **{f"--{name}": getattr(args, name) for name in ("clients", "repeats", "devices")}
    )
    option = "--peers" if args.peers else "--torch"
    if (args.torch or args.peers) and importlib.util.find_spec("torch") is None:
        raise ValueError(f"{option}: PyTorch is not installed; pip install torch")
    if args.workload in STEPS and (args.clients is not None or args.devices not in (None, 1)):
        raise ValueError(f"--workload: {args.workload} has no clients and runs on one device")
    split_cpu(min(args.devices or cores(), cores()))
    if args.peers and jax.default_backend() != "cpu":
        raise ValueError("--peers: they are compared on CPU only; set JAX_PLATFORMS=cpu")
    strategy = default()
    return Strategy(strategy.clients, args.devices or strategy.devices)
