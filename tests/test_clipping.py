"""Clip sets: what they declare, their scales and bounds. `test_every_mechanism.py` has the law that these hold."""

import functools
import math

import clip_sets
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from every_mechanism import Size
from haar import haar
from small import assert_identical

from fedpriv import mechanism
from fedpriv.mechanisms.clipping import coefficients, flat, per_layer, per_level, separately
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.papers import haar_multiplier
from fedpriv.privacy import whitened_multiplier

pytestmark = pytest.mark.usefixtures("quick_to_compile")

C, TENSORS = 0.7, 4
CLIPPINGS = {
    "flat": lambda d: flat(),
    "per_layer": lambda d: per_layer(TENSORS),
    "separately": lambda d: separately(TENSORS),
    "coefficients": coefficients,
    "per_level": per_level,
}


@functools.cache
def clip_of(name, d):
    """Compiled once."""
    return jax.jit(CLIPPINGS[name](d).clip)


LENGTHS = (11, 16)
"""One that is padded to 16, and a power of two."""


@pytest.fixture(params=CLIPPINGS)
def name(request):
    return request.param


@pytest.fixture(params=tiers.cases(LENGTHS))
def d(request):
    return request.param


def tree(vector):
    """Four tensors, of equal size where there are 16 entries."""
    parts = np.array_split(np.asarray(vector, np.float32), TENSORS)
    return {"abcd"[i]: jnp.asarray(part) for i, part in enumerate(parts)}


@tiers.every("m", [8, 1, 2, 64], kind=lambda m: m == 1)
def test_declared_lengths_against_singular_values(m):
    """Of diag(W) H on a ball, of H^-1 and diag(W) on a ball of coefficients, and of each level's block."""
    transform, weights = haar(m)

    def largest(matrix):
        return np.linalg.norm(matrix, 2)

    reach = haar_noise(m).reach
    assert reach(flat()) == pytest.approx(largest(weights[:, None] * transform))
    assert coefficients(m).length == pytest.approx(largest(np.linalg.inv(transform)))
    assert reach(coefficients(m)) == pytest.approx(largest(np.diag(weights)))
    levels = [[0], *(range(1 << k, 2 << k) for k in range(m.bit_length() - 1))]
    moved = [largest(np.diag(weights[list(level)])) / weights[level[0]] for level in levels]
    assert reach(per_level(m)) == pytest.approx(np.linalg.norm(moved))
    back = np.linalg.inv(transform)
    lengths = [largest(back[:, list(level)]) / weights[level[0]] for level in levels]
    assert per_level(m).length == pytest.approx(np.linalg.norm(lengths))  # levels are orthogonal
    assert haar_noise(max(1, m // 2 + 1)).reach(flat()) == reach(flat())  # by padding


@tiers.every("size", [(5, 8), (8, 8), (1, 1), (300, 512)], kind=lambda size: size[0] < size[1])
def test_multipliers_are_those_of_the_ledger(size):
    d, m = size
    transform, weights = haar(m)
    for clip, kind, length in (
        (flat(), "gradient", 1),
        (coefficients(d), "coefficients", math.sqrt(m)),
        (per_level(d), "levels", 1),
    ):
        made = mechanism(clip, haar_noise(d), clip_norm=C, noise_multiplier=1.3)
        assert made.certified_multiplier == pytest.approx(haar_multiplier(1.3, m, kind))
        level = mechanism(clip, haar_noise(d, "orthonormal"), clip_norm=C, noise_multiplier=1.3)
        assert level.certified_multiplier == pytest.approx(1.3 / length)
        if kind == "gradient":
            found = whitened_multiplier(C * 1.3 / weights, C, transform)
            assert made.certified_multiplier == pytest.approx(found)


def random(d):
    return np.random.default_rng(3).normal(size=d)


def test_a_bound_may_be_traced(name, d):
    """Whatever it is, u is clipped as NumPy does."""
    into = getattr(clip_sets, name)(Size(d, TENSORS))
    for bound in (0.01, C, 100.0):
        bounded, norm = clip_of(name, d)(tree(random(d)), bound)
        found = np.concatenate(jax.tree.leaves(bounded))
        expected = into.clip(random(d)[None], bound)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * bound)
        np.testing.assert_allclose(norm, into.told(random(d)[None])[0], rtol=1e-5)


def test_scales_are_what_clipping_does(name, d):
    clipping = CLIPPINGS[name](d)
    if clipping.scales is None:
        assert name == "per_level"
        return
    given = tree(1e3 * random(d))

    @jax.jit
    def both(given):
        norms = clipping.norms or functools.partial(jax.tree.map, jnp.linalg.norm)
        scales = clipping.scales(norms(given), C)
        return clipping.clip(given, C)[0], jax.tree.map(jnp.multiply, given, scales)

    assert_identical(*both(given))


def test_bounds_of_each_tensor():
    bounds = {"a": 0.1, "b": 2.0, "c": 30.0, "d": math.inf}
    given = tree(20 * np.ones(16))
    bounded, _ = separately(TENSORS).clip(given, bounds)
    norms = {key: float(jnp.linalg.norm(leaf)) for key, leaf in bounded.items()}
    assert norms == pytest.approx({"a": 0.1, "b": 2.0, "c": 30.0, "d": 40.0}, rel=1e-6)
    bounded, _ = per_layer(TENSORS).clip(given, 3.0)
    assert [float(jnp.linalg.norm(leaf)) for leaf in bounded.values()] == pytest.approx([1.5] * 4)


def test_any_set_has_a_reach_in_haar_noise():
    """sqrt(m) times the longest vector: ||W H|| is sqrt(m)."""
    hidden = mechanism(separately(2), haar_noise(16), clip_norm=C, noise_multiplier=1.0)
    assert hidden.certified_multiplier == pytest.approx(1 / math.sqrt(2 * 16))


def test_nothing_is_divided_by_a_bound_of_zero():
    """The median of mostly zero gradients."""
    for name in ("flat", "separately"):
        for u in (np.zeros(11), np.ones(11)):
            assert_identical(clip_of(name, 11)(tree(u), 0.0)[0], tree(np.zeros(11)))
