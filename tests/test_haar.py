"""The Haar transform and its norm against the matrix, its inverse, the paper's example.

The noise that it leaves is measured in `privacy/test_declared_noise.py`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from haar import haar as matrix_of

from fedpriv.mechanisms.haar import (
    haar,
    haar_norm,
    inverse_haar,
    padded_length,
    variance_left,
    weights,
)

pytestmark = pytest.mark.usefixtures("quick_to_compile")
FORMS = ["averaging", "orthonormal"]


def matrix(m, form):
    """Rows scaled to norm 1 in the orthonormal form."""
    averaging = matrix_of(m)[0]
    if form == "averaging":
        return averaging
    return averaging / np.linalg.norm(averaging, axis=1, keepdims=True)


def test_the_worked_example_of_the_paper():
    found = jax.jit(haar)(jnp.array([4.0, 8, 1, 9, 8, 4, 5, 3]))
    assert found.tolist() == [5.25, 0.25, 0.5, 1, -2, -4, 2, 1]
    assert jax.jit(inverse_haar, static_argnums=1)(found, 8).tolist() == [4, 8, 1, 9, 8, 4, 5, 3]
    assert weights(8).tolist() == [8, 8, 4, 4, 2, 2, 2, 2]


@pytest.mark.parametrize("form", FORMS)
@tiers.every("m", [32, 1, 2, 4])
def test_it_is_the_matrix(m, form):
    x = np.random.default_rng(m).normal(size=(3, m)).astype(np.float32)
    np.testing.assert_allclose(
        jax.jit(lambda x: haar(x, form))(x), x @ matrix(m, form).T, atol=2e-6
    )
    np.testing.assert_array_equal(weights(m), matrix_of(m)[1])


@pytest.mark.parametrize("form", FORMS)
@tiers.every(
    "shape", [(3, 2**15), (2**21,), (70_000, 1), (70_000, 2), (3001, 17), (5, 3, 2**12 - 1)]
)
def test_many_numbers_are_transformed_as_each_vector_alone(shape, form):
    """In chunks: to the bit; by itself, under `vmap`, and backwards."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    m = padded_length(shape[-1])
    left = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, m - shape[-1])])
    details, factor = [], np.float32({"averaging": 0.5, "orthonormal": 0.5**0.5}[form])
    while left.shape[-1] > 1:
        even, odd = left[..., ::2], left[..., 1::2]
        details.append(factor * (even - odd))
        left = factor * (even + odd)
    expected = np.concatenate([left, *reversed(details)], axis=-1)
    of = partial(haar, form=form)
    np.testing.assert_array_equal(jax.jit(of)(x), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(of))(np.stack([x, x]))[1], expected)
    (back,) = jax.jit(lambda x, c: jax.vjp(of, x)[1](c))(x, expected)
    np.testing.assert_allclose(np.vdot(back, x), np.vdot(expected, expected), rtol=1e-4)


@pytest.mark.parametrize("kind", [np.int32, jnp.bfloat16, np.float32])
def test_many_numbers_have_the_type_of_few(kind):
    few, many = (haar(jnp.arange(n).astype(kind)) for n in (4, 2**16))
    assert many.dtype == few.dtype == (0.5 * jnp.ones(1, kind)).dtype


def test_many_numbers_on_several_devices():
    """Inside a map over them that checks which values are the same on all."""
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("d",))
    x = np.random.default_rng(0).normal(size=(4, 2**15)).astype(np.float32)
    each = jax.shard_map(haar, mesh=mesh, in_specs=jax.P("d"), out_specs=jax.P("d"))
    np.testing.assert_array_equal(jax.jit(each)(x), jax.jit(haar)(x))


@pytest.mark.parametrize("form", FORMS)
def test_the_inverse_is_exact_whatever_the_padding(form):
    """To 1e-6 of the largest entry; with two leading axes. Two programs in all."""
    rng, lengths = np.random.default_rng(0), [*range(1, 10), 16, 17, 33]
    vectors = [rng.normal(size=(2, 3, length)).astype(np.float32) for length in lengths]
    there = jax.jit(lambda xs: [haar(x, form) for x in xs])(vectors)
    assert [c.shape for c in there] == [(2, 3, padded_length(length)) for length in lengths]
    back = jax.jit(lambda cs: [inverse_haar(c, n, form) for c, n in zip(cs, lengths, strict=True)])(
        there
    )
    for x, found in zip(vectors, back, strict=True):
        np.testing.assert_allclose(found, x, atol=1e-6 * np.abs(x).max())


@tiers.every("length", [17, 1, 2, 3, 8, 16, 100, 1024])
def test_haar_norm_is_that_of_the_matrix(length):
    """With two leading axes, by itself and under `vmap`."""
    x = np.random.default_rng(length).normal(size=(2, 3, length)).astype(np.float32)
    m = padded_length(length)
    padded = np.pad(x, [(0, 0), (0, 0), (0, m - length)])
    expected = np.linalg.norm(padded @ matrix(m, "averaging").T, axis=-1)
    both = jax.jit(lambda x: (haar_norm(x), jax.vmap(jax.vmap(haar_norm))(x)))
    for found in both(x):
        np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_haar_norm_of_a_constant_is_the_constant():
    """As the clip bound needs it: the norm of the entries is 181 times as large."""
    np.testing.assert_allclose(jax.jit(haar_norm)(jnp.full(2**15, 0.1)), 0.1, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_haar_norm_of_what_is_not_finite_is_not_finite(bad):
    assert not np.isfinite(jax.jit(haar_norm)(jnp.ones(50).at[20].set(bad)))


@pytest.mark.parametrize("form", FORMS)
def test_variance_left_is_that_of_the_matrix(form):
    variances = np.random.default_rng(0).random(16) + 0.1
    inverse = np.linalg.inv(matrix(16, form))
    np.testing.assert_allclose(variance_left(variances, form), inverse**2 @ variances)


@tiers.every("m", [8, 1, 2, 1024])
def test_the_paper_s_noise_leaves_a_third(m):
    np.testing.assert_allclose(variance_left(weights(m) ** -2.0), 1 / 3 + 2 / (3 * m**2))
