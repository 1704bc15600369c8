"""Convolution with few multiplications, after Winograd.

A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, arXiv:1509.09308, section 4. A tile
of 8 x 8 pixels gives 4 x 4 results of a 5 x 5 kernel by 64 products of numbers made of it and of the kernel, where the
sum itself takes 400. With channels these are 64 products of matrices: [tiles, channels in] x [channels in, out].
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.materialized import materialized

TILE = 8
_POINTS = (0, 1, -1, 2, -2, 0.5, -0.5)  # and infinity


_CHANNELS = 16  # the fewest
_PAIRS = 512  # of a channel in and one out, at least
_NUMBERS = 2**24  # in the transformed images, at most: what is larger waits for memory


def pays(x: Sequence[int], kernel: Sequence[int], channels_out: int) -> bool:
    """Whether this is faster on CPU than the sum itself, by measurement, for images of shape `x`."""
    n, h, width, channels = x
    tiled = max(kernel) < TILE and min(kernel) > 1
    if not tiled or min(channels, channels_out) < _CHANNELS or channels * channels_out < _PAIRS:
        return False
    tiles = n * -(-h // _step(kernel[0])) * -(-width // _step(kernel[1]))
    numbers = TILE**2 * tiles * (channels + channels_out)
    return numbers <= _NUMBERS and jax.default_backend() == "cpu"


@functools.cache
def matrices(kernel: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A [8, 9 - kernel], G [8, kernel], B [8, 8]: x correlated with w, without padding, is A' ((G w) (B x)).

    Polynomials are multiplied by their values at 8 points; a correlation is the transpose of that.
    """

    def values(coefficients: int) -> np.ndarray:
        finite = np.vander(_POINTS, coefficients, increasing=True)
        return np.vstack([finite, np.eye(coefficients)[-1]])

    b = np.linalg.inv(values(TILE)).T
    scale = np.abs(b).max(1, keepdims=True)  # so that no point outweighs the others in rounding
    return values(TILE + 1 - kernel), values(kernel) * scale, b / scale


def forward(x: jax.Array, w: jax.Array) -> jax.Array:
    """f32[n, h, width, ci] and f32[kh, kw, ci, co] -> f32[n, h, width, co], as `conv_same`."""
    n, h, width, _ = x.shape
    rows, columns = _step(w.shape[0]), _step(w.shape[1])
    products = jnp.einsum("pti,pio->pto", _image(x, w.shape[:2]), _kernel(w))
    out = jnp.asarray(_pairs(0, w.shape[:2]).T, x.dtype) @ products.reshape(TILE**2, -1)
    out = out.reshape(columns, rows, n, -(-h // rows), -(-width // columns), w.shape[3])
    out = out.transpose(2, 3, 1, 4, 0, 5).reshape(n, out.shape[3] * rows, -1, w.shape[3])
    return out[:, :h, :width]


def weight_cotangent(x: jax.Array, dy: jax.Array, kernel: Sequence[int]) -> jax.Array:
    """f32[n, h, width, ci] and f32[n, h, width, co] -> f32[kh, kw, ci, co]."""
    steps = [
        (0, 0),
        *((0, -size % _step(k)) for size, k in zip(dy.shape[1:3], kernel, strict=True)),
    ]
    results = _transformed(jnp.pad(dy, [*steps, (0, 0)]), 0, kernel)
    products = jnp.einsum("pti,pto->pio", _image(x, kernel), results)
    dw = jnp.asarray(_pairs(1, kernel).T, x.dtype) @ products.reshape(TILE**2, -1)
    return dw.reshape(kernel[1], kernel[0], x.shape[3], dy.shape[3]).swapaxes(0, 1)


def _step(kernel: int) -> int:
    """Results of a tile along one axis."""
    return TILE + 1 - kernel


def _pairs(which: int, kernel: Sequence[int]) -> np.ndarray:
    """A or G of both axes, [64, .]: columns first, then rows."""
    return np.kron(matrices(kernel[1])[which], matrices(kernel[0])[which])


def _kernel(w: jax.Array) -> jax.Array:
    """f32[kh, kw, ci, co] -> f32[64, ci, co]."""
    flat = w.swapaxes(0, 1).reshape(-1, w.shape[2] * w.shape[3])
    out = jnp.asarray(_pairs(1, w.shape[:2]), w.dtype) @ flat
    return out.reshape(TILE**2, *w.shape[2:])


def _image(x: jax.Array, kernel: Sequence[int]) -> jax.Array:
    """f32[n, h, w, c] -> f32[64, tiles, c]; tiles overlap by what the kernel is wide."""
    sides = [
        (k // 2, k // 2 + -size % _step(k)) for size, k in zip(x.shape[1:3], kernel, strict=True)
    ]
    return _transformed(jnp.pad(x, [(0, 0), *sides, (0, 0)]), 2, kernel)


def _transformed(x: jax.Array, which: int, kernel: Sequence[int]) -> jax.Array:
    """f32[n, h, w, c] -> f32[64, tiles, c]: tiles times the matrix, along rows, then along columns."""
    for axis, k in ((1, kernel[0]), (3, kernel[1])):
        x = _along(x, matrix=matrices(k)[which], axis=axis, step=_step(k))
    return x.reshape(TILE**2, -1, x.shape[-1])


@materialized
def _along(x: jax.Array, *, matrix: np.ndarray, axis: int, step: int) -> jax.Array:
    """f32[..., size, ...] -> f32[8, ..., tiles, ...]."""
    tiles = (x.shape[axis] - matrix.shape[1]) // step + 1
    last = (tiles - 1) * step + 1
    column = jnp.asarray(matrix, x.dtype).reshape(*matrix.shape, *(1,) * x.ndim)
    pixels = (lax.slice_in_dim(x, i, i + last, step, axis) for i in range(matrix.shape[1]))
    return sum((column[:, i] * p for i, p in enumerate(pixels)), start=jnp.zeros((), x.dtype))
