"""Mechanisms: bound one contribution, perturb a sum of bounded contributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.codecs import dimension, unflatten
from fedpriv.types import Key, PyTree


class Mechanism(NamedTuple):
    """A mechanism does not know its privacy unit: the unit is the axis it is summed over.

    Attributes:
      clip: contribution -> (bounded contribution, its norm before).
      perturb: (key, sum) -> noisy sum.
      multiplier: noise standard deviation of the sum over the most one contribution can move it; 0 where nothing is
        hidden.
      reason: why nothing is hidden, where the multiplier is 0.
      noise: "gaussian" (sensitivity in the l2 norm) or "laplace" (l1).
    """

    clip: Callable[[PyTree], tuple[PyTree, jax.Array]]
    perturb: Callable[[Key, PyTree], PyTree]
    multiplier: float
    reason: str = ""
    noise: str = "gaussian"


def gaussian(clip_norm: float, noise_multiplier: float) -> Mechanism:
    """Clips to l2 norm `clip_norm` (C) over all coordinates, adds N(0, (C sigma)^2) to each coordinate of the sum.

    `clip_norm = inf` with `noise_multiplier = 0` is no mechanism at all.

    Formal guarantees:
      In exact arithmetic a clipped contribution has norm at most C, so that removing one moves the sum by at most C:
      the sum is a Gaussian mechanism with multiplier sigma per contribution removed or added (and sigma / 2 per
      contribution replaced). A contribution whose norm is NaN or infinite counts as 0 and so keeps the bound.
      Floating-point rounding of the norm (relative 1e-6) is not accounted for.

    Raises:
      ValueError: C <= 0, sigma < 0, or noise without a finite clip norm.
    """
    _check(clip_norm, noise_multiplier)
    return Mechanism(
        _clip(clip_norm, optax.tree.norm),
        _perturb(clip_norm * noise_multiplier, jax.random.normal),
        float(noise_multiplier),
        "" if noise_multiplier > 0 else "no noise is added",
    )


def laplace(clip_norm: float, noise_multiplier: float) -> Mechanism:
    """Clips to l1 norm `clip_norm` (C) over all coordinates, adds Laplace(0, C x multiplier) to each of the sum's.

    Formal guarantees:
      As `gaussian`, with the l1 norm: the sum is a Laplace mechanism of scale over sensitivity `noise_multiplier` per
      contribution removed or added, that is (1 / noise_multiplier, 0)-differentially private (Dwork, McSherry, Nissim
      and Smith 2006).

    Raises:
      ValueError: C <= 0, a negative multiplier, or noise without a finite clip norm.
    """
    _check(clip_norm, noise_multiplier)

    def norm(update: PyTree) -> jax.Array:
        return optax.tree.norm(update, ord=1)

    return Mechanism(
        _clip(clip_norm, norm),
        _perturb(clip_norm * noise_multiplier, jax.random.laplace),
        float(noise_multiplier),
        "" if noise_multiplier > 0 else "no noise is added",
        "laplace",
    )


def _check(clip_norm: float, noise_multiplier: float) -> None:
    if not clip_norm > 0:
        raise ValueError(f"clip_norm: {clip_norm} is not positive; use inf for no clipping")
    if not 0 <= noise_multiplier < math.inf:
        raise ValueError(
            f"noise_multiplier: {noise_multiplier} is not in [0, inf); use 0 for no noise"
        )
    if noise_multiplier > 0 and clip_norm == math.inf:
        raise ValueError("clip_norm: inf leaves the noise unbounded; give a finite clip_norm")


def _clip(
    clip_norm: float, norm_of: Callable[[PyTree], jax.Array]
) -> Callable[[PyTree], tuple[PyTree, jax.Array]]:
    def clip(update: PyTree) -> tuple[PyTree, jax.Array]:
        norm = norm_of(update)
        if clip_norm == math.inf:
            return update, norm
        scale = jnp.minimum(1.0, clip_norm / norm)
        usable = jnp.isfinite(norm)
        return jax.tree.map(lambda leaf: jnp.where(usable, leaf * scale, 0.0), update), norm

    return clip


def _perturb(
    scale: float, draw: Callable[[Key, tuple[int, ...]], jax.Array]
) -> Callable[[Key, PyTree], PyTree]:
    def perturb(key: Key, total: PyTree) -> PyTree:
        if not scale > 0:  # NaN for no clipping and no noise
            return total
        noise = scale * draw(key, (dimension(total),))
        return jax.tree.map(jnp.add, total, unflatten(noise, total))

    return perturb
