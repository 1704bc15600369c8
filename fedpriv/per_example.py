"""Gradients of single records: their norms, and weighted sums of them, which is all that clipping needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.clipping import over_tensors, separately
from fedpriv.mechanisms import Mechanism, gaussian, mechanism
from fedpriv.noise import isotropic
from fedpriv.types import Example, Key, LossFn, Params, PyTree


class PerExample(NamedTuple):
    """The gradients g_1..g_B of a batch, never needed one by one.

    Attributes:
      norms: a tree as the parameters', with the l2 norms f32[B] of the records' gradients in each tensor.
      weighted: a tree of weights f32[B] -> sum_j w_j g_j, in each tensor with its own weights; a gradient of weight 0
        does not count, even if it is not finite.
      each: () -> the gradients themselves, a tree with leaves [B, ...], for clipping that needs more than norms.
    """

    norms: PyTree
    weighted: Callable[[PyTree], Params]
    each: Callable[[], PyTree]


Gradients: TypeAlias = Callable[[Params, Example], PerExample]
"""(params, batch with leading axis B) -> PerExample."""

EXACT = lax.Precision.HIGHEST
"""Of products that a bound on a record rests on: elsewhere than on CPU the default rounds to ten bits or fewer."""


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
        return PerExample(norms, weighted, lambda: each)

    return gradients


def counted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """values [B, ...] with zeros where the weight is 0: 0 times NaN would be NaN."""
    return jnp.where(weights.reshape(-1, *[1] * (values.ndim - 1)) != 0, values, 0.0)


class MedianClipping(NamedTuple):
    """Gaussian noise on gradients clipped at the median of their own batch's norms (Noble et al., Section 5).

    A heuristic that looks at the data without privacy: nothing is certified.

    Attributes:
      noise_multiplier: sigma, relative to the median.
      tensors: above 1, the number of the model's tensors, each clipped to its own median and perturbed with sigma by
        itself.
    """

    noise_multiplier: float
    tensors: int = 1

    def in_round(self, t: jax.Array | int) -> MedianClipping:
        return self

    def for_batch(self, norms: PyTree, mask: jax.Array) -> Mechanism:
        if self.tensors == 1:
            median = _median(over_tensors(norms), mask)
            return gaussian(1.0, 1.0).at(median, self.noise_multiplier)  # type: ignore[misc]
        medians = jax.tree.map(lambda n: _median(n, mask), norms)
        each = mechanism(separately(self.tensors), isotropic(), clip_norm=1.0, noise_multiplier=1.0)
        return each.at(medians, self.noise_multiplier)  # type: ignore[misc]

    def stages(self, rounds: int) -> tuple[tuple[int, float], ...]:
        return ((rounds, 0.0),)

    @property
    def reason(self) -> str:
        if self.noise_multiplier == 0:
            return "no noise is added"
        return "the clip norm is the median of private gradients' norms"

    @property
    def noise(self) -> str:
        return "gaussian"


def private_mean(
    gradients: Gradients, mechanism: Mechanism | MedianClipping, expected_size: float
) -> Callable[[Key, Params, Example, jax.Array], Params]:
    """(key, params, batch, mask) -> the mean of the batch's gradients, each clipped, their sum perturbed.

    Formal guarantees: those of the mechanism, per record; a record that `mask` leaves out does not count. With
    `MedianClipping`, none.

    Args:
      expected_size: what the sum is divided by, whatever the number of records: the lot size L, or s R.
    """

    def mean(key: Key, params: Params, batch: Example, mask: jax.Array) -> Params:
        of_batch = gradients(params, batch)
        now = mechanism.for_batch(of_batch.norms, mask)
        if now.scales is None:
            total = _sum_of_bounded(now, of_batch.each(), mask)
        else:
            scales = now.scales(of_batch.norms)
            total = of_batch.weighted(jax.tree.map(lambda s: jnp.where(mask, s, 0.0), scales))
        return jax.tree.map(lambda leaf: leaf / expected_size, now.perturb(key, total))

    return mean


def _sum_of_bounded(mechanism: Mechanism, each: PyTree, mask: jax.Array) -> Params:
    bounded, _ = jax.vmap(mechanism.clip)(each)
    weights = mask.astype(jnp.float32)
    return jax.tree.map(
        lambda g: jnp.tensordot(weights, counted(g, weights), 1, precision=EXACT), bounded
    )


def _median(norms: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.nan_to_num(jnp.nanmedian(jnp.where(mask, norms, jnp.nan)))  # 0 without a record
