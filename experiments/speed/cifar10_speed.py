"""pfl_cifar10's rounds beside pfl's, on CPU: what `experiments.benchmark_cifar10` measures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from configs import pfl_cifar10
from configs.pfl_cifar10 import IMAGES, PflCifar10
from experiments.config.fields import Number, check_each
from experiments.speed.rivals.runner import Rival, Settings, python_of
from experiments.speed.round_speed import compiled_round
from experiments.speed.timing import machine, ratios, spread
from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy, cores
from fedpriv.engine import compilation_cache

PFL = "experiments.speed.rivals.pfl"
CLOCKS = {"wall": "seconds", "cpu": "cpu_seconds"}


def measure(turns: int = 5, rounds: int = 10) -> dict[str, Any]:
    """The object that `python -m experiments.benchmark_cifar10` prints, where it is explained.

    Args:
      turns: of each.
      rounds: of a turn.

    Raises:
      ValueError: none of one of them, or JAX does not use the CPU.
      ChildProcessError: pfl's environment cannot be built, or pfl failed.
    """
    check_each(Number, turns=turns, rounds=rounds)
    if jax.default_backend() != "cpu":
        raise ValueError("they are compared on CPU only; set JAX_PLATFORMS=cpu")
    compilation_cache.keep_no_programs()
    settings = pfl_cifar10.settings
    with closing(Rival(PFL, pfl_settings(settings), python_of("pfl"))) as pfl:
        return in_turns(settings, IMAGES // settings.clients, pfl, turns, rounds)


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
    """A round of each algorithm, on random pixels."""
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


def spent(run: Callable[[], Any]) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    jax.block_until_ready(run())
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
