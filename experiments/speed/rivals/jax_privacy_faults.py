"""Faults planted in a DP-SGD of a user of jax_privacy, by its execution plan and its accounting."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from jax_privacy import batch_selection, clipping, noise_addition
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

from experiments.speed.rivals import planted
from experiments.speed.rivals.runner import Baseline, Settings

DRAWS = np.random.default_rng(0)
IMAGES = DRAWS.normal(size=(planted.RECORDS, planted.FEATURES)).astype(np.float32)
LABELS = IMAGES.sum(1)


def loss(params: Any, images: Any, labels: Any) -> Any:
    return 0.5 * jnp.mean((images @ params - labels) ** 2)


def raw(params: Any, batch: Any) -> Any:
    return jax.grad(loss)(params, *batch)


def clipped(plan: Any, params: Any, batch: Any, **more: Any) -> Any:
    return plan.clipped_grad(loss, batch_argnums=(1, 2), **more)(params, *batch)


def noisy(plan: Any, total: Any, state: Any) -> Any:
    return plan.noise_addition_transform.update(total, state)


def train(
    gradient: Any = clipped,
    noise: Any = noisy,
    rate: float | None = None,
    size: Any = lambda batch: planted.RATE * planted.RECORDS,
    rates: Any = lambda params, batch: planted.LEARNING_RATE,
    after: Any = lambda mean, params, batch: mean,
    shown: Any = lambda last, total, batch: last,
) -> tuple[float, list[Any]]:
    """The epsilon of the plan, and the model and what else is shown; the defaults are sound."""
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    plan = BandMFExecutionPlanConfig(
        strategy=np.ones(1),
        iterations=planted.STEPS,
        epsilon=None,
        delta=None,
        noise_multiplier=planted.SIGMA,
        sampling_prob=planted.RATE,
        l2_clip_norm=planted.CLIP,
        rescale_to_unit_norm=False,
        partition_type=batch_selection.PartitionType.INDEPENDENT,
        accountant=PLDAccountant(relation),
        noise_seed=0,
    ).plan
    drawn = plan.batch_selection_strategy
    if rate:
        drawn = batch_selection.CyclicPoissonSampling(rate, planted.STEPS)
    params, show = jnp.zeros(planted.FEATURES), jnp.zeros(planted.FEATURES)
    state = plan.noise_addition_transform.init(params)
    for chosen in drawn.batch_iterator(planted.RECORDS, rng=0):
        batch = IMAGES[chosen], LABELS[chosen]
        total = gradient(plan, params, batch)
        show = shown(show, total, batch)
        total, state = noise(plan, total, state)
        mean = after(total / size(batch), params, batch)
        params = params - rates(params, batch) * mean
    epsilon = PLDAccountant(relation).compose(plan.dp_event).get_epsilon(planted.DELTA)
    return epsilon, [params.tolist(), show.tolist()]


def median(params: Any, batch: Any) -> Any:
    """Of the norms of the records' gradients."""
    asked = {"l2_clip_norm": planted.CLIP, "batch_argnums": (1, 2), "return_grad_norms": True}
    return jnp.median(clipping.clipped_grad(loss, **asked)(params, *batch)[1].grad_norms)


def clipped_to_median(plan: Any, params: Any, batch: Any) -> Any:
    asked = {"batch_argnums": (1, 2), "rescale_to_unit_norm": True}
    gradient = clipping.clipped_grad(loss, l2_clip_norm=median(params, batch), **asked)
    return planted.CLIP * gradient(params, *batch)


def made_anew(plan: Any, total: Any, state: Any, **key: Any) -> Any:
    """Noise of a privatizer that is made in every step."""
    privatizer = noise_addition.gaussian_privatizer(stddev=planted.SIGMA * planted.CLIP, **key)
    return privatizer.update(total, privatizer.init(total))[0], state


def asking(**more: Any) -> dict[str, Any]:
    """The plan's gradient with other settings; each is a function of model and batch."""

    def gradient(plan: Any, params: Any, batch: Any) -> Any:
        asked = {name: value(params, batch) for name, value in more.items()}
        return clipped(plan, params, batch, **asked)

    return {"gradient": gradient}


def doubled(plan: Any, total: Any, state: Any) -> Any:
    total, state = noisy(plan, 2 * total, state)
    return total / 2, state


FAULTS: planted.Faults = {
    "no noise": {"the step skips it": {"noise": lambda plan, total, state: (total, state)}},
    "no clip": {
        "`plan.clipped_grad(.., l2_clip_norm=inf)`": asking(l2_clip_norm=lambda w, b: np.inf),
        "`jax.grad`": {"gradient": lambda plan, w, b: len(b[1]) * raw(w, b)},
    },
    "the raw sum after the noise": {
        "in the step": {"after": lambda mean, w, b: mean + 0.1 * raw(w, b)}
    },
    "division by the realised size": {
        "`plan.clipped_grad(.., normalize_by=n)`": asking(normalize_by=lambda w, b: len(b[1])),
        "in the step": {"size": lambda b: len(b[1])},
    },
    "a constant key": {
        "privatizer made in the step": {
            "noise": functools.partial(made_anew, prng_key=jax.random.key(0))
        }
    },
    "noise reused between rounds": {
        "its state is not kept": {"noise": lambda plan, t, state: (noisy(plan, t, state)[0], state)}
    },
    "another rate is declared": {"a sampler of 0.4 beside the plan's": {"rate": planted.DRAWN}},
    "half of the declared noise": {"sum doubled before it, halved after": {"noise": doubled}},
    "the sum before the noise in a metric": {
        "the step shows it": {"shown": lambda last, total, b: total}
    },
    "a diagnostic fed back": {
        "loss times learning rate": {"rates": lambda w, b: planted.LEARNING_RATE * loss(w, *b)}
    },
    "a clip norm from clients' data": {
        "`plan.clipped_grad(.., l2_clip_norm=median)`": asking(l2_clip_norm=median),
        "`clipped_grad`": {"gradient": clipped_to_median},
    },
    "a running mean of records": {
        "running mean": {"shown": lambda last, total, b: 0.9 * last + 0.1 * b[0].mean(0)}
    },
    "np.random": {
        "privatizer without a key made under `jax.jit`": {
            "noise": jax.jit(made_anew, static_argnums=0)
        }
    },
    "clients' own state in the model": "no such notion",
}


def build(settings: Settings) -> Baseline:
    packages = ("jax-privacy", "dp-accounting", "jax")
    return Baseline({}, planted.FEATURES, packages, findings=planted.answers(train, FAULTS))


WORKLOADS = {"faults": build}
