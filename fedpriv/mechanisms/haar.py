"""The Haar wavelet transform of a vector, in averaging and in orthonormal form.

K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced Approach", Section 4.3: the
averaging form and its weights.

A vector is padded with zeros to m = 2^L entries; L times, neighbours (a, b) are replaced by their mean (a + b) / 2 and
detail (a - b) / 2. Coefficients are ordered from coarse to fine: the overall mean, then the details of level L (one),
L - 1 (two), ..., 1 (m / 2, the finest), each level from left to right.

[4, 8, 1, 9, 8, 4, 5, 3] becomes 5.25, 0.25, 0.5, 1, -2, -4, 2, 1.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.arguments import Count, checked
from fedpriv.core.array_arguments import check_numbers
from fedpriv.core.complaints import require
from fedpriv.core.materialized import materialized

Form: TypeAlias = Literal["averaging", "orthonormal"]
"""The paper's, or with (a + b) / sqrt(2) and (a - b) / sqrt(2), which keeps norms and inner products."""

_CHUNK = 2**15  # numbers: what a CPU's nearest caches hold
_FINE = 5  # levels of a chunk; those that are left, of 32 times fewer numbers, are of all chunks at once
_FACTORS = {"averaging": 0.5, "orthonormal": 0.5**0.5}


def padded_length(length: Count) -> int:
    """m, the least power of two that is not below `length`.

    Raises:
      ValueError: length below 1.
    """
    length = checked("length", length, Count)
    return 1 << (length - 1).bit_length()


def haar(x: jax.Array, form: Form = "averaging") -> jax.Array:
    """f32[..., n] -> coefficients f32[..., m], at linear cost.

    Raises:
      ValueError: an unknown form, or no entry.
    """
    check_numbers("x", x)
    form = checked("form", form, Form)
    factor, padded = _FACTORS[form], _padded(x)
    vectors = padded.reshape(-1, padded.shape[-1])
    return _coefficients(vectors, factor=factor).reshape(padded.shape)


def haar_norm(x: jax.Array) -> jax.Array:
    """The norm over all coefficients in averaging form, f32[..., n] -> f32[...], without storing them.

    Every detail is computed before it is squared. As differences of sums of squares, the details of a nearly constant
    vector would be lost in rounding.

    Raises:
      ValueError: no entry.
    """
    check_numbers("x", x)
    mean, details = _levels(_padded(x), _FACTORS["averaging"])
    squares = (jnp.vecdot(each, each, precision=lax.Precision.HIGHEST) for each in details)
    return jnp.sqrt(sum(squares, mean[..., 0] ** 2))


@materialized
def _coefficients(x: jax.Array, *, factor: float) -> jax.Array:
    """f32[vectors, m] -> f32[vectors, m]; of many numbers on a CPU, the fine levels chunk by chunk."""
    if x.size <= _CHUNK or x.shape[-1] == 1 or jax.default_backend() != "cpu":
        mean, details = _levels(x, factor)
        return jnp.concatenate([mean, *reversed(details)], axis=-1)
    coefficients, means = _fine_levels(x, factor)
    return lax.dynamic_update_slice(coefficients, _coefficients(means, factor=factor), (0, 0))


