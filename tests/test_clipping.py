"""Clip sets keep what they declare, reach it, and leave alone what is inside."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from haar import haar
from small import assert_close, assert_identical

from fedpriv import mechanism
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.clipping import coefficients, flat, per_layer, per_level, separately
from fedpriv.mechanisms.haar import padded_length
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


LENGTHS = (16, 11)
"""A power of two, and one that is padded to 16."""


@pytest.fixture(params=CLIPPINGS)
def name(request):
    return request.param


@pytest.fixture(params=LENGTHS)
def d(request):
    return request.param


def tree(vector):
    """Four tensors, of equal size where there are 16 entries."""
    parts = np.split(np.asarray(vector, np.float32), [4, 8, 10 if len(vector) < 16 else 12])
    return {"abcd"[i]: jnp.asarray(part) for i, part in enumerate(parts)}


def length(contribution):
    return np.linalg.norm(np.asarray(flatten(contribution), np.float64))


def covariance(m):
    """Of the paper's noise after the inverse transform, f64[m, m]: H^-1 diag(1 / W^2) H^-T."""
    transform, weights = haar(m)
    back = np.linalg.inv(transform) / weights
    return back @ back.T


def whitened_length(contribution):
    """||W H u||; of what is left of a padded vector, by the noise that is left."""
    u = np.asarray(flatten(contribution), np.float64)
    seen = covariance(padded_length(len(u)))[: len(u), : len(u)]
    return math.sqrt(u @ np.linalg.solve(seen, u))


