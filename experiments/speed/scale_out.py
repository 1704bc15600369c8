"""python -m experiments.benchmark scale_out [CONFIG ...] [--clients N] [--json]: rounds over several hosts.

Measured on this machine, in turns: a round of workload A in one process with two devices, and
in two processes with one device and one core each, as two hosts would share it; and how long two processes take to add
up vectors, from which a message's latency and the bandwidth follow. Counted, from the traced rounds of the configs'
algorithms (by default one config of each paper): the bytes that a round's devices add up and gather, whatever their
number. Both together give the time of workload A's round on more hosts, each with one such core: a model, with the
network of this machine's loopback, and with one of 10 Gbit/s and 50 us.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import tyro
from jax.extend.core import Jaxpr

from experiments.speed.rivals.runner import Rival, Settings
from experiments.speed.timing import machine, ratios, show, spread
from experiments.speed.workloads import WORKLOADS, parameters
from fedpriv.core.jaxprs import equations
from fedpriv.devices.layout import Strategy, cores, split_cpu, spmd, use
from fedpriv.experiments.base.formats import NAMES
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.fields import Number
from fedpriv.experiments.config.made import ledger_of
from fedpriv.rounds.one_round import one_round

CONFIGS = ("fed_smp_fashion_mnist", "dp_scaffold_mnist", "wavelet_mnist", "mspdq_mnist")
HOSTS = (1, 2, 8, 64, 512)
SUMS = (2**10, 2**22)  # float32 numbers: what latency costs, and what bandwidth does
PAYS = 1.25  # twice the hosts pay where a round is so many times as fast


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark scale_out`."""

    configs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CONFIG")] = (
        CONFIGS
    )
    """Config whose algorithms' traffic is counted."""
    clients: Number = 60
    """Of a round."""
    repeats: Number = 7
    """Turns."""
    json: bool = False
    """Print one JSON object, nothing else."""


def main(options: Options) -> int:
    result = measure(options)
    say(json.dumps(result) if options.json else table(result))
    return 0


class Network(NamedTuple):
    """The network of scale_out: what a message between two hosts takes.

    Attributes:
      latency: seconds, however short it is.
      bandwidth: bytes a second.
    """

    latency: float
    bandwidth: float

    def seconds(self, summed: float, hosts: int) -> float:
        """Of adding up so many bytes of each of the hosts, in a ring: each sends 2 (h - 1) / h of them in 2 (h - 1)."""
        steps = 2 * (hosts - 1)
        return steps * (self.latency + summed / hosts / self.bandwidth)


SLOW = Network(50e-6, 10e9 / 8)


def measure(options: Options) -> dict[str, Any]:
    """The object of `benchmark scale_out --json`, see above.

    Raises:
      ValueError: this process has one core.
      ChildProcessError: a process failed.
    """
    if cores() < 2:
        raise ValueError(f"scale_out: this process may use {cores()} core; two are compared")
    split_cpu(2)
    counted = {name: counts(name) for name in options.configs}
    return measured(options.clients, options.repeats) | {"bytes": counted}


def counts(name: str) -> dict[str, dict[str, int]]:
    """What hosts exchange, by algorithm of a config: {"added", "gathered"}, bytes of a round."""
    module = modules.load(name)
    ledger = ledger_of(module, module.settings)
    return {algorithm: traffic(*ledger.of(algorithm)) for algorithm in ledger.entries}


def traffic(algorithm: Any, params: Any, federation: Any) -> dict[str, int]:
    """Bytes that a round's devices add up (each has all of them) and gather (each has its share).

    Nothing is computed: the round is traced for two devices, and no number of devices changes what is counted.
    """
    key = jax.random.key(0)
    model = jax.eval_shape(params, key) if callable(params) else params
    state = jax.eval_shape(lambda model: algorithm.init(model, federation), model)
    with use(Strategy("map", 2)):
        program = jax.make_jaxpr(spmd(one_round(algorithm)))(key, state, federation)
    added = sum(n * size for kind, n, size in _exchanged(program.jaxpr) if kind == "psum")
    gathered = sum(n * size for kind, n, size in _exchanged(program.jaxpr) if kind == "all_gather")
    return {"added": added, "gathered": gathered}


