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
from haar import haar
from small import assert_close, assert_identical, assert_normal

from fedpriv.mechanisms.clipping import flat, per_level
from fedpriv.mechanisms.haar import padded_length
from fedpriv.mechanisms.mechanisms import LEAST_CLIP

pytestmark = pytest.mark.usefixtures("quick_to_compile")

C, SIGMA = 0.7, 1.3
WHOLE, PADDED, LONG, ONE = Size(16, 3), Size(11, 3), Size(1024, 3), Size(1, 1)
FREE = that(lambda entry: not entry.joint)
"""Of one contribution."""
NEVER_SILENT = {"changing": "its noise decays from one that it has"}


@functools.cache
def made(name, size, clip_norm=C, noise_multiplier=SIGMA):
    used = ENTRIES[name].make(size, clip_norm, noise_multiplier)
    return used.in_round(0) if name == "changing" else used


@functools.cache
def like(name, size):
    """A contribution, or several: the longest that there is."""
    worst = made(name, size).worst_case.worst
    return jax.tree.map(np.asarray, jax.jit(lambda: worst(size.d))())


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.float32(np.stack(leaves)), *trees)


def contributions(name, size):
    """Of all lengths, in all directions; then those that are broken, or whose squares are beyond float32."""
    leaves, tree = jax.tree.flatten(like(name, size))
    rng = np.random.default_rng(0)
    random = [rng.normal(size=leaf.shape) for leaf in leaves]
    found = [[scale * leaf for leaf in random] for scale in (0, 1e-3, 0.2, 1, 1e3, 1e15)]
    found += [[100 * np.ones(x.shape) for x in leaves], [1e3 * leaf for leaf in leaves]]
    for wrong in (math.nan, math.inf, -math.inf, 1e30):
        broken = [leaf.copy() for leaf in random]
        broken[0].flat[0] = wrong
        found.append(broken)
    return stacked([jax.tree.unflatten(tree, each) for each in found])


def of_all_sizes(name, size):
    """Times powers of ten that float32 has: squares of the least are 0, of the largest infinite."""
    leaves, tree = jax.tree.flatten(like(name, size))
    rng, found = np.random.default_rng(0), []
    for directions in (
        [np.ones(x.shape) for x in leaves],
        [rng.normal(size=x.shape) for x in leaves],
        [10.0 ** rng.uniform(-8, 0, size=x.shape) for x in leaves],
        leaves,
    ):
        largest = max(np.abs(x).max() for x in directions)
        for scale in 10.0 ** np.arange(-42, 39, 5):
            if largest * scale < 3e38:
                found.append(jax.tree.unflatten(tree, [np.float64(x) * scale for x in directions]))
    return stacked(found)


def clipped(used, each):
    """Of each contribution: what is left, its norm, and what is left in units of the noise."""

    @jax.jit
    def run(each):
        def one(given):
            bounded, norm = used.clip(given)
            return bounded, norm, used.worst_case and used.worst_case.whiten(bounded)

        return jax.lax.map(one, each)

    return run(each)


def vectors(tree):
    """f64[n, d]"""
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.asarray(x, float).reshape(len(x), -1) for x in leaves], axis=1)


def lengths(used, tree):
    return np.linalg.norm(vectors(tree), 1 if used.noise == "laplace" else 2, axis=1)


def in_what_is_left(u):
    """f64[n]: ||W H u||, by the noise that is left of a padded vector."""
    d = u.shape[1]
    transform, weights = haar(padded_length(d))
    back = np.linalg.inv(transform) / weights
    return np.linalg.norm(np.linalg.solve(np.linalg.cholesky((back @ back.T)[:d, :d]), u.T), axis=0)


