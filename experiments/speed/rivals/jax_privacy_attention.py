"""Workload G's step by jax_privacy: its clipped gradient and its noise."""

from __future__ import annotations

import functools

import jax

from experiments.speed.rivals import examples
from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.jax_privacy_steps import private_step
from experiments.speed.rivals.transformer import Transformer


def build(settings: Settings) -> Baseline:
    workload = settings.workload
    model = Transformer(
        workload.vocabulary, workload.length, workload.width, workload.heads, workload.layers
    )
    text = jax.device_put(examples.texts(workload, workload.lot))
    params = model.init(jax.random.key(0), text[:1, :-1])
    step = jax.jit(private_step(model.apply, workload))
    run = functools.partial(step, jax.random.key(1), params, text[:, :-1], text[:, 1:])
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return Baseline({"dp_sgd": run}, size, ("jax-privacy", "jax", "jaxlib"))
