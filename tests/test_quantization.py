"""Stochastic quantization: unbiased, on the grid, within its bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from small import FALSE_ALARM

from fedpriv import dimension, fixed_interval, qsgd
from fedpriv.codecs import UNCODED
from fedpriv.quantization import quantize

DRAWS = 20_000


def z_bound(tests):
    """Of the largest of so many standard normals."""
    return stats.norm.isf(FALSE_ALARM / 2 / tests)


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_it_is_unbiased_inside_the_interval(bits):
    x = jax.random.uniform(jax.random.key(99), (13,), minval=-1.0, maxval=2.0)
    keys = jax.random.split(jax.random.key(bits), DRAWS)
    drawn = jax.vmap(lambda k: quantize(k, x, -1.0, 2.0, bits).values)(keys)
    values = np.asarray(drawn, np.float64)
    step = 3 / (2**bits - 1)
    error = values.mean(0) - np.asarray(x)
    deviation = np.sqrt(np.maximum(values.var(0), (step / 100) ** 2) / DRAWS)
    assert np.max(np.abs(error) / deviation) < z_bound(13)
    assert np.all(values.var(0) <= step**2 / 4 + 1e-6)  # Lemma 11
    assert np.all(np.abs(values - np.asarray(x)) <= step * (1 + 1e-5))  # (19), (35)


@pytest.mark.parametrize("bits", [1, 3, 8, 16])
def test_codes_are_numbers_of_levels(bits):
    x = 3 * jax.random.normal(jax.random.key(0), (1000,))
    low, high = jnp.full(1000, -1.5), jnp.linspace(1.0, 2.0, 1000)
    values, codes, outside = quantize(jax.random.key(1), x, low, high, bits)
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


TREE = {"a": jnp.array([[-0.97, -0.55, -0.13], [0.17, 0.61, 0.93]]), "b": jnp.array([0.32, -0.71])}


@pytest.mark.parametrize(
    "codec", [qsgd(4), qsgd(2), fixed_interval(4, 1.0)], ids=["qsgd 4", "qsgd 2", "fixed"]
)
def test_codecs_are_unbiased(codec):
    keys = jax.random.split(jax.random.key(5), DRAWS)
    coded = jax.vmap(lambda k: codec.code(k, TREE).message)(keys)
    for name, x in TREE.items():
        values = np.asarray(coded[name], np.float64)
        assert values.shape[1:] == x.shape
        deviation = np.sqrt(np.maximum(values.var(0), 1e-6) / DRAWS)
        assert np.max(np.abs(values.mean(0) - x) / deviation) < z_bound(8)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bits_counted_are_bits_needed(bits):
    """Different values that can be decoded: at most 2^B, beside the scale."""
    x = jax.random.normal(jax.random.key(0), (50_000,))
    for codec in (qsgd(bits), fixed_interval(bits, 4.0)):
        values = np.unique(np.asarray(codec.code(jax.random.key(1), x).message))
        assert len(values) <= 2**bits
        assert codec.wire(100).bits() - codec.wire(0).bits() == 100 * bits
    assert qsgd(bits).wire(0).bits() == 32
    assert fixed_interval(bits, 4.0).wire(0).bits() == 0


def test_uncoded_is_what_was_sent():
    assert UNCODED.code(jax.random.key(0), TREE).message is TREE
    assert UNCODED.wire(dimension(TREE)).bits() == 8 * 32
    assert not UNCODED.lossy


def test_nothing_but_zeros():
    coded = qsgd(8).code(jax.random.key(0), jnp.zeros(5))
    np.testing.assert_array_equal(coded.message, np.zeros(5))


def test_a_fixed_interval_reports_what_lies_outside():
    coded = fixed_interval(8, 0.6).code(jax.random.key(0), TREE)  # -0.97, 0.61, 0.93 and -0.71
    assert coded.diagnostics == {"saturated": 0.5}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: qsgd(1), "bits: 1 is not in 2..22"),
        (lambda: fixed_interval(23, 1.0), "bits: 23 is not in 1..22"),
        (lambda: fixed_interval(8, 0.0), "bound: 0.0 is not positive"),
    ],
)
def test_wrong_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
