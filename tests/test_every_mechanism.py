"""Laws of every mechanism: a bound that holds, and its limits.

What noise each adds, says `privacy/test_declared_noise.py`.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from every_mechanism import ENTRIES, Size, that
from small import assert_close, assert_identical, assert_normal

from fedpriv.mechanisms.clipping import flat, per_level
from fedpriv.mechanisms.mechanisms import LEAST_CLIP

pytestmark = pytest.mark.usefixtures("quick_to_compile")

C, SIGMA = 0.7, 1.3
SIZES = (Size(16, 3), Size(11, 3))
"""A power of two, and a number that is padded to 16."""


@functools.cache
def made(name, size, clip_norm=C, noise_multiplier=SIGMA):
    used = ENTRIES[name].make(size, clip_norm, noise_multiplier)
    return used.in_round(0) if name == "changing" else used


def like(name, size):
    """A contribution, or several."""
    return made(name, size).worst_case.worst(size.d)


def contributions(name, size):
    """Of all lengths, in all directions; then those that are broken, or whose squares are beyond float32."""
    leaves, tree = jax.tree.flatten(like(name, size))
    rng = np.random.default_rng(0)
    random = [rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    for scale in (0, 1e-3, 0.2, 1, 1e3, 1e15):
        yield jax.tree.unflatten(tree, [np.float32(scale) * leaf for leaf in random])
    yield jax.tree.unflatten(tree, [100 * np.ones(x.shape, np.float32) for x in leaves])
    yield jax.tree.unflatten(tree, [np.float32(1e3) * leaf for leaf in leaves])
    for wrong in (math.nan, math.inf, -math.inf, 1e30):
        broken = [leaf.copy() for leaf in random]
        broken[0].flat[0] = wrong
        yield jax.tree.unflatten(tree, broken)


@tiers.every("name", ENTRIES)
def test_no_contribution_is_longer_than_the_bound(name):
    """In units of the noise it is at most 1 / multiplier long; in its own, as long as the entry says."""
    for size in SIZES:
        used = made(name, size)
        clip = jax.jit(used.clip)
        for whole in contributions(name, size):
            bounded = clip(whole)[0]
            seen = np.linalg.norm(np.asarray(used.worst_case.whiten(bounded), np.float64))
            assert seen <= (1 + 1e-5) / used.certified_multiplier
            if not ENTRIES[name].joint:
                u = np.concatenate([np.ravel(x) for x in jax.tree.leaves(bounded)]).astype(float)
                length = np.linalg.norm(u, 1 if used.noise == "laplace" else 2)
                assert length <= C * ENTRIES[name].longest(size) * (1 + 1e-6)


LONG = Size(1024, 3)


def of_all_sizes(tree):
    """Times powers of ten that float32 has: squares of the least are 0, of the largest infinite."""
    leaves, tree = jax.tree.flatten(tree)
    rng = np.random.default_rng(0)
    directions = (
        lambda x: np.ones(x.shape),
        lambda x: rng.normal(size=x.shape),
        lambda x: 10.0 ** rng.uniform(-8, 0, size=x.shape),
        lambda x: np.float64(x),
    )
    for of in directions:
        u = [of(x) for x in leaves]
        largest = max(np.abs(x).max() for x in u)
        for power in range(-42, 39, 5):
            if largest * 10.0**power < 3e38:
                yield jax.tree.unflatten(tree, [(x * 10.0**power).astype(np.float32) for x in u])


@tiers.every("name", that(lambda entry: not entry.joint))
def test_no_size_gets_past_the_bound(name):
    for bound in (1.0, LEAST_CLIP, 1 / LEAST_CLIP):
        used = made(name, LONG, bound)
        clip = jax.jit(used.clip)
        for whole in of_all_sizes(like(name, LONG)):
            bounded, norm = clip(whole)
            u = np.concatenate([np.ravel(x) for x in jax.tree.leaves(bounded)]).astype(float)
            order = 1 if used.noise == "laplace" else 2
            longest = bound * ENTRIES[name].longest(LONG)
            assert np.linalg.norm(u, order) <= longest * (1 + 1e-3)
            if not np.isfinite(norm):  # from 1.8e19 on
                assert not u.any()
            elif ENTRIES[name].clipping is flat:
                given = np.concatenate([np.ravel(x) for x in jax.tree.leaves(whole)]).astype(float)
                true = np.linalg.norm(given, order)
                assert np.linalg.norm(u, order) == pytest.approx(min(true, bound), rel=1e-3)


def assert_kept(name, found, norm, given):
    """To the bit, where nothing is transformed back."""
    if not ENTRIES[name].joint and ENTRIES[name].clipping is not per_level:
        assert_identical(found, given)
    elif np.isfinite(norm).all():
        assert_close(found, given, 1e-6)


@tiers.every("name", ENTRIES)
def test_what_is_within_the_bound_stays_as_it_is(name):
    size = SIZES[1]
    for scale in (0.0, 1e-3):
        given = jax.tree.map(lambda leaf, s=scale: s * leaf, like(name, size))
        assert_kept(name, *jax.jit(made(name, size).clip)(given), given)


@tiers.every("name", that(lambda entry: not entry.joint))
def test_without_bound_and_noise_nothing_changes(name):
    """Not even what is no number."""
    size = SIZES[1]
    free = made(name, size, math.inf, 0.0)
    assert free.certified_multiplier == 0
    assert free.reason
    clip = jax.jit(free.clip)
    for given in contributions(name, size):
        assert_kept(name, *clip(given), given)
        assert_identical(free.perturb(jax.random.key(0), given), given)


@tiers.every("name", that(lambda entry: not entry.joint))
def test_a_single_parameter(name):
    """It is clipped to C, and hidden by noise of one deviation: 20,000 draws, false alarm 1e-6."""
    used = made(name, Size(1, 1))
    for u in (-9.0, 0.1, 9.0):
        bounded, norm = used.clip(jnp.full(1, u))
        assert float(bounded[0]) == pytest.approx(math.copysign(min(abs(u), C), u), rel=1e-5)
        assert float(norm) == pytest.approx(abs(u), rel=1e-5)
    assert used.certified_multiplier == pytest.approx(SIGMA)
    keys = jax.random.split(jax.random.key(0), 20_000)
    noise = np.asarray(jax.vmap(lambda key: used.perturb(key, jnp.zeros(1)))(keys), float)
    if used.noise == "laplace":
        assert np.abs(noise).mean() == pytest.approx(C * SIGMA, rel=8 / 20_000**0.5)
    else:
        assert_normal(noise, C * SIGMA)
