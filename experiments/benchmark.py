"""python -m experiments.benchmark [--workload B|C] [--torch] [--json]: how fast a round is on this machine.

Workload A: a round of DP-FedAvg with 100 clients of 10 images (random bytes of Fashion-MNIST's shape), Fed-SMP's CNN of
1,663,370 parameters, 10 local SGD steps with momentum on batches of 10, clipping and noise. Workload B: a round of
DP-SCAFFOLD with 20 of 100 clients of 4,000 records, logistic regression of 40 features and 10 classes, 50 local steps
on exact subsets of 800 records, the gradient of each record clipped, and noise. Both are set against the rate that
JAX's own float32 matrix product reaches on the same devices and A, with --torch, against a plain PyTorch loop on the
same cores. Workload C, on one device: the Haar transform of [256, 32768] numbers set against a copy, and DP-SGD's step
with noise on Haar coefficients set against one without, a CNN of 28,874 parameters on 64 records. All take turns in one
run, so that other load on the machine hits all alike; medians (lowest to highest). Exit code 2 means that something
given was wrong.
"""

from __future__ import annotations

import contextlib
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
from experiments._torch_baseline import LAYOUTS, TorchRounds, peak_memory_mb
from experiments.command_line import Parser
from experiments.timing import device_memory_mb, device_name, lines, seconds, show, spread
from experiments.workloads import WORKLOADS, Images, Workload, compiled_round, parameters
from fedpriv.strategy import Strategy, cores, default, split_cpu

PRODUCTS = 5  # matrix products per turn, of which the median counts


PRODUCT = 2048  # rows and columns


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
    parser.add_argument("--torch", action="store_true", help="also time the PyTorch loop")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    args = parser.parse_args(argv)
    try:
        for name in ("clients", "repeats", "devices"):
            if getattr(args, name) is not None and getattr(args, name) < 1:
                raise ValueError(f"--{name}: {getattr(args, name)} is not at least 1")
        if args.torch and args.workload != "A":
            raise ValueError("--torch: there is a PyTorch loop for workload A only")
        if args.torch and importlib.util.find_spec("torch") is None:
            raise ValueError("--torch: PyTorch is not installed; pip install torch")
        if args.workload == "C" and (args.clients is not None or args.devices not in (None, 1)):
            raise ValueError("--workload: C has no clients and runs on one device")
        compilation_cache.disable()
        split_cpu(min(args.devices or cores(), cores()))
        strategy = default()
        strategy = Strategy(strategy.clients, args.devices or strategy.devices)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.workload == "C":
        result = haar_speed.measure(haar_speed.Transform(), args.repeats)
        print(json.dumps({"workload": "C"} | result) if args.json else haar_speed.table(result))
        return 0
    workload = WORKLOADS[args.workload]
    clients = args.clients or workload.clients
    try:
        numbers = measure(workload, clients, args.repeats, strategy, args.torch)
    except ChildProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    result = {"workload": args.workload} | numbers
    print(json.dumps(result) if args.json else table(result))
    return 0


def measure(
    workload: Workload, clients: int, repeats: int, strategy: Strategy, torch: bool
) -> dict[str, Any]:
    """Takes turns: matrix product, JAX round, PyTorch rounds. Everything is compiled and run once before."""
    cpu = jax.default_backend() == "cpu"
    times: dict[str, list[float]] = {name: [] for name in ("product", "jax", *LAYOUTS)}
    with contextlib.ExitStack() as stack:
        # On CPU this is what float32 means anyway; elsewhere it keeps TF32 and bfloat16 out.
        stack.enter_context(jax.default_matmul_precision("default" if cpu else "highest"))
        if torch:
            assert isinstance(workload, Images)
            settings = (asdict(workload), clients, cores(), "cpu" if cpu else "cuda")
            rounds = stack.enter_context(TorchRounds(*settings))
            torch_about = rounds.about()
        began = time.perf_counter()
        one_round = compiled_round(workload, clients, strategy)
        compile_seconds = time.perf_counter() - began
        seconds(one_round)
        memory = device_memory_mb() or peak_memory_mb()
        products = compiled_products(PRODUCT, strategy)
        seconds(products)
        for turn in range(repeats):
            turns = [seconds(products) for _ in range(PRODUCTS)]
            times["product"].append(statistics.median(turns))
            times["jax"].append(seconds(one_round))
            for layout in LAYOUTS if torch else ():
                answer = rounds.round(layout)
                times[layout].append(answer["seconds"])
                torch_about["peak_memory_mb"] = answer["peak_memory_mb"]
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
        "repeats": repeats,
        "compile_seconds": compile_seconds,
        "peak_memory_mb": memory,
        "device_ms_per_round": spread([1e3 * strategy.devices * t for t in times["jax"]]),
        "clients_per_second": spread([clients / t for t in times["jax"]]),
        "gflops": spread([clients * work / t for t in times["jax"]]),
        "matmul_gflops": spread([strategy.devices * gflop() / t for t in times["product"]]),
    }
    pairs = zip(result["gflops"]["all"], result["matmul_gflops"]["all"], strict=True)
    fractions = spread([ours / limit for ours, limit in pairs])
    result |= {"fraction_of_matmul": fractions["median"], "fractions_of_matmul": fractions}
    if torch:
        result["torch"] = torch_about
        for layout in LAYOUTS:
            result["torch"][layout] = spread([clients / t for t in times[layout]])
        best = max(LAYOUTS, key=lambda layout: result["torch"][layout]["median"])
        result["torch"]["best"] = best
        ratios = spread([b / a for a, b in zip(times["jax"], times[best], strict=True)])
        result |= {"ratio_to_torch": ratios["median"], "ratios_to_torch": ratios}
    return result


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
        "machine": f"{result['device']}; {result['devices']} device(s), {result['cores']} core(s)",
        "versions": f"jax {result['jax']}, jaxlib {result['jaxlib']}",
        "clients/s": show(result["clients_per_second"]),
        "a round": show(result["device_ms_per_round"], "ms of one device's time"),
        "rate": show(result["gflops"], "GFLOP/s"),
        "matrix product": show(result["matmul_gflops"], "GFLOP/s"),
        "fraction_of_matmul": show(result["fractions_of_matmul"]),
        "compile time": f"{result['compile_seconds']:.1f} s",
        "peak memory": f"{result['peak_memory_mb']:.0f} MB",
    }
    if "torch" in result:
        about = result["torch"]
        texts["versions"] += f", torch {about['version']} ({about['threads']} threads)"
        for layout in LAYOUTS:
            texts[f"torch {layout}"] = show(about[layout], "clients/s")
        texts["torch peak memory"] = f"{about['peak_memory_mb']:.0f} MB"
        texts["ratio_to_torch"] = show(result["ratios_to_torch"]) + f", to {about['best']}"
    return lines(texts)


if __name__ == "__main__":
    sys.exit(main())