def _fine_levels(x: jax.Array, factor: float) -> tuple[jax.Array, jax.Array]:
    """f32[vectors, m] -> the same with the details of the fine levels in their places, and the means that are left.

    A chunk is a part of a vector, or several vectors. It leaves the caches once, as details that nobody reads again.
    """
    vectors, m = x.shape
    length = min(m, _CHUNK)
    rows, chunks = min(vectors, _CHUNK // length), m // length
    levels = min(_FINE, length.bit_length() - 1)

    def transform(
        i: jax.Array, carried: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        coefficients, means = carried
        # The last rows may be beyond the end: JAX moves them back.
        row, chunk = i // chunks * rows, i % chunks
        part = lax.dynamic_slice(x, (row, chunk * length), (rows, length))
        for level in range(1, levels + 1):
            details = factor * (part[..., ::2] - part[..., 1::2])
            at = (m >> level) + chunk * (length >> level)
            coefficients = lax.dynamic_update_slice(coefficients, details, (row, at))
            part = _means(part, factor=factor)
        means = lax.dynamic_update_slice(means, part, (row, chunk * (length >> levels)))
        return coefficients, means

    dtype = jnp.result_type(x, factor)
    shapes = (vectors, m), (vectors, m >> levels)
    results = tuple(jnp.zeros_like(x, dtype, shape=shape) for shape in shapes)
    return lax.fori_loop(0, -(-vectors // rows) * chunks, transform, results)


@materialized
def _means(x: jax.Array, *, factor: float) -> jax.Array:
    return factor * (x[..., ::2] + x[..., 1::2])


def _levels(x: jax.Array, factor: float) -> tuple[jax.Array, list[jax.Array]]:
    """The mean f32[..., 1], and the details of each level, from fine to coarse."""
    details = []
    while x.shape[-1] > 1:
        x, finer = _level(x, factor=factor)
        details.append(finer)
    return x, details


@materialized
def _level(x: jax.Array, *, factor: float) -> tuple[jax.Array, jax.Array]:
    left, right = x[..., ::2], x[..., 1::2]
    return factor * (left + right), factor * (left - right)


def inverse_haar(coefficients: jax.Array, length: Count, form: Form = "averaging") -> jax.Array:
    """Coefficients f32[..., m] -> the first `length` entries, f32[..., length].

    Raises:
      ValueError: an unknown form, or coefficients of a vector of another length.
    """
    check_numbers("coefficients", coefficients)
    length = checked("length", length, Count)
    form = checked("form", form, Form)
    factor = 0.5 / _FACTORS[form]  # 1 and 1 / sqrt(2)
    m = coefficients.shape[-1]
    if padded_length(length) != m:
        raise ValueError(f"coefficients: {m} do not belong to a vector of length {length}")
    means, at = coefficients[..., :1], 1
    while at < m:
        details = coefficients[..., at : 2 * at]
        pairs = jnp.stack([means + details, means - details], axis=-1)
        means = factor * pairs.reshape(*means.shape[:-1], -1)
        at *= 2
    return means[..., :length]


def weights(m: Count) -> np.ndarray:
    """The paper's W, f64[m]: m for the overall mean, 2^l for the details of level l.

    Raises:
      ValueError: m is not a power of two.
    """
    m = checked("m", m, Count)
    _require_power(m)
    levels = range(m.bit_length() - 1, 0, -1)
    details = [np.full(m >> level, 2.0**level) for level in levels]
    return np.concatenate([[float(m)], *details])


def variance_left(variances: np.ndarray, form: Form = "averaging") -> np.ndarray:
    """Variance of each entry after the inverse, f64[m], of independent noise of `variances` f64[m] on the coefficients.

    An entry is the signed sum of the mean and one detail per level. In orthonormal form each is multiplied by the
    square root of its share: 1 / m for the mean, 2^-l for level l. With the paper's variances (s / W)^2 it is s^2 (1/3
    + 2 / (3 m^2)) for every entry, next to s^2 / 3 whatever the length.

    Raises:
      ValueError: an unknown form, or a length that is not a power of two.
    """
    form = checked("form", form, Form)
    check_numbers("variances", variances, 1)
    m = len(variances)
    _require_power(m)
    left, at = np.full(m, float(variances[0])), 1
    orthonormal = form == "orthonormal"
    left = left / m if orthonormal else left
    while at < m:
        share = at / m if orthonormal else 1.0
        left = left + share * np.repeat(np.asarray(variances[at : 2 * at], float), m // at)
        at *= 2
    return left


def _padded(x: jax.Array) -> jax.Array:
    require(x.ndim > 0, "x", x, "give a vector")
    spare = padded_length(x.shape[-1]) - x.shape[-1]
    # Not `jnp.pad`: XLA joins concatenations, so that a contribution is copied once on its way here.
    return jnp.concatenate([x, jnp.zeros_like(x, shape=(*x.shape[:-1], spare))], axis=-1)


def _require_power(m: int) -> None:
    require(m > 0 and not m & (m - 1), "m", m, "give a power of two")
