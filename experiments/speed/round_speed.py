"""Workloads A, B, D, E and F: a round beside JAX's own matrix product."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedpriv
from experiments.speed import convolution_speed
from experiments.speed.memory import peak_mb
from experiments.speed.rivals import comparison
from experiments.speed.rivals.runner import Rivals
from experiments.speed.timing import (
    device_memory_mb,
    in_turns,
    machine,
    page_faults,
    ratios,
    seconds,
    show,
    spread,
)
from experiments.speed.workloads import Images, Workload, parameters
from fedpriv.devices.distributed import replicate
from fedpriv.devices.fitting import compiled_to_fit
from fedpriv.devices.layout import Strategy, side_by_side

PRODUCTS = 5  # matrix products per turn, of which the median counts
PRODUCT = 2048  # rows and columns


class Round(NamedTuple):
    """A compiled round that is timed.

    Attributes:
      run: (), returns the new state and the metrics.
      side_by_side: clients at a time on each device.
    """

    run: Callable[[], tuple[Any, Any]]
    side_by_side: int


def compiled_round(workload: Workload, clients: int, strategy: Strategy) -> Round:
    algorithm = workload.algorithm(clients)
    federation = workload.federation(clients)
    state = algorithm.init(workload.model().init(jax.random.key(0)), federation)
    given = replicate((jax.random.key(1), state, federation), strategy.mesh)

    compiled, resolved = compiled_to_fit(lambda: fedpriv.one_round(algorithm), given, [], strategy)
    share = -(-clients // strategy.devices)
    return Round(lambda: compiled(*given), side_by_side(resolved, share))


def measure(
    workload: Workload, clients: int, repeats: int, strategy: Strategy, rivals: Rivals
) -> dict[str, Any]:
    """A round in turns: matrix product, our round, the rivals' rounds. Everything is compiled and run once before."""
    began = time.perf_counter()
    one_round = compiled_round(workload, clients, strategy)
    compile_seconds = time.perf_counter() - began
    seconds(one_round.run)
    memory = device_memory_mb() or peak_mb()
    products = compiled_products(PRODUCT, strategy)
    seconds(products)
    runs = {"product": products, "ours": one_round.run}
    times = in_turns(runs, repeats, rivals.once, calls={"product": PRODUCTS})
    ours, product = times["ours"], times["product"]
    work, devices = workload.flop_per_client() / 1e9, strategy.devices
    gflops = [clients * work / t for t in ours]
    limits = [2 * devices * PRODUCT**3 / 1e9 / t for t in product]
    fractions = ratios(gflops, limits)
    # Clients side by side have kernels of their own, whose convolutions are products of patches.
    by_rule = jax.default_backend() == "cpu" and one_round.side_by_side == 1
    return {
        "clients": clients,
        "parameters": parameters(workload),
        "gflop_per_client": work,
        **machine(),
        "devices": devices,
        "strategy": strategy.clients,
        "clients_side_by_side": one_round.side_by_side,
        "repeats": repeats,
        "compile_seconds": compile_seconds,
        "peak_memory_mb": memory,
        "page_faults": {"round": page_faults(one_round.run)},
        "device_ms_per_round": spread([1e3 * devices * t for t in ours]),
        "clients_per_second": spread([clients / t for t in ours]),
        "gflops": spread(gflops),
        "matmul_gflops": spread(limits),
        "fraction_of_matmul": fractions["median"],
        "fractions_of_matmul": fractions,
        "convolutions": convolution_speed.measure(workload)
        if by_rule and isinstance(workload, Images)
        else [],
        **comparison.rounds(rivals, ours, clients),
    }


def compiled_products(size: int, strategy: Strategy) -> Callable[[], list[jax.Array]]:
    """Beside rounds: one matrix product per device, all at once."""
    devices = strategy.mesh.devices.flat
    matrix = np.random.default_rng(0).standard_normal((size, size), np.float32)
    matrices = [jax.device_put(matrix, device) for device in devices]
    product = jax.jit(jnp.matmul)
    return lambda: [product(m, m) for m in matrices]


def table(result: dict[str, Any]) -> str:
    given = (
        f"{result['clients']} clients, {result['parameters']:,} parameters, "
        f"{result['gflop_per_client']:.3g} GFLOP per client"
    )
    side_by_side = f"{result['clients_side_by_side']} client(s) at a time on each device"
    rows = {
        "clients/s": show(result["clients_per_second"]),
        "a round": show(result["device_ms_per_round"], "ms of one device's time"),
        "rate": show(result["gflops"], "GFLOP/s"),
        "matrix product": show(result["matmul_gflops"], "GFLOP/s"),
        "fraction_of_matmul": show(result["fractions_of_matmul"]),
        "compile time": f"{result['compile_seconds']:.1f} s",
        "peak memory": f"{result['peak_memory_mb']:.0f} MB",
        **convolution_speed.rows(result["convolutions"]),
    }
    return comparison.table(result, given, result["devices"], rows, side_by_side)
