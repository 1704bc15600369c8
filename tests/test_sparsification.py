"""Sparsifiers against sorting, their randomness, and the size of what travels."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from small import assert_uniform

from fedpriv.compression.sparsification import largest, rand_k, top_k

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TREE = {
    "b": jnp.float32(7),
    "a": [jnp.arange(6.0).reshape(2, 3), jnp.arange(4.0)[None, None]],
    "empty": jnp.zeros((0, 3)),
}


def numpy_largest(scores, k):
    """The k largest, ties to the lower coordinate: a stable sort in descending order."""
    return np.sort(np.argsort(-scores.astype(np.float64), kind="stable")[:k])


jit_largest = jax.jit(largest, static_argnums=1)
jit_top_k = jax.jit(top_k, static_argnums=1)


@tiers.every("k", [7, 1, 50])
def test_largest_and_top_k_are_those_of_a_sort(k):
    rng = np.random.default_rng(k)
    extremes = np.array([0, 2**32 - 1] * 25, np.uint32)
    for scores in (
        rng.integers(0, 2**32, 50, np.uint32),
        rng.integers(0, 4, 50, np.uint32),  # ties at the threshold
        rng.integers(2**31 - 2, 2**31 + 2, 50, np.uint32),  # both sides of the sign bit
        np.zeros(50, np.uint32),
        extremes,
    ):
        kept = jit_largest(jnp.asarray(scores), k)
        assert kept.dtype == jnp.int32
        np.testing.assert_array_equal(kept, numpy_largest(scores, k))
    for magnitude in (
        rng.exponential(size=50),
        rng.integers(0, 3, 50),
        np.zeros(50),
        np.where(rng.random(50) < 0.9, 0, 1e-40),  # denormal
        10.0 ** rng.integers(-45, 38, 50),
    ):
        magnitude = magnitude.astype(np.float32)
        kept = jit_top_k(jnp.asarray(magnitude), k)
        np.testing.assert_array_equal(kept, numpy_largest(magnitude, k))


def test_negative_zero_counts_as_zero_after_abs():
    kept = jit_top_k(jnp.abs(jnp.array([-0.0, 1e-20, 0.0])), 1)
    np.testing.assert_array_equal(kept, [1])


@tiers.every("how", [(1000, 999), (5, 5), (5, 1)])
def test_rand_k_is_sorted_and_has_k_distinct_coordinates(how):
    d, k = how
    keys = jax.random.split(jax.random.key(0), 20)
    kept = np.asarray(jax.jit(jax.vmap(lambda key: rand_k(key, d, k)))(keys))
    assert kept.shape == (20, k)
    assert kept.dtype == np.int32
    assert np.all(np.diff(kept, axis=1) > 0)
    assert kept.min() >= 0
    assert kept.max() < d


def test_rand_k_is_uniform_over_subsets():
    trials = 20_000
    keys = jax.random.split(jax.random.key(1), trials)
    kept = np.asarray(jax.jit(jax.vmap(lambda key: rand_k(key, 6, 3)))(keys))
    subsets, counts = np.unique(kept, axis=0, return_counts=True)
    np.testing.assert_array_equal(subsets, list(combinations(range(6), 3)))
    assert_uniform(counts, trials, 1 / 20)
