"""The randomised Hadamard rotation: spreads a vector evenly over its coordinates, whatever it was.

N. Ailon, B. Chazelle, "The Fast Johnson-Lindenstrauss Transform and Approximate Nearest Neighbors", SIAM J. Comput.
2009; before rounding: A. T. Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.types import Key

_MOST_PADDING = 1 / 8  # of d
_PRODUCT = (
    64  # rows of the largest matrix that is multiplied with; sums and differences do the rest
)


def block_of(dimension: int) -> int:
    """The length of the blocks that are rotated each by itself: the largest power of two that adds few zeros to d."""
    block = 1
    while block < dimension and _padding(dimension, 2 * block) <= _MOST_PADDING * dimension:
        block *= 2
    return block


def _padding(dimension: int, block: int) -> int:
    return -dimension % block


def padded(dimension: int) -> int:
    """How many coordinates are rotated of d: d and the zeros that fill the last block."""
    return dimension + _padding(dimension, block_of(dimension))


def rotate(key: Key, vector: jax.Array) -> jax.Array:
    """f32[d] -> f32[padded(d)], of the same l2 norm; the same key gives the same rotation."""
    size = padded(vector.size)
    filled = jnp.pad(vector, (0, size - vector.size))
    return _hadamard(filled * _signs(key, size), block_of(vector.size))


def unrotate(key: Key, rotated: jax.Array, dimension: int) -> jax.Array:
    """f32[padded(d)] -> f32[d]: undoes `rotate`."""
    whole = _hadamard(rotated, block_of(dimension)) * _signs(key, rotated.size)
    return whole[:dimension]


def _signs(key: Key, size: int) -> jax.Array:
    again = jax.random.clone(key)  # all draw the same signs, which is no mistake
    words = jax.random.bits(again, (-(-size // 32),), jnp.uint32)
    each = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None]) & 1
    return 1.0 - 2.0 * each.reshape(-1)[:size].astype(jnp.float32)


def _hadamard(vector: jax.Array, block: int) -> jax.Array:
    """Each block times the symmetric Hadamard matrix over the root of its length.

    That is a Kronecker product: of a matrix, by which stretches of neighbours are multiplied, and as many of order 4 as
    it takes, each by sums and differences in one pass.
    """
    stretch = block
    while stretch > _PRODUCT:
        stretch //= 4
    matrix = jnp.asarray(_matrix(stretch) / math.sqrt(block), vector.dtype)
    rows = vector.reshape(-1, stretch)
    vector = jnp.matmul(rows, matrix, precision=jax.lax.Precision.HIGHEST).reshape(-1)
    while stretch < block:
        fours = vector.reshape(-1, 4, stretch)
        a, b, c, d = (fours[:, i] for i in range(4))
        p, q, r, s = a + b, a - b, c + d, c - d
        vector = jnp.stack([p + r, q + s, p - r, q - s], axis=1).reshape(-1)
        stretch *= 4
    return vector


def _matrix(order: int) -> np.ndarray:
    from scipy.linalg import hadamard

    return hadamard(order)