def _exchanged(jaxpr: Jaxpr) -> Iterator[tuple[str, int, int]]:
    """(primitive, how often, bytes of its outputs) in a program and all that it calls."""
    for eqn, callers in equations(jaxpr):
        scans = [caller for caller in callers if caller.primitive.name == "scan"]
        times = math.prod(scan.params["length"] for scan in scans)
        for kind in ("psum", "all_gather"):
            if eqn.primitive.name.startswith(kind):
                outs: list[Any] = [v.aval for v in eqn.outvars]
                yield kind, times, sum(math.prod(a.shape) * a.dtype.itemsize for a in outs)


def measured(clients: int, repeats: int) -> dict[str, Any]:
    """Turns of one process with two devices and of two processes, and what follows for more hosts."""
    with contextlib.ExitStack() as stack:
        one = _processes(1, clients, stack)
        two = _processes(2, clients, stack)
        runs = one[0].about()["runs"]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Rival.about, two))
            times: dict[str, list[list[float]]] = {run: [[], []] for run in runs}
            for _ in range(repeats):
                for run in runs:
                    for kept, processes in zip(times[run], (one, two), strict=True):
                        answers = pool.map(
                            lambda each, run=run: each.run(run)["seconds"], processes
                        )
                        kept.append(max(answers))
    alone, together = times["round"]
    latency, large = (statistics.median(times[f"sum of {size}"][1]) / 2 for size in SUMS)
    loopback = Network(latency, 4 * SUMS[1] / 2 / max(large - latency, 1e-9))
    summed = 4 * parameters(WORKLOADS["A"])
    client = (statistics.median(together) - loopback.seconds(summed, 2)) / math.ceil(clients / 2)
    return {
        **machine(),
        "clients": clients,
        "repeats": repeats,
        "one_process_seconds": spread(alone),
        "two_processes_seconds": spread(together),
        "speed_of_two_processes": ratios(alone, together),
        "client_seconds": client,
        "networks": {
            name: network._asdict() | {"rounds": _rounds(network, client, summed)}
            for name, network in (("loopback", loopback), ("10 Gbit/s", SLOW))
        },
    }


def _rounds(network: Network, client: float, summed: int, cohort: int = 1000) -> dict[str, Any]:
    """Seconds of a round of a thousand clients by hosts, and how many hosts still pay."""

    def seconds(hosts: int) -> float:
        return client * math.ceil(cohort / hosts) + network.seconds(summed, hosts)

    last = 1
    while 2 * last <= cohort and seconds(last) >= PAYS * seconds(2 * last):
        last *= 2
    return {"clients": cohort, "seconds": {str(h): seconds(h) for h in HOSTS}, "pays_up_to": last}


def _processes(count: int, clients: int, stack: contextlib.ExitStack) -> list[Rival]:
    """Started together; two devices in all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = []
    for i in range(count):
        own = {"processes": count, "process": i, "port": port, "sums": SUMS}
        settings = Settings("A", own, clients, 2 // count, "cpu")
        found.append(Rival("experiments.speed.host", settings))
        stack.callback(found[-1].close)
    return found


def table(result: dict[str, Any]) -> str:
    lines = [
        f"workload A, {result['clients']} clients; {result['device']}, 2 cores; jax {result['jax']}",
        f"one process, two devices     {show(result['one_process_seconds'], 's')}",
        f"two processes, one core each {show(result['two_processes_seconds'], 's')}",
        f"speed of two processes       {show(result['speed_of_two_processes'])}",
        "",
        "a round's bytes, whatever the number of hosts | added up, MB | gathered, MB",
    ]
    for config, found in result["bytes"].items():
        for name, each in found.items():
            added, gathered = each["added"] / 1e6, each["gathered"] / 1e6
            lines.append(f"{config} | {NAMES.get(name, name)} | {added:.4g} | {gathered:.4g}")
    for name, network in result["networks"].items():
        rounds = network["rounds"]
        speed = f"{network['bandwidth'] / 1e9:.3g} GB/s, {1e6 * network['latency']:.3g} us"
        lines += ["", f"model: a round of {rounds['clients']} clients, {name} ({speed})"]
        one = rounds["seconds"]["1"]
        for hosts, seconds in rounds["seconds"].items():
            lines.append(
                f"{hosts:>4} host(s) {seconds:8.3f} s, {one / seconds:.3g} times as fast as one"
            )
        lines.append(f"twice as many pay {PAYS} times up to {rounds['pays_up_to']} hosts")
    return "\n".join(lines)
