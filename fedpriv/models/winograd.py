"""Convolution with few multiplications, after Winograd.

A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, arXiv:1509.09308, section 4. A tile
of 8 x 8 pixels gives 4 x 4 results of a 5 x 5 kernel by 64 products of numbers made of it and of the kernel, where the
sum itself takes 400. With channels these are 64 products of matrices: [tiles, channels in] x [channels in, out]. A NaN
or an infinity spoils its tile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.materialized import materialized

TILE = 8
_POINTS = (0, 1, -1, 2, -2, 0.5, -0.5)  # and infinity
_CHANNELS = 16  # the fewest
_PAIRS = 512  # of a channel in and one out, at least
_FORWARD = 512  # multiplications of the sum for each number of a pixel, in or out, at least
_NUMBERS = 2**21  # transformed at a time: so many stay in the caches
_LARGEST = 8 * _NUMBERS  # of one image, which is not divided
_PRODUCTS = (((2,), (1,)), ((0,), (0,)))  # [64, tiles, i] x [64, i, o] -> [64, tiles, o]
_PRODUCTS_OVER_TILES = (((1,), (1,)), ((0,), (0,)))  # [64, tiles, i] x [64, tiles, o] -> [64, i, o]


class _Array(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...


def forward_pays(x: _Array, w: _Array) -> bool:
    """Whether Winograd's `forward` is faster than the sum itself on every CPU where both were measured.

    Tiles are transformed for each number of a pixel, in or out; what this spares grows with its multiplications. The
    sum is fast forward, so that these have to be many more than in `weight_cotangent`.

    Args:
      x: the images [n, h, width, ci].
      w: the kernel [kh, kw, ci, co].
    """
    c_in, c_out = w.shape[2:]
    return weight_cotangent_pays(x, w) and math.prod(w.shape) >= _FORWARD * (c_in + c_out)


def weight_cotangent_pays(x: _Array, w: _Array) -> bool:
    """Whether Winograd's `weight_cotangent` is faster than the sum itself on every CPU where both were measured.

    Args:
      x: the images [n, h, width, ci].
      w: the kernel's cotangent [kh, kw, ci, co].
    """
    (n, h, width, channels), (*kernel, c_in, c_out) = x.shape, w.shape
    exact = x.dtype == w.dtype and x.dtype in (jnp.float32, jnp.float64)
    tiled = min(kernel) > 1 and max(kernel) < TILE and channels == c_in
    if not (exact and tiled and jax.default_backend() == "cpu"):
        return False
    many = min(c_in, c_out) >= _CHANNELS and c_in * c_out >= _PAIRS
    # Multiplications for a channel in and one out, with those that transform the kernel.
    pixels = math.prod(kernel)
    ours = TILE**2 * (pixels + n * _tiles(x.shape, kernel))
    small = TILE**2 * _tiles(x.shape, kernel) * (c_in + c_out) <= _LARGEST
    return many and small and 2 * ours <= n * h * width * pixels


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
    """By Winograd: f32[n, h, width, ci] and f32[kh, kw, ci, co] -> f32[n, h, width, co], as `conv_same`."""
    shape, kernel = w.shape[:2], _kernel(w)

    def convolved(x: jax.Array) -> jax.Array:
        products = lax.dot_general(_image(x, shape), kernel, _PRODUCTS)
        out = _results(products, x.shape[:3], shape)
        # A window of zeros gives a zero, not a rounding error: the derivatives of ReLU and of maxima hang on that.
        seen = (x != 0).any(3, keepdims=True)
        seen = lax.reduce_window(seen, False, lax.bitwise_or, (1, *shape, 1), (1,) * 4, "SAME")
        return jnp.where(seen, out, 0)

    out = lax.map(convolved, _chunked(x, shape, w.shape[3]))
    return out.reshape(-1, *out.shape[2:])[: x.shape[0]]


def weight_cotangent(x: jax.Array, dy: jax.Array, kernel: Sequence[int]) -> jax.Array:
    """By Winograd: f32[n, h, width, ci] and f32[n, h, width, co] -> f32[kh, kw, ci, co]."""
    c_in, c_out = x.shape[3], dy.shape[3]

    def add(products: jax.Array, chunk: Sequence[jax.Array]) -> tuple[jax.Array, None]:
        images, cotangents = _image(chunk[0], kernel), _cotangent(chunk[1], kernel)
        return products + lax.dot_general(images, cotangents, _PRODUCTS_OVER_TILES), None

    chunks = [_chunked(x, kernel, c_out), _chunked(dy, kernel, c_in)]
    products, _ = lax.scan(add, jnp.zeros((TILE**2, c_in, c_out), x.dtype), chunks)
    dw = jnp.asarray(_pairs(1, kernel).T, x.dtype) @ products.reshape(TILE**2, -1)
    return dw.reshape(kernel[1], kernel[0], c_in, c_out).swapaxes(0, 1)


def _step(kernel: int) -> int:
    """Results of a tile along one axis."""
    return TILE + 1 - kernel


def _tiles(shape: Sequence[int], kernel: Sequence[int]) -> int:
    """Of an image of `shape` [n, h, w, ...]; the last ones may reach beyond it."""
    return math.prod(-(-size // _step(k)) for size, k in zip(shape[1:3], kernel, strict=True))


def _pairs(which: int, kernel: Sequence[int]) -> np.ndarray:
    """A or G of both axes, [64, .]: columns first, then rows."""
    return np.kron(matrices(kernel[1])[which], matrices(kernel[0])[which])


def _chunked(x: jax.Array, kernel: Sequence[int], other_channels: int) -> jax.Array:
    """f32[n, ...] -> f32[chunks, images, ...], filled up with zeros."""
    n = x.shape[0]
    numbers = TILE**2 * _tiles(x.shape, kernel) * (x.shape[3] + other_channels)
    chunks = -(-n // max(1, _NUMBERS // numbers))
    images = -(-n // chunks)
    filled = jnp.pad(x, [(0, chunks * images - n), *[(0, 0)] * 3])
    return filled.reshape(chunks, images, *x.shape[1:])


def _kernel(w: jax.Array) -> jax.Array:
    """f32[kh, kw, ci, co] -> f32[64, ci, co]."""
    flat = w.swapaxes(0, 1).reshape(-1, w.shape[2] * w.shape[3])
    out = jnp.asarray(_pairs(1, w.shape[:2]), w.dtype) @ flat
    return out.reshape(TILE**2, *w.shape[2:])


def _image(x: jax.Array, kernel: Sequence[int]) -> jax.Array:
    """f32[n, h, w, c] -> f32[64, tiles, c]; tiles overlap by one less than the kernel's size."""
    sides = [
        (k // 2, k // 2 + -size % _step(k)) for size, k in zip(x.shape[1:3], kernel, strict=True)
    ]
    return _transformed(jnp.pad(x, [(0, 0), *sides, (0, 0)]), 2, kernel)


def _results(products: jax.Array, shape: Sequence[int], kernel: Sequence[int]) -> jax.Array:
    """f32[64, tiles, c] -> f32[n, h, w, c], of `shape` [n, h, w]."""
    (n, h, width), (rows, columns) = shape, map(_step, kernel)
    out = jnp.asarray(_pairs(0, kernel).T, products.dtype) @ products.reshape(TILE**2, -1)
    down, across = -(-h // rows), -(-width // columns)
    out = out.reshape(columns, rows, n, down, across, products.shape[-1])
    out = out.transpose(2, 3, 1, 4, 0, 5)
    out = out.reshape(n, down * rows, across * columns, products.shape[-1])
    return out[:, :h, :width]


def _cotangent(dy: jax.Array, kernel: Sequence[int]) -> jax.Array:
    """The transpose of `_results`: f32[n, h, w, c] -> f32[64, tiles, c]."""
    sides = [(0, -size % _step(k)) for size, k in zip(dy.shape[1:3], kernel, strict=True)]
    return _transformed(jnp.pad(dy, [(0, 0), *sides, (0, 0)]), 0, kernel)


def _transformed(x: jax.Array, which: int, kernel: Sequence[int]) -> jax.Array:
    """f32[n, h, w, c] -> f32[64, tiles, c]: tiles times A or B, along rows, then along columns."""
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
    return sum((column[:, i] * p[None] for i, p in enumerate(pixels)), start=jnp.zeros((), x.dtype))
