"""python -m experiments.benchmark cifar10 [--turns N] [--rounds N]: pfl_cifar10's rounds beside pfl's, on CPU.

The config's FedAvg and DP-FedAvg, on random pixels: 1,000 clients of 50 images, 50 in a round, an epoch each in batches
of 10, in fedpriv and in pfl's simulator as pfl-research's own benchmark calls it, which gets a virtual environment (see
experiments.benchmark rounds --help). They take turns of some rounds each, after a first one that is not timed. pfl has
as many threads as there are cores: pin to one (taskset -c 1 python -m ...), as a JAX device uses all it may.

Prints one JSON object: for each algorithm, by the clock ("wall") and by processor time ("cpu", which others' work on
the machine disturbs less), clients per second of each and, turn by turn, how many times as fast fedpriv is ("ratios").
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from configs import pfl_cifar10
from configs.pfl_cifar10 import IMAGES, PflCifar10
from experiments.speed.rivals.runner import Rival, Settings, python_of, spent
from experiments.speed.round_speed import compiled_round
from experiments.speed.timing import machine, ratios, spread
from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy, cores
from fedpriv.engine import compilation_cache
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number

PFL = "experiments.speed.rivals.pfl"
CLOCKS = {"wall": "seconds", "cpu": "cpu_seconds"}


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark cifar10`."""

    turns: Number = 5
    """Of each."""
    rounds: Number = 10
    """Of a turn."""


def main(options: Options) -> int:
    say(json.dumps(measure(options), indent=1))
    return 0


def measure(options: Options) -> dict[str, Any]:
    """The object that `benchmark cifar10` prints, see above.

    Raises:
      ValueError: JAX does not use the CPU.
      ChildProcessError: pfl's environment cannot be built, or pfl failed.
    """
    if jax.default_backend() != "cpu":
        raise ValueError("they are compared on CPU only; set JAX_PLATFORMS=cpu")
    compilation_cache.keep_no_programs()
    settings = pfl_cifar10.settings
    with closing(Rival(PFL, pfl_settings(settings), python_of("pfl"))) as pfl:
        images = IMAGES // settings.clients
        return in_turns(settings, images, pfl, options.turns, options.rounds)


def pfl_settings(settings: PflCifar10) -> Settings:
    """For pfl; its noise multiplier is that of the run's own cohort."""
    workload = asdict(settings) | {"images": IMAGES // settings.clients}
    del workload["data_dir"], workload["output"]
    return Settings("pfl_cifar10", workload, settings.cohort, cores(), "cpu")


def in_turns(
    settings: PflCifar10, images: int, pfl: Rival, turns: int, rounds: int
) -> dict[str, Any]:
    about, ours = pfl.about(), compiled(settings, images)
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
        **{name: compared(answers, name, rounds * settings.cohort) for name in ours},
    }


def compared(answers: dict[tuple[str, str], Any], name: str, clients: int) -> dict[str, Any]:
    found = {}
    for clock, key in CLOCKS.items():
        times = {whose: [t[key] for t in answers[name, whose]] for whose in ("fedpriv", "pfl")}
        speeds = {whose: spread([clients / t for t in each]) for whose, each in times.items()}
        found[clock] = speeds | {"ratios": ratios(times["pfl"], times["fedpriv"])}
    return found


def compiled(settings: PflCifar10, images: int) -> dict[str, Callable[[], Any]]:
    """A round of each algorithm of pfl_cifar10, on random pixels."""
    rng, count = np.random.default_rng(0), settings.clients * images
    pixels = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
    train = {"image": pixels, "label": rng.integers(0, 10, count, np.int32)}
    data = Dataset("random", train, {k: v[:1] for k, v in train.items()}, 10)
    experiment = pfl_cifar10.on(settings, data)
    made = {}
    for name, entry in experiment.entries.items():
        workload = SimpleNamespace(
            model=lambda: experiment.model,
            algorithm=lambda _, entry=entry: entry.algorithm,
            federation=lambda _, entry=entry: entry.federations[0],
        )
        made[name] = compiled_round(workload, settings.cohort, Strategy("map", 1)).run
    return made