def all_levels(m):
    """Every group of coefficients at its limit 1 / W, in a random direction of the group."""
    transform, weights = haar(m)
    h = np.random.default_rng(1).normal(size=m)
    groups = [slice(0, 1), *(slice(m // 2**k, m // 2 ** (k - 1)) for k in range(1, m.bit_length()))]
    for group in groups:
        h[group] /= np.linalg.norm(h[group]) * weights[group]
    return np.linalg.inv(transform) @ h


def contributions(d):
    rng = np.random.default_rng(0)
    random = rng.normal(size=d)
    found = [scale * random for scale in (0, 1e-3, 0.2, 1, 1e3, 1e15)]
    found += [100.0 * np.ones(d), 1e3 * np.eye(d)[0], -1e3 * np.eye(d)[d - 1], np.arange(d) ** 3.0]
    found += [100 * all_levels(16)[:d], 50.0 * (-1.0) ** np.arange(d)]
    return found + [
        np.where(np.arange(d) == 5, wrong, random)
        for wrong in (math.nan, math.inf, -math.inf, 1e30)
    ]


def test_the_bounds_hold(name, d):
    """Up to float32's rounding, also for what is broken or whose norm overflows."""
    clipping = CLIPPINGS[name](d)
    clip = clip_of(name, d)
    for u in contributions(d):
        bounded, norm = clip(tree(u), C)
        assert length(bounded) <= C * clipping.length * (1 + 1e-6), u
        assert whitened_length(bounded) <= C * haar_noise(d).reach(clipping) * (1 + 1e-5), u
        broken = not np.all(np.abs(u) < 1e20)
        assert np.isfinite(norm) == (not broken)  # the diagnostics tell
        if broken:
            assert_identical(bounded, tree(np.zeros(d)))


def test_the_bounds_are_reached(name):
    """By a constant vector, or by one that saturates every level."""
    clipping = CLIPPINGS[name](16)
    worst = [clip_of(name, 16)(tree(1e3 * u), C)[0] for u in (np.ones(16), all_levels(16))]
    assert max(map(length, worst)) == pytest.approx(C * clipping.length, rel=1e-5)
    reached = max(map(whitened_length, worst))
    assert reached == pytest.approx(C * haar_noise(16).reach(clipping), rel=1e-5)


@pytest.mark.parametrize("m", [1, 2, 8, 64])
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


@pytest.mark.parametrize(("d", "m"), [(1, 1), (5, 8), (8, 8), (300, 512)])
@pytest.mark.parametrize(
    ("clip", "kind"),
    [(lambda d: flat(), "gradient"), (coefficients, "coefficients"), (per_level, "levels")],
)
def test_multipliers_are_those_of_the_ledger(clip, kind, d, m):
    made = mechanism(clip(d), haar_noise(d), clip_norm=C, noise_multiplier=1.3)
    assert made.certified_multiplier == pytest.approx(haar_multiplier(1.3, m, kind))
    level = mechanism(clip(d), haar_noise(d, "orthonormal"), clip_norm=C, noise_multiplier=1.3)
    lengths = {"gradient": 1, "coefficients": math.sqrt(m), "levels": 1}
    assert level.certified_multiplier == pytest.approx(1.3 / lengths[kind])
    transform, weights = haar(m)
    if clip is flat:
        found = whitened_multiplier(C * 1.3 / weights, C, transform)
        assert made.certified_multiplier == pytest.approx(found)


def test_without_a_bound_nothing_changes(name, d):
    """To the bit, where nothing is transformed back."""
    clip = clip_of(name, d)
    for u in contributions(d):
        given = tree(u)
        free, norm = clip(given, math.inf)
        if name == "per_level":
            if np.isfinite(norm):
                assert_close(flatten(free), flatten(given), 1e-6)
        else:
            assert_identical(free, given)


def test_what_is_inside_stays_as_it_is(name, d):
    clip = clip_of(name, d)
    for u in contributions(d)[:4]:
        for given in (tree(u), jax.tree.map(jnp.zeros_like, tree(u))):
            bounded, _ = clip(given, 100.0)
            if name == "per_level":
                assert_close(flatten(bounded), flatten(given), 1e-6)
            else:
                assert_identical(bounded, given)


def test_the_norm_that_is_told(name, d):
    """Of the contribution, or of its coefficients."""
    u = np.random.default_rng(3).normal(size=d)
    _, norm = clip_of(name, d)(tree(u), C)
    padded = np.pad(u, (0, 16 - d))
    expected = np.linalg.norm(haar(16)[0] @ padded if name == "coefficients" else u)
    assert float(norm) == pytest.approx(expected, rel=1e-5)


def test_a_bound_that_is_not_traced(name, d):
    given = tree(contributions(d)[3])
    constant = jax.jit(lambda u: CLIPPINGS[name](d).clip(u, C))
    assert_close(constant(given), clip_of(name, d)(given, C), 1e-6)


def test_scales_are_what_clipping_does(name, d):
    clipping = CLIPPINGS[name](d)
    if clipping.scales is None:
        assert name == "per_level"
        return
    given = tree(contributions(d)[4])

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


def test_wrong_tensors():
    for make in (per_layer, separately):
        with pytest.raises(ValueError, match="tensors: 0; give"):
            make(0)
        with pytest.raises(ValueError, match="tensors: 3, but the model has 4; give 4"):
            make(3).clip(tree(np.ones(16)), C)


def test_any_set_has_a_reach_in_haar_noise():
    """sqrt(m) times the longest vector: ||W H|| is sqrt(m)."""
    hidden = mechanism(separately(2), haar_noise(16), clip_norm=C, noise_multiplier=1.0)
    assert hidden.certified_multiplier == pytest.approx(1 / math.sqrt(2 * 16))


def test_a_contribution_of_another_dimension_is_refused():
    """The declared reach is that of d coordinates."""
    for make in (coefficients, per_level):
        with pytest.raises(ValueError, match="d: 8, but a contribution has 16 coordinates; give"):
            make(8).clip(tree(np.ones(16)), C)


def test_nothing_is_divided_by_a_bound_of_zero():
    """The median of mostly zero gradients."""
    for clipping in (flat(), separately(TENSORS)):
        found, _ = clipping.clip(tree(np.zeros(16)), jnp.float32(0))
        assert_identical(found, tree(np.zeros(16)))
        found, _ = clipping.clip(tree(np.ones(16)), jnp.float32(0))
        assert_identical(found, tree(np.zeros(16)))
