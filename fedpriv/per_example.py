"""Gradients of single records: their norms, and weighted sums of them, which is all that clipping needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from fedpriv.codecs import dimension, unflatten
from fedpriv.types import Example, Key, LossFn, Params


class PerExample(NamedTuple):
    """The gradients g_1..g_B of a batch, never needed one by one.

    Attributes:
      norms: f32[B], l2 norms.
      weighted: weights f32[B] -> sum_j w_j g_j; a gradient of weight 0 does not count, even if it is not finite.
    """

    norms: jax.Array
    weighted: Callable[[jax.Array], Params]


Gradients: TypeAlias = Callable[[Params, Example], PerExample]
"""(params, batch with leading axis B) -> PerExample."""

ClipNorm: TypeAlias = float | Literal["median"]


def per_example(loss: LossFn, l2: float = 0.0) -> Gradients:
    """Gradients of `loss + l2 / 2 ||params||^2` of any model, by `vmap`; their memory grows with the batch.

    Args:
      loss: of ONE example.
      l2: weight of the regulariser, which is part of each record's loss and so is clipped with it.
    """

    def regularised(params: Params, example: Example) -> jax.Array:
        return loss(params, example) + l2 / 2 * optax.tree.norm(params, squared=True)

    def gradients(params: Params, batch: Example) -> PerExample:
        each = jax.vmap(jax.grad(regularised), in_axes=(None, 0))(params, batch)

        def weighted(weights: jax.Array) -> Params:
            return jax.tree.map(lambda g: jnp.tensordot(weights, _counted(g, weights), 1), each)

        return PerExample(jax.vmap(optax.tree.norm)(each), weighted)

    return gradients


def per_example_softmax(l2: float = 0.0) -> Gradients:
    """The same for `models.LogisticRegression`, in closed form: no gradient is ever formed for a single record.

    With a = (x, 1), r = softmax(z) - onehot(label) the gradient of kernel and bias is a r^T + l2 W, so that its squared
    norm is ||a||^2 ||r||^2 + 2 l2 r.z + l2^2 ||W||^2, where z = W^T a. In all products the batch is the last, long
    axis, twice as fast on CPU.
    """
    from fedpriv.models import as_float

    def gradients(params: Params, batch: Example) -> PerExample:
        (layer,) = params["params"].values()
        kernel, bias = layer["kernel"], layer["bias"]
        x = as_float(batch["image"]).reshape(batch["image"].shape[0], -1)
        z = kernel.T @ x.T + bias[:, None]  # [classes, B]
        r = jax.nn.softmax(z, axis=0) - jax.nn.one_hot(batch["label"], len(bias), axis=0)
        squared = (jnp.sum(x**2, 1) + 1) * jnp.sum(r**2, 0)
        size = jnp.sum(kernel**2) + jnp.sum(bias**2)
        norms = jnp.sqrt(squared + 2 * l2 * jnp.sum(r * z, 0) + l2**2 * size)

        def weighted(weights: jax.Array) -> Params:
            scaled = _counted(r.T, weights).T * weights
            total = jnp.sum(weights)
            shifted = {
                "bias": jnp.sum(scaled, 1) + l2 * total * bias,
                "kernel": (scaled @ _counted(x, weights)).T + l2 * total * kernel,
            }
            return jax.tree.map(lambda _, g: g, params, {"params": {_name(params): shifted}})

        return PerExample(norms, weighted)

    return gradients


def _name(params: Params) -> str:
    return next(iter(params["params"]))


def _counted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """values [B, ...] with zeros where the weight is 0: 0 times NaN would be NaN."""
    return jnp.where(weights.reshape(-1, *[1] * (values.ndim - 1)) != 0, values, 0.0)


def private_mean(
    gradients: Gradients, clip_norm: ClipNorm, noise_multiplier: float, expected_size: float
) -> Callable[[Key, Params, Example, jax.Array], Params]:
    """(key, params, batch, mask) -> clipped and perturbed mean gradient (DP-SCAFFOLD, section 3.3).

    H~ = (sum_j g_j min(1, C / ||g_j||) + 2 C N(0, sigma^2 I)) / expected_size: the noise is relative to the distance
    2 C of a record that is replaced.

    Formal guarantees:
      For a fixed C, in exact arithmetic: the sum is a Gaussian mechanism of multiplier 2 sigma per record removed or
      added, sigma per record replaced. A record whose gradient has a NaN or infinite norm counts as 0. With "median",
      the median of the batch's own norms, none.

    Args:
      clip_norm: C, or "median" (the paper's heuristic, not private).
      noise_multiplier: sigma_g.
      expected_size: what the sum is divided by, s R.

    Raises:
      ValueError: C <= 0, sigma < 0, or noise without a finite C.
    """
    check_clip(clip_norm, noise_multiplier)

    def mean(key: Key, params: Params, batch: Example, mask: jax.Array) -> Params:
        norms, weighted = gradients(params, batch)
        bound = _median(norms, mask) if clip_norm == "median" else clip_norm
        usable = mask & jnp.isfinite(norms) if clip_norm != math.inf else mask
        total = weighted(jnp.where(usable, jnp.minimum(1.0, bound / norms), 0.0))
        if noise_multiplier > 0:
            noise = 2 * bound * noise_multiplier * jax.random.normal(key, (dimension(params),))
            total = jax.tree.map(jnp.add, total, unflatten(noise, params))
        return jax.tree.map(lambda leaf: leaf / expected_size, total)

    return mean


def _median(norms: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.nanmedian(jnp.where(mask, norms, jnp.nan))


def check_clip(clip_norm: ClipNorm, noise_multiplier: float) -> None:
    """Raises ValueError naming the field, its value and the remedy."""
    if clip_norm != "median" and not (isinstance(clip_norm, int | float) and clip_norm > 0):
        raise ValueError(
            f"clip_norm: {clip_norm!r} is neither positive nor 'median'; use inf for no clipping"
        )
    if not 0 <= noise_multiplier < math.inf:
        raise ValueError(
            f"noise_multiplier: {noise_multiplier} is not in [0, inf); use 0 for no noise"
        )
    if noise_multiplier > 0 and clip_norm == math.inf:
        raise ValueError("clip_norm: inf leaves the noise unbounded; give a finite clip_norm")
