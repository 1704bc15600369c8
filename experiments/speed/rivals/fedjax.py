"""fedjax: workloads A, D and E (the client training of its `fed_avg`, with clipping and noise at the server) and B.

B is DP-SCAFFOLD written by the user on its `for_each_client`, which has none: as in `torch.py`, exact subsets of the
records, gradients of single records clipped in closed form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

from experiments.speed import examples
from experiments.speed.rivals.runner import Baseline, Settings

PACKAGES = ("fedjax", "jax", "jaxlib")

Params = Any
Batch = dict[str, Any]
State = dict[str, jax.Array]


def prepare(threads: int) -> tuple[str, ...]:
    """fedjax: makes a device of each core and names the backends to try; to be called before JAX starts.

    "jit" is fedjax's default, one client after another on all cores; "pmap" runs one client per device side by side.
    """
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={threads}"
    return ("jit", "pmap") if threads > 1 else ("jit",)


def images(settings: Settings) -> Baseline:
    backends = prepare(settings.threads)
    workload = settings.workload
    model = cnn(workload)
    params = model.init(jax.random.PRNGKey(0))
    data = federated_data(settings)
    keys = jax.random.split(jax.random.PRNGKey(1), settings.clients)
    hparams = fedjax.ShuffleRepeatBatchHParams(workload.examples, num_epochs=workload.epochs)
    perturb = jax.jit(noisy_mean, static_argnums=(2, 3))

    def round_with(backend: str) -> Callable[[], Params]:
        with fedjax.for_each_client_backend(backend):
            train = fed_avg.create_train_for_each_client(
                fedjax.model_grad(model), fedjax.optimizers.sgd(workload.rate, workload.momentum)
            )

        def one_round() -> Params:
            """As `fed_avg.federated_averaging`, but for the clipping, the equal weights and the noise."""
            batches = [
                (client, dataset.shuffle_repeat_batch(hparams), key)
                for (client, dataset), key in zip(data.clients(), keys, strict=True)
            ]
            total = fedjax.tree_util.tree_zeros_like(params)
            for _, delta in train(params, batches):
                clipped = fedjax.tree_util.tree_clip_by_global_norm(delta, workload.clip_norm)
                total = fedjax.tree_util.tree_add(total, clipped)
            std = workload.clip_norm * workload.noise_multiplier
            return perturb(jax.random.PRNGKey(2), total, std, len(batches))

        return one_round

    size = sum(leaf.size for leaf in jax.tree_util.tree_leaves(params))
    runs = {backend: round_with(backend) for backend in backends}
    return Baseline(runs, size, PACKAGES)


def federated_data(settings: Settings) -> fedjax.FederatedData:
    x, y = examples.images(settings.workload, settings.clients, settings.workload.examples)
    return fedjax.InMemoryFederatedData({i: {"x": x[i], "y": y[i]} for i in range(len(x))})


def cnn(workload: Any) -> fedjax.Model:
    """`fedpriv.models.CNN` in haiku, fedjax's way of defining models."""

    def forward(batch: dict[str, jax.Array]) -> jax.Array:
        x = batch["x"].astype(jnp.float32) / 255
        for width in workload.filters:
            x = jax.nn.relu(hk.MaxPool(2, 2, "VALID")(hk.Conv2D(width, 5)(x)))
        x = hk.Flatten()(x)
        for width in workload.hidden:
            x = jax.nn.relu(hk.Linear(width)(x))
        return hk.Linear(10)(x)

    def loss(batch: dict[str, jax.Array], logits: jax.Array) -> jax.Array:
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)

    shape = (1, workload.side, workload.side, 1)
    sample = {"x": np.zeros(shape, np.uint8), "y": np.zeros(1, np.int32)}
    return fedjax.create_model_from_haiku(hk.transform(forward), sample, loss)


def noisy_mean(key: jax.Array, total: Params, std: float, clients: int) -> Params:
    leaves, structure = jax.tree_util.tree_flatten(total)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        (leaf + std * jax.random.normal(k, leaf.shape)) / clients
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree_util.tree_unflatten(structure, noisy)


def records(settings: Settings) -> Baseline:
    backends = prepare(settings.threads)
    rng = np.random.default_rng(0)
    x, y = examples.records(settings.workload, 5 * settings.clients)
    x = np.concatenate([x, np.ones_like(x[..., :1])], axis=2)  # the constant 1 of the bias
    data = [{"x": x[i], "y": y[i]} for i in range(len(x))]
    runs = {}
    for backend in backends:
        with fedjax.for_each_client_backend(backend):
            for_each_client = fedjax.for_each_client(*local_steps(settings.workload))
        runs[backend] = rounds(for_each_client, rng, data, settings)
    size = (settings.workload.features + 1) * settings.workload.classes
    return Baseline(runs, size, PACKAGES)


def rounds(
    for_each_client: Any, rng: np.random.Generator, data: list[Batch], settings: Settings
) -> Callable[[], jax.Array]:
    """fedjax's rounds of Algorithm 1 of arXiv:2111.09278."""
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
    """fedjax's `client_init`, `client_step` and `client_final`."""
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
    """fedjax: the mean of the records' clipped gradients; see `torch.DPScaffold` for the norm."""
    x, l2 = batch["x"], workload.l2
    z = x @ theta
    e = jax.nn.softmax(z) - jax.nn.one_hot(batch["y"], workload.classes)
    squared = (x**2).sum(1) * (e**2).sum(1) + 2 * l2 * (e * z).sum(1) + l2**2 * (theta**2).sum()
    scale = jnp.minimum(1.0, workload.clip_norm * jax.lax.rsqrt(jnp.maximum(squared, 1e-20)))
    return (x.T @ (e * scale[:, None]) + l2 * scale.sum() * theta) / len(x)


WORKLOADS = dict.fromkeys("ADE", images) | {"B": records}
