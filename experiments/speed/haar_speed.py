"""Workload C: the Haar transform beside a copy, private steps on Haar coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

import fedpriv
from experiments.speed import examples
from experiments.speed.memory import peak_mb
from experiments.speed.rivals import comparison
from experiments.speed.rivals.runner import Rivals
from experiments.speed.timing import in_turns, machine, page_faults, ratios, seconds, show, spread
from experiments.speed.workloads import parameters
from fedpriv.mechanisms.clipping import coefficients, flat
from fedpriv.mechanisms.haar import haar, inverse_haar
from fedpriv.mechanisms.mechanisms import gaussian, mechanism
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.mechanisms.per_example import per_example, private_mean

Runs: TypeAlias = dict[str, Callable[[], Any]]

ROUNDS = 5  # of all runs per turn, of which the median counts


@dataclass(frozen=True)
class Transform:
    """The arrays and the network on which the Haar transform is timed."""

    rows: int = 256
    length: int = 2**15
    lot: int = 64
    side: int = 28
    filters: tuple[int, ...] = (8, 16)
    hidden: tuple[int, ...] = (32,)
    clip_norm: float = 1.0
    noise_multiplier: float = 1.0

    def model(self) -> fedpriv.models.Model:
        network = fedpriv.models.CNN(self.filters, self.hidden, 10)
        return fedpriv.models.classifier(network, (self.side, self.side, 1))


WORKLOAD = Transform()


def measure(workload: Transform, repeats: int, rivals: Rivals) -> dict[str, Any]:
    """Takes turns: copy, transform, inverse; DP-SGD's step, and those with noise on Haar coefficients; the rivals."""
    runs = transforms(workload) | steps(workload)
    for run in runs.values():
        seconds(run)
    times = in_turns(runs, repeats, rivals.once, rounds=ROUNDS)
    gigabytes = 2 * 4 * workload.rows * workload.length / 1e9  # read and written
    names = ("copy", "haar", "inverse")
    wavelets = ("dp_sgd_wav", "flat_wav")
    return {
        "array": [workload.rows, workload.length],
        "lot": workload.lot,
        "parameters": parameters(workload),
        **machine(),
        "repeats": repeats,
        "ms": {name: spread([1e3 * t for t in times[name]]) for name in runs},
        "page_faults": {name: page_faults(run) for name, run in runs.items()},
        "peak_memory_mb": peak_mb(),
        "gb_per_second": {name: spread([gigabytes / t for t in times[name]]) for name in names},
        "fractions_of_copy": {name: ratios(times["copy"], times[name]) for name in names[1:]},
        "ratios_to_dp_sgd": {name: ratios(times[name], times["dp_sgd"]) for name in wavelets},
        **comparison.steps(rivals, times, ROUNDS),
    }


def transforms(workload: Transform) -> Runs:
    """Haar transforms into where they wrote before: fresh pages from the system may cost more than the copy."""
    x = jax.random.normal(jax.random.key(0), (workload.rows, workload.length))
    fns: dict[str, Callable[[jax.Array], jax.Array]] = {
        "copy": lambda x: x + 1,
        "haar": haar,
        "inverse": partial(inverse_haar, length=workload.length),
    }
    return {name: _in_place(fn, x) for name, fn in fns.items()}


def _in_place(fn: Callable[[jax.Array], jax.Array], x: jax.Array) -> Callable[[], jax.Array]:
    into = jax.jit(lambda x, out: fn(x), donate_argnums=1, keep_unused=True)
    out = jnp.zeros_like(x)

    def run() -> jax.Array:
        nonlocal out
        out = into(x, out)
        return out

    return run


def steps(workload: Transform) -> Runs:
    """Steps beside the Haar transform: private gradients of a lot of random bytes.

    DP-SGD-WAV clips the Haar coefficients of each record (Ranaweera et al., Algorithm 1); `flat_wav` clips as DP-SGD
    does, so that only its noise is transformed.
    """
    params, d = workload.model().init(jax.random.key(0)), parameters(workload)
    given: dict[str, Any] = {
        "clip_norm": workload.clip_norm,
        "noise_multiplier": workload.noise_multiplier,
    }
    mechanisms = {
        "dp_sgd": gaussian(**given),
        "dp_sgd_wav": mechanism(coefficients(d), haar_noise(d), **given),
        "flat_wav": mechanism(flat(), haar_noise(d), **given),
    }
    images, labels = map(jnp.asarray, examples.images(workload, workload.lot))
    batch = {"image": images, "label": labels}
    arguments = jax.random.key(1), params, batch, jnp.ones(workload.lot, bool)
    gradients = per_example(workload.model().loss)
    return {
        name: partial(jax.jit(private_mean(gradients, each, workload.lot)), *arguments)
        for name, each in mechanisms.items()
    }


def table(result: dict[str, Any]) -> str:
    rows, length = result["array"]
    times, speeds = result["ms"], result["gb_per_second"]
    fractions, slower = result["fractions_of_copy"], result["ratios_to_dp_sgd"]
    given = (
        f"Haar transform of [{rows}, {length:,}] float32; "
        f"a step of {result['parameters']:,} parameters on {result['lot']} records"
    )
    found = {
        "copy": show(speeds["copy"], "GB/s read and written"),
        **{name: show(speeds[name], "GB/s") for name in fractions},
        **{f"{name} / copy": show(fractions[name]) for name in fractions},
        "dp_sgd": show(times["dp_sgd"], "ms"),
        **{name: show(times[name], "ms") for name in slower},
        **{f"{name} / dp_sgd": show(slower[name]) for name in slower},
        "peak memory": f"{result['peak_memory_mb']:.0f} MB",
    }
    return comparison.table(result, given, 1, found)
