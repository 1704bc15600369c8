"""python -m experiments.benchmark [--workload B|C] [--torch] [--peers] [--json]: how fast a round is on this machine.

Workload A: a round of DP-FedAvg with 100 clients of 10 images (random bytes of Fashion-MNIST's shape), Fed-SMP's CNN of
1,663,370 parameters, 10 local SGD steps with momentum on batches of 10, clipping and noise. Workload B: a round of
DP-SCAFFOLD with 20 of 100 clients of 4,000 records, logistic regression of 40 features and 10 classes, 50 local steps
on exact subsets of 800 records, the gradient of each record clipped, and noise. Both are set against the rate that
JAX's own float32 matrix product reaches on the same devices. Workload C, on one device: the Haar transform of
[256, 32768] numbers set against a copy, and DP-SGD's step with noise on Haar coefficients set against one without, a
CNN of 28,874 parameters on 64 records.

--torch sets each against plain PyTorch, --peers also against other simulators: fedjax, pfl and, in A, flower; in C,
where these have no such step, against jax_privacy and Opacus. Peers with pins of their own get virtual environments
under ~/.cache/fedpriv/peers (or FEDPRIV_PEERS_DIR), which the first run builds from the package index: up to 1.5 GB
each, more where PyTorch comes with CUDA. One that cannot be built, or fails, is left out with a word why. Rivals have
as many threads as we have devices; a single JAX device uses all cores it may, so pin all to one core for a fair
comparison of one: taskset -c 1 python -m experiments.benchmark --peers.

All take turns in one run, so that other load on the machine hits all alike; medians (lowest to highest). ratio_to_X is
our speed over that of X's fastest run, in C over that of the same run, turn by turn: above 1, fedpriv is faster.

In the object of --json a spread is {"median", "min", "max", "all"}. In A and B "ratio_to_X" is the median and
"ratios_to_X" the spread; in C "ratios_to_X" has a spread for each run that X has, too, by the run's name.

Exit code 2 means that something given was wrong, 1 that PyTorch failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from experiments import compilation_cache, haar_speed
from experiments.baselines import comparison
from experiments.baselines.child import Settings
from experiments.baselines.memory import peak_mb
from experiments.baselines.rivals import Rivals
from experiments.command_line import Parser, command
from experiments.timing import device_memory_mb, device_name, lines, seconds, show, spread
from experiments.workloads import WORKLOADS, Workload, compiled_round, parameters
from fedpriv.devices.layout import Strategy, cores, default, split_cpu

PRODUCTS = 5  # matrix products per turn, of which the median counts
PRODUCT = 2048  # rows and columns


@command
def main(argv: Sequence[str] | None = None) -> int:
    about, _, details = (__doc__ or "").partition("\n\n")
    parser = Parser(prog=about.split(" [")[0], description=details)
    parser.add_argument("--workload", default="A", choices=[*WORKLOADS, "C"])
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
    args = parser.parse_args(argv)
    compilation_cache.disable()
    strategy = checked(args)
    workload = haar_speed.Transform() if args.workload == "C" else WORKLOADS[args.workload]
    clients = 1 if args.workload == "C" else args.clients or workload.clients
    with started(args, workload, clients) as rivals:
        if args.workload == "C":
            numbers, text = haar_speed.measure(workload, args.repeats, rivals), haar_speed.table
        else:
            numbers, text = measure(workload, clients, args.repeats, strategy, rivals), table
    result = {"workload": args.workload} | numbers
    print(json.dumps(result) if args.json else text(result))
    return 1 if "torch" in rivals.failures else 0


def started(args: argparse.Namespace, workload: Any, clients: int) -> Rivals:
    """PyTorch and the peers, as far as they are asked for."""
    cpu = jax.default_backend() == "cpu"
    threads = (args.devices or cores()) if cpu else cores()
    if (args.torch or args.peers) and threads < cores():
        print(
            f"note: rivals have {threads} thread(s), but a JAX device may use all {cores()} cores; "
            f"for a fair comparison pin to {threads} core(s), see --help",
            file=sys.stderr,
        )
    settings = Settings(asdict(workload), clients, threads, "cpu" if cpu else "cuda")
    return Rivals(args.workload, args.torch or args.peers, args.peers, settings)


def checked(args: argparse.Namespace) -> Strategy:
    """What the options ask for.

    Raises:
      ValueError: an option is out of range or cannot be had.
    """
    for name in ("clients", "repeats", "devices"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"--{name}: {getattr(args, name)} is not at least 1")
    option = "--peers" if args.peers else "--torch"
    if (args.torch or args.peers) and importlib.util.find_spec("torch") is None:
        raise ValueError(f"{option}: PyTorch is not installed; pip install torch")
    if args.workload == "C" and (args.clients is not None or args.devices not in (None, 1)):
        raise ValueError("--workload: C has no clients and runs on one device")
    split_cpu(min(args.devices or cores(), cores()))
    if args.peers and jax.default_backend() != "cpu":
        raise ValueError("--peers: they are compared on CPU only; set JAX_PLATFORMS=cpu")
    strategy = default()
    return Strategy(strategy.clients, args.devices or strategy.devices)


def measure(
    workload: Workload, clients: int, repeats: int, strategy: Strategy, rivals: Rivals
) -> dict[str, Any]:
    """Takes turns: matrix product, our round, the rivals' rounds. Everything is compiled and run once before."""
    cpu = jax.default_backend() == "cpu"
    times: dict[str, list[float]] = {"product": [], "ours": []}
    # On CPU this is what float32 means anyway; elsewhere it keeps TF32 and bfloat16 out.
    with jax.default_matmul_precision("default" if cpu else "highest"):
        began = time.perf_counter()
        one_round = compiled_round(workload, clients, strategy)
        compile_seconds = time.perf_counter() - began
        seconds(one_round.run)
        memory = device_memory_mb() or peak_mb()
        products = compiled_products(PRODUCT, strategy)
        seconds(products)
        for turn in range(repeats):
            turns = [seconds(products) for _ in range(PRODUCTS)]
            times["product"].append(statistics.median(turns))
            times["ours"].append(seconds(one_round.run))
            rivals.once()
            print(f"turn {turn + 1} of {repeats} done", file=sys.stderr)
    work = workload.flop_per_client() / 1e9
    result = {
        "clients": clients,
        "parameters": parameters(workload),
        "gflop_per_client": work,
        "device": device_name(),
        "devices": strategy.devices,
        "cores": cores(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "strategy": strategy.clients,
        "clients_side_by_side": one_round.side_by_side,
        "repeats": repeats,
        "compile_seconds": compile_seconds,
        "peak_memory_mb": memory,
        "device_ms_per_round": spread([1e3 * strategy.devices * t for t in times["ours"]]),
        "clients_per_second": spread([clients / t for t in times["ours"]]),
        "gflops": spread([clients * work / t for t in times["ours"]]),
        "matmul_gflops": spread([strategy.devices * gflop() / t for t in times["product"]]),
    }
    pairs = zip(result["gflops"]["all"], result["matmul_gflops"]["all"], strict=True)
    fractions = spread([ours / limit for ours, limit in pairs])
    result |= {"fraction_of_matmul": fractions["median"], "fractions_of_matmul": fractions}
    return result | comparison.rounds(rivals, times["ours"], clients)


def compiled_products(size: int, strategy: Strategy) -> Callable[[], list[jax.Array]]:
    """One product per device, all at once."""
    devices = strategy.mesh.devices.flat
    matrix = np.random.default_rng(0).standard_normal((size, size), np.float32)
    matrices = [jax.device_put(matrix, device) for device in devices]
    product = jax.jit(jnp.matmul)
    return lambda: [product(m, m) for m in matrices]


def gflop() -> float:
    """Of one matrix product."""
    return 2 * PRODUCT**3 / 1e9


def table(result: dict[str, Any]) -> str:
    texts = {
        "workload": f"{result['workload']}, {result['clients']} clients, "
        f"{result['parameters']:,} parameters, {result['gflop_per_client']:.3g} GFLOP per client",
        "machine": f"{result['device']}; {result['devices']} device(s), {result['cores']} core(s); "
        f"{result['clients_side_by_side']} client(s) at a time on each device",
        "versions": f"jax {result['jax']}, jaxlib {result['jaxlib']}",
        "clients/s": show(result["clients_per_second"]),
        "a round": show(result["device_ms_per_round"], "ms of one device's time"),
        "rate": show(result["gflops"], "GFLOP/s"),
        "matrix product": show(result["matmul_gflops"], "GFLOP/s"),
        "fraction_of_matmul": show(result["fractions_of_matmul"]),
        "compile time": f"{result['compile_seconds']:.1f} s",
        "peak memory": f"{result['peak_memory_mb']:.0f} MB",
    }
    return lines(texts | comparison.rows(result))


if __name__ == "__main__":
    sys.exit(main())
