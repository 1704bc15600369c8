"""Shapes of Gaussian noise on a sum of bounded contributions, and how much of a contribution each leaves to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.clipping import Clipping
from fedpriv.codecs import dimension, unflatten
from fedpriv.types import Key, PyTree
from fedpriv.wavelet import Form, inverse_haar, padded_length, weights


class Noise(NamedTuple):
    """A Gaussian distribution of scale 1.

    Attributes:
      draw: (key, like) -> noise in the shapes of `like`.
      reach: clipping -> the whitened sensitivity sup ||Sigma^-1/2 u|| over its set for C = 1.
    """

    draw: Callable[[Key, PyTree], PyTree]
    reach: Callable[[Clipping], float]


def isotropic() -> Noise:
    """N(0, 1) on every coordinate: the Gaussian mechanism."""

    def draw(key: Key, like: PyTree) -> PyTree:
        return unflatten(jax.random.normal(key, (dimension(like),)), like)

    return Noise(draw, lambda clipping: clipping.length)


def haar_noise(d: int, form: Form = "averaging") -> Noise:
    """Noise on the Haar coefficients of all d coordinates together, seen after the inverse transform.

    In averaging form the paper's N(0, 1 / W^2) (Ranaweera et al., Algorithms 1 and 2), which leaves every coordinate a
    variance of 1/3 + 2 / (3 m^2); in orthonormal form N(0, 1), which leaves N(0, 1): `isotropic` in distribution.
    The transform is linear, so that only the noise needs an inverse, whatever it is added to.

    Args:
      d: number of coordinates, padded to m = 2^L.

    Raises:
      ValueError: an unknown form; when it is used, another number of coordinates.
    """
    m = padded_length(d)
    scale = 1 / jnp.asarray(weights(m), jnp.float32) if form == "averaging" else jnp.ones(m)
    inverse_haar(jnp.zeros(m), d, form)  # raises

    def draw(key: Key, like: PyTree) -> PyTree:
        if dimension(like) != d:
            raise ValueError(f"d: {d}, but the sum has {dimension(like)} coordinates; give that")
        return unflatten(inverse_haar(scale * jax.random.normal(key, (m,)), d, form), like)

    def reach(clipping: Clipping) -> float:
        return clipping.weighted_length if form == "averaging" else clipping.length

    return Noise(draw, reach)
