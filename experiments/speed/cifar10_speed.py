"""The command `benchmark_cifar10`: pfl_cifar10's rounds beside pfl's, on CPU.

The config's FedAvg and DP-FedAvg, on random pixels: 1,000 clients of 50 images, 50 in a round, an epoch each in batches
of 10, in fedpriv and in pfl's simulator as pfl-research's own benchmark calls it, which gets a virtual environment (see
experiments.benchmark --help). They take turns of some rounds each, after a first one that is not timed. pfl has as many
threads as there are cores: pin to one (taskset -c 1 python -m ...), as a JAX device uses all it may.

Prints one JSON object: for each algorithm, by the clock ("wall") and by processor time ("cpu", which others' work on
the machine disturbs less), clients per second of each and, turn by turn, how many times as fast fedpriv is ("ratios").
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from configs import pfl_cifar10
from configs.pfl_cifar10 import IMAGES, PflCifar10
from experiments.base.command import Parser, command
from experiments.config.fields import Number, check_each
from experiments.speed.rivals import environments
from experiments.speed.rivals.child import Settings
from experiments.speed.rivals.rival import Rival
from experiments.speed.round_speed import compiled_round
from experiments.speed.timing import machine, ratios, spread
from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy, cores
from fedpriv.engine import compilation_cache

CLOCKS = {"wall": "seconds", "cpu": "cpu_seconds"}


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.benchmark_cifar10", description=details)
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="of each (default: 5)")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="a turn (default: 10)")
    args = parser.parse_args(argv)
    check_each(Number, **{"--turns": args.turns, "--rounds": args.rounds})
    if jax.default_backend() != "cpu":
        raise ValueError("they are compared on CPU only; set JAX_PLATFORMS=cpu")
    compilation_cache.keep_no_programs()
    config = pfl_cifar10.config
    with closing(Rival("pfl_cifar10", settings(config), environments.python_of("pfl"))) as pfl:
        found = measure(config, IMAGES // config.clients, pfl, args.turns, args.rounds)
    print(json.dumps(found, indent=1))
    return 0


def settings(config: PflCifar10) -> Settings:
    """For pfl; its noise multiplier is that of the run's own cohort."""
    workload = asdict(config) | {"images": IMAGES // config.clients}
    del workload["data_dir"], workload["output"]
    return Settings(workload, config.cohort, cores(), "cpu")


def measure(config: PflCifar10, images: int, pfl: Rival, turns: int, rounds: int) -> dict[str, Any]:
    about, ours = pfl.about(), compiled(config, images)
    answers: dict[tuple[str, str], list[dict[str, float]]] = {}
    for turn in range(turns + 1):
        for name, run in ours.items():
            mine = [spent(run) for _ in range(rounds if turn else 1)]
            its = [pfl.run(name) for _ in mine]
            for whose, each in (("fedpriv", mine), ("pfl", its)):
                total = {key: sum(answer[key] for answer in each) for key in CLOCKS.values()}
                answers.setdefault((name, whose), []).extend([total] * bool(turn))
        print(f"turn {turn} of {turns} done", file=sys.stderr)
    return {
        **machine(),
        "pfl": about,
        "turns": turns,
        "rounds": rounds,
        **{name: compared(answers, name, rounds * config.cohort) for name in ours},
    }


def compared(answers: dict[tuple[str, str], Any], name: str, clients: int) -> dict[str, Any]:
    found = {}
    for clock, key in CLOCKS.items():
        times = {whose: [t[key] for t in answers[name, whose]] for whose in ("fedpriv", "pfl")}
        speeds = {whose: spread([clients / t for t in each]) for whose, each in times.items()}
        found[clock] = speeds | {"ratios": ratios(times["pfl"], times["fedpriv"])}
    return found


def compiled(config: PflCifar10, images: int) -> dict[str, Callable[[], Any]]:
    """A round of each algorithm, on random pixels."""
    rng, count = np.random.default_rng(0), config.clients * images
    pixels = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
    train = {"image": pixels, "label": rng.integers(0, 10, count, np.int32)}
    data = Dataset("random", train, {k: v[:1] for k, v in train.items()}, 10)
    experiment = pfl_cifar10.on(config, data)
    made = {}
    for name, entry in experiment.entries.items():
        workload = SimpleNamespace(
            model=lambda: experiment.model,
            algorithm=lambda _, entry=entry: entry.algorithm,
            federation=lambda _, entry=entry: entry.federations[0],
        )
        made[name] = compiled_round(workload, config.cohort, Strategy("map", 1)).run
    return made


def spent(run: Callable[[], Any]) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    jax.block_until_ready(run())
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
