"""jax_privacy: the steps of workloads C, G and H by its clipped gradient and its noise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import optax
from jax_privacy import clipping, noise_addition

from experiments.speed import examples
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.transformer import Transformer


class CNN(nn.Module):
    """For jax_privacy: `fedpriv.models.CNN` without its own convolutions."""

    filters: tuple[int, ...]
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in self.filters:
            x = nn.relu(nn.max_pool(nn.Conv(width, (5, 5))(x), (2, 2), (2, 2)))
        x = x.reshape(*x.shape[:-3], -1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(10)(x)


def images(settings: Settings) -> Baseline:
    workload = settings.workload
    model = CNN(tuple(workload.filters), tuple(workload.hidden))
    pixels, labels = examples.images(workload, workload.lot)
    params = model.init(jax.random.key(0), pixels[:1] / 255)
    return step_of(lambda params, x: model.apply(params, x / 255), params, pixels, labels, workload)


def attention(settings: Settings) -> Baseline:
    workload = settings.workload
    model = Transformer(
        workload.vocabulary, workload.length, workload.width, workload.heads, workload.layers
    )
    text = examples.texts(workload, workload.lot)
    params = model.init(jax.random.key(0), text[:1, :-1])
    return step_of(model.apply, params, text[:, :-1], text[:, 1:], workload)


def step_of(
    apply: Callable[..., Any], params: Any, inputs: Any, labels: Any, workload: Any
) -> Baseline:
    given = jax.device_put((jax.random.key(1), params, inputs, labels))
    runs = {"dp_sgd": private_step(apply, workload)}
    if micro := getattr(workload, "micro", None):
        runs["micro"] = private_step(apply, workload, micro)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    packages = ("jax-privacy", "jax", "jaxlib")
    return Baseline(
        {name: functools.partial(jax.jit(step), *given) for name, step in runs.items()},
        size,
        packages,
    )


def private_step(apply: Callable[..., Any], workload: Any, micro: int | None = None) -> Any:
    """By jax_privacy, (key, params, inputs, labels) -> the private mean of the lot's gradients.

    Args:
      apply: (params, inputs) -> logits.
      micro: records at a time; by default all.
    """

    def loss(params: Any, inputs: jax.Array, labels: jax.Array) -> jax.Array:
        logits = apply(params, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    gradients = clipping.clipped_grad(
        loss,
        l2_clip_norm=workload.clip_norm,
        batch_argnums=(1, 2),
        normalize_by=workload.lot,
        microbatch_size=micro,
    )
    std = workload.clip_norm * workload.noise_multiplier / workload.lot

    def step(key: jax.Array, params: Any, inputs: jax.Array, labels: jax.Array) -> Any:
        mean = gradients(params, inputs, labels)
        privatizer = noise_addition.gaussian_privatizer(stddev=std, prng_key=key)
        return privatizer.update(mean, privatizer.init(params))[0]

    return step


WORKLOADS = {"C": images, "G": attention, "H": attention}
