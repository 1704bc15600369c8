"""Gradients of single records: their norms, and weighted sums of them, which is all that clipping needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.codecs import dimension, unflatten
from fedpriv.types import Example, Key, LossFn, Params, PyTree


class PerExample(NamedTuple):
    """The gradients g_1..g_B of a batch, never needed one by one.

    Attributes:
      norms: a tree as the parameters', with the l2 norms f32[B] of the records' gradients in each tensor.
      weighted: a tree of weights f32[B] -> sum_j w_j g_j, in each tensor with its own weights; a gradient of weight 0
        does not count, even if it is not finite.
    """

    norms: PyTree
    weighted: Callable[[PyTree], Params]


Gradients: TypeAlias = Callable[[Params, Example], PerExample]
"""(params, batch with leading axis B) -> PerExample."""

EXACT = lax.Precision.HIGHEST
"""Of products that a bound on a record rests on: elsewhere than on CPU the default rounds to ten bits or fewer."""

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

        def weighted(weights: PyTree) -> Params:
            def total(g: jax.Array, w: jax.Array) -> jax.Array:
                return jnp.tensordot(w, counted(g, w), 1, precision=EXACT)

            return jax.tree.map(total, each, weights)

        norms = jax.tree.map(lambda g: jnp.linalg.norm(g.reshape(g.shape[0], -1), axis=1), each)
        return PerExample(norms, weighted)

    return gradients


def counted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """values [B, ...] with zeros where the weight is 0: 0 times NaN would be NaN."""
    return jnp.where(weights.reshape(-1, *[1] * (values.ndim - 1)) != 0, values, 0.0)


def private_mean(
    gradients: Gradients,
    clip_norm: ClipNorm,
    noise_multiplier: float,
    expected_size: float,
    *,
    per_tensor: bool = False,
) -> Callable[[Key, Params, Example, jax.Array], Params]:
    """(key, params, batch, mask) -> clipped and perturbed mean gradient (DP-SCAFFOLD, section 3.3).

    H~ = (sum_j g_j min(1, C / ||g_j||) + 2 C N(0, sigma^2 I)) / expected_size: the noise is relative to the distance
    2 C of a record that is replaced.

    Formal guarantees:
      For a fixed C, in exact arithmetic: the sum is a Gaussian mechanism of multiplier 2 sigma per record removed or
      added, sigma per record replaced; with `per_tensor`, of these over sqrt(tensors). A record whose gradient has a
      NaN or infinite norm counts as 0. With "median", the median of the batch's own norms, none.

    Args:
      clip_norm: C, or "median" (the paper's heuristic, not private).
      noise_multiplier: sigma_g.
      expected_size: what the sum is divided by, s R.
      per_tensor: clip each tensor to C (or its own median) by itself.

    Raises:
      ValueError: C <= 0, sigma < 0, or noise without a finite C.
    """
    check_clip(clip_norm, noise_multiplier)

    def bound(norms: jax.Array, mask: jax.Array) -> jax.Array | float:
        return _median(norms, mask) if clip_norm == "median" else clip_norm

    def mean(key: Key, params: Params, batch: Example, mask: jax.Array) -> Params:
        norms, weighted = gradients(params, batch)
        whole = _over_tensors(norms)
        usable = mask & jnp.isfinite(whole) if clip_norm != math.inf else mask
        if not per_tensor:
            norms = jax.tree.map(lambda _: whole, norms)
        bounds = jax.tree.map(lambda n: bound(n, mask), norms)
        weights = jax.tree.map(
            lambda n, c: jnp.where(usable, jnp.where(n <= c, 1.0, c / n), 0.0), norms, bounds
        )
        total = weighted(weights)
        if noise_multiplier > 0:
            noise = unflatten(jax.random.normal(key, (dimension(params),)), params)
            total = jax.tree.map(
                lambda t, c, n: t + 2 * c * noise_multiplier * n, total, bounds, noise
            )
        return jax.tree.map(lambda leaf: leaf / expected_size, total)

    return mean


def _over_tensors(norms: PyTree) -> jax.Array:
    """f32[B], the norms of the whole gradients."""
    return jnp.sqrt(sum(n**2 for n in jax.tree.leaves(norms)))


def _median(norms: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.nan_to_num(jnp.nanmedian(jnp.where(mask, norms, jnp.nan)))  # 0 without a record


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
