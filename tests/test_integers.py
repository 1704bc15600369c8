"""Sums of integers: messages are rounded within their bound, add up, and come back with the noise that is promised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from scipy.linalg import hadamard

from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.rotation import block_of, padded, rotate, unrotate
from fedpriv.mechanisms.rounding import is_within, round_within

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(0)


@tiers.every("d", [1000, 1, 7, 7850])
def test_a_rotation_keeps_lengths_and_is_undone(d):
    x = np.random.default_rng(0).normal(size=d).astype(np.float32)
    y = jax.jit(rotate)(jax.random.key(1), x)
    assert y.shape == (padded(d),)
    assert padded(d) <= 9 * d / 8
    np.testing.assert_allclose(np.linalg.norm(y), np.linalg.norm(x), rtol=1e-5)
    np.testing.assert_allclose(
        jax.jit(unrotate, static_argnums=2)(jax.random.key(1), y, d), x, atol=1e-5
    )


@pytest.mark.slow
def test_a_rotation_is_the_hadamard_matrix_times_signs():
    turned = jax.jit(jax.vmap(rotate, (None, 0)))
    columns = np.asarray(turned(KEY, np.eye(128, dtype=np.float32)))
    block = block_of(128)
    assert block == 128
    rows = hadamard(block) / np.sqrt(block)
    signs = columns[:, 0] / rows[:, 0]
    np.testing.assert_allclose(np.abs(signs), 1, rtol=1e-6)
    np.testing.assert_allclose(columns, signs[:, None] * rows, atol=1e-6)


@tiers.every("d", [300_000, 1, 5, 1000])
def test_norms_are_compared_exactly(d):
    for size in (1, 1000, 65535):
        x = np.random.default_rng(0).integers(-size, size + 1, d)
        squared = int(np.sum(x.astype(object) ** 2))
        integers = np.int32(x)
        assert is_within(integers, squared)
        assert squared == 0 or not is_within(integers, squared - 1)


def test_integers_beyond_16_bits_are_never_within():
    assert not is_within(jnp.array([2**16], jnp.int32), 2**40)
    assert not is_within(jnp.array([-(2**31)], jnp.int32), 2**40)


def test_what_is_longer_than_promised_is_shortened():
    x = jnp.full(100, 1.7)
    for bound, left in ((120, 100), (99, 0)):  # towards zero
        found = jax.jit(lambda x, b=bound: round_within(KEY, x, b))(x)
        assert int(jnp.sum(found**2)) == left


@tiers.every("noise", ["skellam", "discrete_gaussian"])
def test_a_sum_has_its_noise_and_that_of_those_who_stay(noise):
    used = IntegerSum(noise, 10, 1.0, 0.7, 20, 3000)
    messages = np.random.default_rng(0).normal(size=(20, 3000)).astype(np.float32)
    messages /= np.linalg.norm(messages, axis=1, keepdims=True)

    keys = jax.random.split(KEY, 20)

    @jax.jit
    def decoded(key, staying, keys, messages):
        total = jax.vmap(lambda k, m: used.encode(KEY, k, m))(keys, messages).sum(0)
        return used.decode(KEY, used.perturb(key, total, staying)[0], messages[0])

    for k in (20, 13, 1):
        noisy = decoded(jax.random.key(k), jnp.int32(k), keys, messages) - messages.sum(0)
        expected = used.noise_deviation * np.sqrt(k / 20)
        # of 3,000 numbers: false alarm below 1e-4
        assert abs(float(noisy.std()) / expected - 1) < 4 / np.sqrt(2 * 3000)
