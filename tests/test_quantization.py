"""Stochastic quantization: unbiased, on the grid, within its bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import z_bound

from fedpriv.compression.quantization import quantize

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DRAWS = 20_000


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_it_is_unbiased_inside_the_interval(bits):
    x = jax.random.uniform(jax.random.key(99), (13,), minval=-1.0, maxval=2.0)
    keys = jax.random.split(jax.random.key(bits), DRAWS)
    drawn = jax.jit(jax.vmap(lambda k: quantize(k, x, -1.0, 2.0, bits).values))(keys)
    values = np.asarray(drawn, np.float64)
    step = 3 / (2**bits - 1)
    error = values.mean(0) - np.asarray(x)
    deviation = np.sqrt(np.maximum(values.var(0), (step / 100) ** 2) / DRAWS)
    assert np.max(np.abs(error) / deviation) < z_bound(13)
    assert np.all(values.var(0) <= step**2 / 4 + 1e-6)  # Lemma 11
    assert np.all(np.abs(values - np.asarray(x)) <= step * (1 + 1e-5))  # (19), (35)


@pytest.mark.parametrize("bits", [1, 3, 8, 16])
def test_codes_are_numbers_of_levels(bits):
    x = 3 * np.random.default_rng(0).normal(size=1000).astype(np.float32)
    low, high = np.full(1000, -1.5, np.float32), np.linspace(1.0, 2.0, 1000, dtype=np.float32)
    drawn = jax.jit(quantize, static_argnums=4)(jax.random.key(1), x, low, high, bits)
    values, codes, outside = map(np.asarray, drawn)
    assert codes.min() == 0
    assert codes.max() == 2**bits - 1
    step = (high - low) / (2**bits - 1)
    np.testing.assert_allclose(values, low + codes * step, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(outside, (x < low) | (x > high))
    np.testing.assert_allclose(values[x < low], -1.5)
    np.testing.assert_allclose(values[x > high], high[x > high], rtol=1e-6)


def test_what_is_on_the_grid_stays():
    grid = jnp.linspace(-1.0, 1.0, 16)
    values = quantize(jax.random.key(0), grid, jnp.float32(-1), jnp.float32(1), 4).values
    np.testing.assert_allclose(values, grid, atol=1e-6)


def test_an_empty_interval_has_one_level():
    values, codes, outside = quantize(
        jax.random.key(0), jnp.array([1.0, 2.0]), jnp.float32(1), jnp.float32(1), 4
    )
    np.testing.assert_array_equal(values, [1, 1])
    np.testing.assert_array_equal(codes, [0, 0])
    np.testing.assert_array_equal(outside, [False, True])
