"""python -m experiments.benchmark integers [--clients N] [--repeats N]: rounds whose messages travel as integers.

Rounds of workload A (see experiments.benchmark rounds --help) with integers of 16 bits, beside the same with floats: of
all parameters, and of 0.5 % of them (Fed-SMP, rand_k). They take turns; medians (lowest to highest). The ratio to the
float is taken turn by turn. Then the parts by themselves, on one device: what each client does with its message
(flatten, rotate, round, and compare the norm), and what is done once with the sum (noise, decode).

Prints one JSON object.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

import fedpriv
from experiments.speed.round_speed import compiled_round
from experiments.speed.timing import in_turns, machine, ratios, seconds, spread
from experiments.speed.workloads import WORKLOADS, Images
from fedpriv.core.trees import dimension, flatten
from fedpriv.devices.layout import Strategy, default, split_cpu
from fedpriv.engine import compilation_cache
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number
from fedpriv.mechanisms.integer_samplers import alias_table, draw_shares
from fedpriv.mechanisms.integers import IntegerSum, integer_sum
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.mechanisms.rotation import rotate
from fedpriv.mechanisms.rounding import is_within, round_within

BITS, KEPT = 16, 0.005
WORKLOAD = WORKLOADS["A"]
MECHANISMS: dict[str, Callable[[float, float], Mechanism]] = {
    "float": fedpriv.gaussian,
    "discrete_gaussian": lambda c, sigma: fedpriv.discrete_gaussian(c, sigma, bits=BITS),
    "skellam": lambda c, sigma: fedpriv.skellam(c, sigma, bits=BITS),
}


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark integers`."""

    clients: Number = 100
    """Of a round."""
    repeats: Number = 3
    """Turns."""


@dataclass(frozen=True)
class Noisy(Images):
    """Workload A with a mechanism, of all parameters or of some, drawn anew for each round."""

    mechanism: str = "float"
    kept: float = 1.0

    def algorithm(self, clients: int) -> fedpriv.Algorithm:
        given: dict[str, Any] = {
            "sampler": fedpriv.everyone(clients),
            "optimizer": lambda t: optax.sgd(self.rate, self.momentum),
            "batches": fedpriv.epochs(self.epochs, self.examples),
            "mechanism": self.noise(),
        }
        if self.kept < 1:
            given["sparsifier"] = fedpriv.papers.select_rand_k(self.kept)
            return fedpriv.papers.fed_avg_sparse(self.model().loss, **given)
        return fedpriv.fed_avg(self.model().loss, **given)

    def noise(self) -> Mechanism:
        return MECHANISMS[self.mechanism](self.clip_norm, self.noise_multiplier)


def main(options: Options) -> int:
    say(json.dumps(measure(options), indent=1))
    return 0


def measure(options: Options) -> dict[str, Any]:
    """The object that `benchmark integers` prints: seconds of rounds, their ratios, milliseconds of the parts."""
    compilation_cache.keep_no_programs()
    split_cpu()
    assert isinstance(WORKLOAD, Images)
    sizes = {name: getattr(WORKLOAD, name) for name in WORKLOAD.__dataclass_fields__}
    base = Noisy(**sizes)
    rounds = {
        name: {m: replace(base, mechanism=m, kept=kept) for m in MECHANISMS}
        for name, kept in (("dense", 1.0), ("rand_k", KEPT))
    }
    strategy = default()
    return {
        "clients": options.clients,
        "bits": BITS,
        **machine(),
        "rounds": {name: _rounds(each, options, strategy) for name, each in rounds.items()},
        "parts_ms": _parts(rounds["dense"]["discrete_gaussian"], options),
    }


def _rounds(
    workloads: dict[str, Noisy], options: Options, strategy: Strategy
) -> dict[str, dict[str, Any]]:
    """By mechanism {"seconds", "compile_seconds", "ratios_to_float"}, spreads."""
    compiled, took = {}, {}
    for name, workload in workloads.items():
        began = time.perf_counter()
        compiled[name] = compiled_round(workload, options.clients, strategy).run
        took[name] = time.perf_counter() - began
        seconds(compiled[name])
    times = in_turns(compiled, options.repeats, lambda: None)
    return {
        name: {
            "seconds": spread(each),
            "compile_seconds": took[name],
            "ratios_to_float": ratios(each, times["float"]),
        }
        for name, each in times.items()
    }


def _parts(workload: Noisy, options: Options) -> dict[str, Any]:
    """Milliseconds of each, spreads: of a client's message, and of the sum."""
    params = workload.model().init(jax.random.key(0))
    integers = workload.noise().integers
    assert integers is not None
    d = dimension(params)
    plan = integer_sum(integers, workload.clip_norm, workload.noise_multiplier, options.clients, d)
    key, message = jax.random.key(0), jax.tree.map(lambda x: x / jnp.sqrt(d), params)
    rotated = rotate(key, flatten(message) * plan.scale)
    rounded = round_within(key, rotated, plan.squared_norm)
    runs = {name: _run(*each) for name, each in _calls(plan, message, rotated, rounded).items()}
    began = time.perf_counter()
    alias_table.cache_clear()
    alias_table(plan.noise_of_all.law)
    table = time.perf_counter() - began
    for run in runs.values():
        seconds(run)
    times = in_turns(runs, options.repeats, lambda: None, calls=dict.fromkeys(runs, 5))
    of_parts = {name: spread([1e3 * t for t in each]) for name, each in times.items()}
    return {**of_parts, "table, once": 1e3 * table}


def _calls(
    plan: IntegerSum, message: Any, rotated: jax.Array, rounded: jax.Array
) -> dict[str, tuple[Any, ...]]:
    """By name a function and what it is given."""
    key = jax.random.key(0)

    def noise(key: jax.Array) -> jax.Array:
        return draw_shares(key, plan.noise_of_all, (plan.length,))

    return {
        "flatten": (flatten, message),
        "rotate": (rotate, key, flatten(message)),
        "round, with its norm": (lambda k, x: round_within(k, x, plan.squared_norm), key, rotated),
        "norm": (lambda x: is_within(x, plan.squared_norm), rounded),
        "encode, all of these": (plan.encode, key, key, message),
        "noise of the sum": (noise, key),
        "decode the sum": (lambda k, x: plan.decode(k, x, message), key, rounded),
    }


def _run(function: Callable[..., Any], *given: Any) -> Callable[[], Any]:
    compiled = jax.jit(function)
    return lambda: compiled(*given)
