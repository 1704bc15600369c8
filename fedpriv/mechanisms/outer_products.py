"""Gradients of a batch's records as factors, and what can be computed of them without forming any.

A record's gradient of a dense layer is a product L^T R of its T rows (one, without a sequence), the layer's inputs and
the errors of its outputs: T (i + o) numbers in place of i o. Its norm follows from the rows' products with each other
(I. Goodfellow, arXiv:1510.01799, for T = 1; X. Li et al., arXiv:2110.05679, for sequences), and a weighted sum over the
records is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

EXACT = lax.Precision.HIGHEST
"""Of products that a bound on a record rests on: elsewhere than on CPU the default rounds to ten bits or fewer."""


def rounding(terms: int) -> float:
    """Bound on the relative error of a float32 sum of so many products, each of them rounded too."""
    return (terms + 8) * 2.0**-24


class Stacked(NamedTuple):
    """A tensor's gradients g_b = shaped(left_b^T right_b).

    Attributes:
      left: f32[B, T, i].
      right: f32[B, T, o].
      shaped: f32[n, i, o] -> f32[n, ...], the same entries in another order.
    """

    left: jax.Array
    right: jax.Array
    shaped: Callable[[jax.Array], jax.Array]

    def formed(self) -> jax.Array:
        """f32[B, ...]."""
        return self.shaped(jnp.einsum("bti,bto->bio", self.left, self.right, precision=EXACT))

    def norms(self) -> jax.Array:
        """f32[B]; of sequences, where the sum may cancel, never too small."""
        # Squares of small numbers would be 0, though the other factor may be large; so would one over large numbers.
        units = [jnp.clip(jnp.max(jnp.abs(x), 2), 1e-30, 1e30) for x in self[:2]]
        rows = [x / unit[..., None] for x, unit in zip(self[:2], units, strict=True)]
        unit = units[0] * units[1]
        one = unit * jnp.linalg.norm(rows[0], axis=2) * jnp.linalg.norm(rows[1], axis=2)
        if self.left.shape[1] == 1:
            return one[:, 0]
        largest = jnp.clip(jnp.max(one, 1, keepdims=True), 1e-30, 1e30)
        rows[0] *= (unit / largest)[..., None]
        grams = [jnp.einsum("bti,bsi->bts", x, x, precision=EXACT) for x in rows]
        _, t, i = self.left.shape
        error = rounding(i + self.right.shape[2] + t**2) * jnp.sum(one / largest, 1) ** 2
        squared = jnp.sum(grams[0] * grams[1], (1, 2)) + error
        return largest[:, 0] * jnp.sqrt(jnp.maximum(squared, 0.0))

    def weighted(self, weights: jax.Array) -> jax.Array:
        """f32[...]: sum_b weights_b g_b, weights f32[B].

        A gradient of weight 0 does not count, even if it is not finite.
        """
        left, right = counted(self.left, weights), counted(self.right, weights)
        right = weights[:, None, None] * right
        total = jnp.einsum("bti,bto->io", left, right, precision=EXACT)
        return self.shaped(total[None])[0]


def counted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """values [B, ...] with zeros where the weight is 0: 0 times NaN would be NaN."""
    return jnp.where(weights.reshape(-1, *[1] * (values.ndim - 1)) != 0, values, 0.0)
