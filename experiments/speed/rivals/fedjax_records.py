"""Workload B in fedjax: DP-SCAFFOLD written by the user on its `for_each_client`, which has none.

As `torch_records`: exact subsets of the records, gradients of single records clipped in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import records
from experiments.speed.rivals.fedjax_backends import prepare

Batch = dict[str, Any]
State = dict[str, jax.Array]


def build(settings: Settings) -> Baseline:
    backends = prepare(settings.threads)
    rng = np.random.default_rng(0)
    x, y = records(settings.workload, 5 * settings.clients)
    x = np.concatenate([x, np.ones_like(x[..., :1])], axis=2)  # the constant 1 of the bias
    data = [{"x": x[i], "y": y[i]} for i in range(len(x))]
    runs = {}
    for backend in backends:
        with fedjax.for_each_client_backend(backend):
            for_each_client = fedjax.for_each_client(*local_steps(settings.workload))
        runs[backend] = rounds(for_each_client, rng, data, settings)
    size = (settings.workload.features + 1) * settings.workload.classes
    return Baseline(runs, size, ("fedjax", "jax", "jaxlib"))


def rounds(
    for_each_client: Any, rng: np.random.Generator, data: list[Batch], settings: Settings
) -> Callable[[], jax.Array]:
    """Algorithm 1 of arXiv:2111.09278."""
    theta = jnp.zeros((settings.workload.features + 1, settings.workload.classes))
    control = jnp.zeros_like(theta)
    controls = [control] * len(data)

    def one_round() -> jax.Array:
        nonlocal theta, control
        cohort = rng.choice(len(data), settings.clients, replace=False).tolist()
        keys = jax.random.split(jax.random.PRNGKey(int(rng.integers(2**31))), len(cohort))
        clients = [
            (i, batches(rng, data[i], settings.workload), {"control": controls[i], "key": key})
            for i, key in zip(cohort, keys, strict=True)
        ]
        dy, dc = jnp.zeros_like(theta), jnp.zeros_like(theta)
        for i, (y, mean) in for_each_client({"theta": theta, "control": control}, clients):
            dy, dc = dy + y - theta, dc + mean - controls[i]
            controls[i] = mean
        theta, control = theta + dy / len(cohort), control + dc / len(data)
        return theta

    return one_round


def batches(rng: np.random.Generator, shard: Batch, workload: Any) -> Iterator[Batch]:
    for _ in range(workload.steps):
        rows = rng.choice(workload.records, workload.batch, replace=False, shuffle=False)
        yield {name: leaf[rows] for name, leaf in shard.items()}


def local_steps(workload: Any) -> tuple[Any, Any, Any]:
    """`client_init`, `client_step` and `client_final`."""
    std = 2 * workload.clip_norm * workload.noise_multiplier / workload.batch

    def start(server: State, client: State) -> State:
        correction = server["control"] - client["control"]
        total = jnp.zeros_like(correction)
        return {
            "y": server["theta"],
            "correction": correction,
            "total": total,
            "key": client["key"],
        }

    def step(state: State, batch: Batch) -> State:
        key, noise_key = jax.random.split(state["key"])
        gradient = clipped_mean(state["y"], batch, workload)
        gradient += std * jax.random.normal(noise_key, gradient.shape)
        y = state["y"] - workload.rate * (gradient + state["correction"])
        return state | {"y": y, "total": state["total"] + gradient, "key": key}

    def final(server: State, state: State) -> tuple[jax.Array, jax.Array]:
        return state["y"], state["total"] / workload.steps

    return start, step, final


def clipped_mean(theta: jax.Array, batch: Batch, workload: Any) -> jax.Array:
    """Of the records' gradients; see `torch_records` for the norm."""
    x, l2 = batch["x"], workload.l2
    z = x @ theta
    e = jax.nn.softmax(z) - jax.nn.one_hot(batch["y"], workload.classes)
    squared = (x**2).sum(1) * (e**2).sum(1) + 2 * l2 * (e * z).sum(1) + l2**2 * (theta**2).sum()
    scale = jnp.minimum(1.0, workload.clip_norm * jax.lax.rsqrt(jnp.maximum(squared, 1e-20)))
    return (x.T @ (e * scale[:, None]) + l2 * scale.sum() * theta) / len(x)
