"""Workload A in fedjax: the client training of its `fed_avg`, with clipping and noise at the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import images
from experiments.speed.rivals.fedjax_backends import prepare

Params = Any


def build(settings: Settings) -> Baseline:
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
    return Baseline(runs, size, ("fedjax", "jax", "jaxlib"))


def federated_data(settings: Settings) -> fedjax.FederatedData:
    x, y = images(settings.workload, settings.clients, settings.workload.examples)
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
