"""Sums of integers: messages are rounded within their bound, add up, and come back with the noise that is promised."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.linalg import hadamard

import fedpriv as fp
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.rotation import block_of, padded, rotate, unrotate
from fedpriv.mechanisms.rounding import is_within, round_within, rounded_bound

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(0)


@pytest.mark.parametrize("d", [1, 2, 7, 100, 1000, 7850])
def test_a_rotation_keeps_lengths_and_is_undone(d):
    x = jax.random.normal(KEY, (d,))
    y = rotate(jax.random.key(1), x)
    assert y.shape == (padded(d),)
    assert padded(d) <= 9 * d / 8
    np.testing.assert_allclose(jnp.linalg.norm(y), jnp.linalg.norm(x), rtol=1e-5)
    np.testing.assert_allclose(unrotate(jax.random.key(1), y, d), x, atol=1e-5)


def test_a_rotation_is_the_hadamard_matrix_times_signs():
    columns = np.array([rotate(KEY, row) for row in np.eye(128, dtype=np.float32)])
    block = block_of(128)
    assert block == 128
    rows = hadamard(block) / np.sqrt(block)
    signs = columns[:, 0] / rows[:, 0]
    np.testing.assert_allclose(np.abs(signs), 1, rtol=1e-6)
    np.testing.assert_allclose(columns, signs[:, None] * rows, atol=1e-6)


@pytest.mark.parametrize("size", [1, 1000, 65535])
@pytest.mark.parametrize("d", [1, 5, 1000, 300_000])
def test_norms_are_compared_exactly(d, size):
    x = np.random.default_rng(0).integers(-size, size + 1, d)
    squared = int(np.sum(x.astype(object) ** 2))
    integers = jnp.asarray(x, jnp.int32)
    assert is_within(integers, squared)
    assert squared == 0 or not is_within(integers, squared - 1)


def test_integers_beyond_16_bits_are_never_within():
    assert not is_within(jnp.array([2**16], jnp.int32), 2**40)
    assert not is_within(jnp.array([-(2**31)], jnp.int32), 2**40)


def test_rounding_is_unbiased_and_within_its_bound():
    x = 0.3 * jax.random.normal(KEY, (2000,))
    bound = int(rounded_bound(np.float64(jnp.linalg.norm(x)), x.size, 1.0))
    rounded = jax.vmap(lambda k: round_within(k, x, bound))(jax.random.split(KEY, 400))
    assert np.max(np.sum(np.square(rounded), axis=1)) <= bound
    part = x - jnp.floor(x)
    deviations = (rounded.mean(0) - x) / jnp.sqrt(part * (1 - part) / 400)
    # chi-square of 2,000 about normal numbers: false alarm below 1e-4
    assert abs(float(jnp.sum(deviations**2)) - 2000) < 4 * np.sqrt(2 * 2000)


def test_what_is_longer_than_promised_is_shortened():
    x = jnp.full(100, 1.7)
    assert int(jnp.sum(round_within(KEY, x, 120) ** 2)) == 100  # towards zero
    assert int(jnp.sum(round_within(KEY, x, 99) ** 2)) == 0


@pytest.mark.parametrize("noise", ["discrete_gaussian", "skellam"])
def test_a_sum_has_its_noise_and_that_of_those_who_stay(noise):
    used = IntegerSum(noise, 10, 1.0, 0.7, 20, 3000)
    messages = jax.random.normal(KEY, (20, 3000))
    messages /= jnp.linalg.norm(messages, axis=1, keepdims=True)

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


def test_sums_are_taken_modulo():
    used = IntegerSum("skellam", 8, 1.0, 0.0, 1, 4)
    total = jnp.array([127, 128, -128, -129, 300], jnp.int32)
    assert used._modulo(total).tolist() == [127, -128, -128, 127, 44]


def test_too_few_bits_say_how_many_would_do():
    with pytest.raises(ValueError, match=r"bits: 8, but sums of 100 messages .* give 1[0-2]"):
        _ = IntegerSum("skellam", 8, 1.0, 1.5, 100, 54_000).scale
    assert IntegerSum("skellam", 12, 1.0, 1.5, 100, 54_000).scale > 0


@pytest.mark.parametrize("mechanism", [fp.discrete_gaussian, fp.skellam])
def test_noise_is_certified_at_what_it_says(mechanism):
    def loss(w, example):
        return jnp.sum((w - example) ** 2)

    examples = np.random.default_rng(0).normal(size=(120, 16)).astype(np.float32)
    federation = fp.Federation.from_arrays(examples, fp.partition.natural(np.arange(120) % 30))
    options = {
        "sampler": fp.everyone(30),
        "optimizer": lambda t: optax.sgd(0.1),
        "batches": fp.full_batch(),
    }
    certificates = []
    for used in (mechanism(1.0, 2.0, bits=16), fp.gaussian(1.0, 2.0)):
        algorithm = fp.fed_avg(loss, mechanism=used, **options)
        certificates.append(
            fp.certify(
                algorithm, jnp.zeros(16), federation, rounds=3, delta=1e-5, view="server_secagg"
            )
        )
    of_integers, real = certificates
    assert real.epsilon <= of_integers.epsilon <= 1.1 * real.epsilon
    assert of_integers.basis == "constructed"