@tiers.every("name", ENTRIES)
def test_no_contribution_is_longer_than_the_bound(name):
    """In units of the noise it is at most 1 / multiplier long; in its own, as long as the entry says."""
    used, entry = made(name, WHOLE), ENTRIES[name]
    bounded, norm, seen = clipped(used, contributions(name, WHOLE))
    assert lengths(used, seen).max() <= (1 + 1e-5) / used.certified_multiplier
    if entry.joint:
        return
    told = [False] * 3 + [
        used.noise == "laplace"
    ]  # the sum of 1e30 is finite, that of its square is not
    assert np.isfinite(norm).tolist() == [True] * 8 + told
    assert not vectors(bounded)[~np.isfinite(norm)].any()
    for size in (WHOLE, PADDED):
        used = made(name, size)
        bounded, *_ = clipped(used, contributions(name, size))
        assert lengths(used, bounded).max() <= C * entry.longest(size) * (1 + 1e-6)
        if not entry.white and not entry.calibrated:
            seen = in_what_is_left(vectors(bounded)) / (C * SIGMA)
            assert seen.max() <= (1 + 1e-5) / used.certified_multiplier


@tiers.every("name", FREE)
def test_no_size_gets_past_the_bound(name):
    for bound in (1.0, LEAST_CLIP, 1 / LEAST_CLIP):
        used, given = made(name, LONG, bound), of_all_sizes(name, LONG)
        bounded, norm, _ = clipped(used, given)
        found = lengths(used, bounded)
        assert found.max() <= bound * ENTRIES[name].longest(LONG) * (1 + 1e-3)
        assert not vectors(bounded)[~np.isfinite(norm)].any()  # from 1.8e19 on
        if ENTRIES[name].clipping is flat and used.noise == "gaussian":
            true = np.minimum(lengths(used, given), bound)
            seen = np.isfinite(norm)
            np.testing.assert_allclose(found[seen], true[seen], rtol=1e-3, atol=1e-36)


def assert_kept(name, found, norm, given):
    """To the bit, where nothing is transformed back."""
    if not ENTRIES[name].joint and ENTRIES[name].clipping is not per_level:
        assert_identical(found, given)
    else:
        kept = np.isfinite(norm)
        for one, other in zip(*map(jax.tree.leaves, (found, given)), strict=True):
            assert_close(list(one[kept]), list(other[kept]), 1e-6)


@tiers.every("name", ENTRIES)
def test_what_is_within_the_bound_stays_as_it_is(name):
    given = jax.tree.map(lambda leaf: np.stack([0 * leaf, 1e-3 * leaf]), like(name, PADDED))
    bounded, norm, _ = clipped(made(name, PADDED), given)
    assert_kept(name, bounded, norm, given)


@tiers.every("name", FREE)
def test_without_bound_and_noise_nothing_changes(name):
    """Not even what is no number."""
    if name in NEVER_SILENT:
        with pytest.raises(ValueError, match=r"^start: "):
            made(name, PADDED, math.inf, 0.0)
        return
    free, given = made(name, PADDED, math.inf, 0.0), contributions(name, PADDED)
    assert free.certified_multiplier == 0
    assert free.reason
    bounded, norm, _ = clipped(free, given)
    assert_kept(name, bounded, norm, given)
    assert_identical(free.perturb(jax.random.key(0), given), given)


def test_who_is_never_silent():
    assert list(NEVER_SILENT) == ["changing"]


@tiers.every("name", FREE)
def test_a_single_parameter(name):
    """It is clipped to C, and hidden by noise of one deviation: 20,000 draws, false alarm 1e-6."""
    used, given = made(name, ONE), np.float32([[-9], [0.1], [9]])
    bounded, norm, _ = clipped(used, given)
    np.testing.assert_allclose(bounded, np.clip(given, -C, C), rtol=1e-5)
    np.testing.assert_allclose(norm, np.abs(given[:, 0]), rtol=1e-5)
    assert used.certified_multiplier == pytest.approx(SIGMA)
    keys = jax.random.split(jax.random.key(0), 20_000)
    noise = jax.jit(jax.vmap(lambda key: used.perturb(key, jnp.zeros(1))))(keys)
    if used.noise == "laplace":
        assert np.abs(noise).mean() == pytest.approx(C * SIGMA, rel=8 / 20_000**0.5)
    else:
        assert_normal(np.asarray(noise, float), C * SIGMA)
