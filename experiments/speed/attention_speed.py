"""Workload G: DP-SGD's step of a small transformer beside its plain gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.speed import examples
from experiments.speed.memory import peak_mb
from experiments.speed.rivals import comparison
from experiments.speed.rivals.runner import Rivals
from experiments.speed.round_speed import PRODUCT, compiled_products
from experiments.speed.timing import in_turns, machine, page_faults, ratios, seconds, show, spread
from experiments.speed.transformer import Transformer
from fedpriv.core.types import Example, Params
from fedpriv.devices.layout import Strategy
from fedpriv.mechanisms.mechanisms import gaussian
from fedpriv.mechanisms.per_example import per_example, private_mean
from fedpriv.rounds.local_training import mean_grad

CALLS = 3  # of a run, one after another, of which the median counts: others' turns may take what memory it had


@dataclass(frozen=True)
class Characters:
    """A lot of texts, each a record, and the network; the loss is the mean over a text's characters."""

    lot: int = 32
    length: int = 80
    vocabulary: int = 90
    width: int = 128
    heads: int = 4
    layers: int = 5
    clip_norm: float = 1.0
    noise_multiplier: float = 1.0

    def network(self) -> Transformer:
        return Transformer(self.vocabulary, self.length, self.width, self.heads, self.layers)

    def init(self, key: jax.Array) -> Params:
        return self.network().init(key, jnp.zeros(self.length, jnp.int32))

    def loss(self, params: Params, example: Example) -> jax.Array:
        logits: Any = self.network().apply(params, example["text"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, example["label"]).mean()

    def lot_of_texts(self) -> Example:
        text = jnp.asarray(examples.texts(self, self.lot))
        return {"text": text[:, :-1], "label": text[:, 1:]}

    def flop(self) -> int:
        """Of a gradient's matrix products: forward, by the weights, by the inputs."""
        dense = 12 * self.layers * self.width**2 + self.width * self.vocabulary
        attention = 2 * self.layers * self.length * self.width
        return 3 * 2 * self.lot * self.length * (dense + attention)


WORKLOAD = Characters()


def measure(workload: Characters, repeats: int, rivals: Rivals) -> dict[str, Any]:
    """The transformer's step in turns: matrix product, gradient without privacy, DP-SGD's step, the rivals' steps."""
    params = workload.init(jax.random.key(0))
    ours = steps(workload, params)
    runs = ours | {"product": compiled_products(PRODUCT, Strategy(devices=1))}
    for run in runs.values():
        seconds(run)
    times = in_turns(runs, repeats, partial(rivals.once, CALLS), calls=dict.fromkeys(runs, CALLS))
    work = workload.flop() / 1e9
    limits = [2 * PRODUCT**3 / 1e9 / t for t in times["product"]]
    return {
        "lot": workload.lot,
        "length": workload.length,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "gflop": work,
        **machine(),
        "repeats": repeats,
        "ms": {name: spread([1e3 * t for t in times[name]]) for name in ("dp_sgd", "gradient")},
        "page_faults": {name: page_faults(run) for name, run in ours.items()},
        "peak_memory_mb": peak_mb(),
        "transient_mb": {name: transient_mb(run) for name, run in ours.items()},
        "ratios_to_gradient": ratios(times["dp_sgd"], times["gradient"]),
        "matmul_gflops": spread(limits),
        "fractions_of_matmul": ratios([work / t for t in times["dp_sgd"]], limits),
        **comparison.steps(rivals, times | {"ghost": times["dp_sgd"]}, CALLS),
    }


def steps(workload: Characters, params: Params) -> dict[str, partial[Any]]:
    """The transformer's steps: the private mean of the lot's gradients, and the mean."""
    batch, mask = workload.lot_of_texts(), jnp.ones(workload.lot, bool)
    mechanism = gaussian(workload.clip_norm, workload.noise_multiplier)
    private = jax.jit(private_mean(per_example(workload.loss), mechanism, workload.lot))
    gradient = jax.jit(mean_grad(workload.loss))
    return {
        "dp_sgd": partial(private, jax.random.key(1), params, batch, mask),
        "gradient": partial(gradient, params, batch, mask),
    }


def transient_mb(step: partial[Any]) -> float:
    """What XLA allocates for a step beside its arguments and results, in 10^6 bytes."""
    jitted: Any = step.func
    return jitted.lower(*step.args).compile().memory_analysis().temp_size_in_bytes / 1e6


def table(result: dict[str, Any]) -> str:
    given = (
        f"a step of {result['parameters']:,} parameters on {result['lot']} texts of {result['length']} characters, "
        f"{result['gflop']:.3g} GFLOP"
    )
    found = {
        **{name: show(each, "ms") for name, each in result["ms"].items()},
        **{f"{name} allocates": f"{mb:.0f} MB" for name, mb in result["transient_mb"].items()},
        **{f"{name} faults": f"{n:,} pages" for name, n in result["page_faults"].items()},
        "peak memory": f"{result['peak_memory_mb']:.0f} MB",
        "dp_sgd / gradient": show(result["ratios_to_gradient"]),
        "matrix product": show(result["matmul_gflops"], "GFLOP/s"),
        "fraction_of_matmul": show(result["fractions_of_matmul"]),
    }
    return comparison.table(result, given, 1, found)
