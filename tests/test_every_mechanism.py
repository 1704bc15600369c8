"""Laws of every mechanism: it clips as NumPy does, to a bound that holds and is reached, and its limits.

What noise each adds, says `privacy/test_declared_noise.py`; what is hardest to hide, `attacks/test_mechanism_audit.py`.
"""

import functools
import math
from typing import Any, NamedTuple

import clip_sets
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from every_mechanism import ENTRIES, Size, that
from haar import haar
from small import assert_identical, assert_normal

import fedpriv as fp
from fedpriv.mechanisms.clipping import coefficients, per_level
from fedpriv.mechanisms.described import worst_case_of
from fedpriv.mechanisms.haar import padded_length
from fedpriv.proof.bound import LEAST_CLIP

pytestmark = pytest.mark.usefixtures("quick_to_compile")

C, SIGMA = 0.7, 1.3
WHOLE, PADDED, LONG, ONE = Size(16, 3), Size(11, 3), Size(1024, 3), Size(1, 1)
FREE = that(lambda entry: not entry.joint)
"""Of one contribution."""
NEVER_SILENT = {"changing": "its noise decays from one that it has"}
BROKEN = (math.nan, math.inf, -math.inf)


def made(name, size, clip_norm=C, noise_multiplier=SIGMA):
    """To be called in a program: some compute their worst cases."""
    used = ENTRIES[name].make(size, clip_norm, noise_multiplier)
    return used.in_round(0) if name == "changing" else used


def parts_of(name, size):
    """(entry, size, C, sigma) for each part of a contribution."""
    entry = ENTRIES[name]
    return entry.parts(size, C, SIGMA) if entry.joint else [(entry, size, C, SIGMA)]


def contributions(entry, size):
    """f32[n, d]: of all lengths, in all directions; then those that are broken."""
    d = size.d
    random = np.random.default_rng(0).normal(size=d)
    found = [scale * random for scale in (0, 1e-3, 0.2, 1, 1e3, 1e15)]
    found += [100 * np.ones(d), 50.0 * (-1.0) ** np.arange(d), 1e3 * np.eye(d)[d - 1]]
    found += [1e3 * entry.set(size).saturated(d)]
    broken = [*BROKEN, math.nan if d == 1 else 1e30]  # whose square is beyond float32
    return np.float32([*found, *(np.where(np.arange(d) == d // 2, x, random) for x in broken)])


def as_leaves(u, size):
    return [u[:, leaf] for leaf in clip_sets.leaves_of(size)]


def vectors(leaves):
    """f64[n, d]"""
    return np.concatenate([np.asarray(x, np.float64) for x in leaves], axis=1)


class Clipped(NamedTuple):
    """Contributions.

    Attributes:
      given, bounded, norm: they, what is left of them, and the norms that are told.
      seen: what is left in units of the noise, of what is not padded.
      multiplier: that is certified.
    """

    given: Any
    bounded: Any
    norm: Any
    seen: Any
    multiplier: float


def sizes_of(name):
    """Padding is of Haar's transform."""
    used = [entry for entry, *_ in parts_of(name, WHOLE)]
    padded = any(e.clipping in (coefficients, per_level) or not e.white for e in used)
    return (WHOLE, PADDED) if padded else (WHOLE,)


@functools.cache
def clipped(name, size):
    parts = [as_leaves(contributions(entry, own), own) for entry, own, *_ in parts_of(name, size)]
    given = tuple(parts) if ENTRIES[name].joint else parts[0]

    @jax.jit
    def run(given):
        used = made(name, size)

        def one(u):
            bounded, norm = used.clip(u)
            return bounded, norm, worst_case_of(used).whiten(bounded) if size is WHOLE else None

        return jax.lax.map(one, given), used.certified_multiplier

    found, multiplier = run(given)
    return Clipped(given, *found, float(multiplier))


def each_part(name, size, *trees):
    """((entry, size, C, sigma), the vectors of each tree) of every part."""
    by_part = zip(*trees, strict=True) if ENTRIES[name].joint else [trees]
    for part, own in zip(parts_of(name, size), by_part, strict=True):
        yield part, *map(vectors, own)


def has_a_norm(u, order):
    """bool[n]: whether float32 can hold it, which for l2 takes squares."""
    largest = np.abs(u).max(axis=1)
    return np.isfinite(largest) & (largest < (1e19 if order == 2 else 1e38))


@tiers.every("name", ENTRIES)
def test_it_clips_as_numpy_does(name):
    """What is within stays to the bit, where nothing is transformed back; what has no norm becomes 0."""
    for size in sizes_of(name):
        given, bounded, norm, *_ = clipped(name, size)
        for i, (part, u, found) in enumerate(each_part(name, size, given, bounded)):
            entry, own, bound, _ = part
            into = entry.set(own)
            kept = has_a_norm(u, into.order)
            assert not found[~kept].any()
            u, found = u[kept], found[kept]
            np.testing.assert_allclose(found, into.clip(u, bound), rtol=0, atol=2e-6 * bound)
            if entry.clipping is not per_level:
                inside = into.lengths(u).max(axis=1) <= bound
                np.testing.assert_array_equal(found[inside], u[inside])
            if i == 0:  # whose norm is told
                np.testing.assert_allclose(norm[kept], into.told(u), rtol=1e-5)
                assert not np.isfinite(norm[~kept]).any()


def in_units_of_noise(entry, size, u, std):
    """f64[n]: the length of u, by the covariance of what is left of the noise of a padded vector."""
    if entry.white:
        return np.linalg.norm(u, entry.set(size).order, axis=1) / std
    m = padded_length(size.d)
    transform, weights = haar(m)
    back = np.linalg.inv(transform) / weights
    root = np.linalg.cholesky((back @ back.T)[: size.d, : size.d])
    louder = m**0.5 * entry.longest(size) if entry.calibrated else 1.0  # ||W H|| = sqrt(m)
    return np.linalg.norm(np.linalg.solve(root, u.T), axis=0) / (louder * std)


@tiers.every("name", ENTRIES)
def test_the_bound_holds_and_is_reached(name):
    """In l2 it is what the entry says, in units of the noise 1 / multiplier: less, if anything, for a padded vector."""
    for size in sizes_of(name):
        _, bounded, _, seen, multiplier = clipped(name, size)
        squares, least = 0.0, 1 - 1e-5 if size is WHOLE else 0.0
        for (entry, own, bound, sigma), u in each_part(name, size, bounded):
            longest = np.linalg.norm(u, entry.set(own).order, axis=1).max()
            assert least <= longest / (bound * entry.longest(own)) <= 1 + 1e-6
            squares = squares + in_units_of_noise(entry, own, u, bound * sigma) ** 2
        assert least <= np.sqrt(squares).max() * multiplier <= 1 + 1e-5
        if size is WHOLE:
            order = 1 if name == "laplace" else 2
            shown = np.linalg.norm(np.asarray(seen, float), order, axis=1)
            np.testing.assert_allclose(shown, np.sqrt(squares), rtol=1e-4)


def of_all_sizes(into):
    """f32[n, d]: times powers of ten that float32 has; squares of the least are 0, of the largest infinite."""
    d, rng, found = LONG.d, np.random.default_rng(0), []
    directions = np.ones(d), rng.normal(size=d), 10.0 ** rng.uniform(-8, 0, size=d), np.eye(d)[3]
    for u in (*directions, into.saturated(d)):
        sizes = 10.0 ** np.arange(-42, 39, 5)
        found += [scale * u for scale in sizes if scale * np.abs(u).max() < 3e38]
    return np.float32(found)


CLIPPING = tiers.one_of_each(FREE, lambda entry: entry.clips)


@tiers.every("name", CLIPPING, kind=lambda entry: entry.clips)
def test_no_size_gets_past_the_bound(name):
    """Nor past that of a level or a leaf by itself."""
    into, bounds = ENTRIES[name].set(LONG), (1.0, LEAST_CLIP, 1 / LEAST_CLIP)
    u = of_all_sizes(into)

    @jax.jit
    def clip(us):
        used = [made(name, LONG, bound) for bound in bounds]
        return jax.lax.map(lambda u: [each.clip(u) for each in used], us)

    for bound, (leaves, norm) in zip(bounds, clip(as_leaves(u, LONG)), strict=True):
        found = vectors(leaves)
        lengths, told = into.lengths(found), np.isfinite(norm)
        assert lengths.max() <= bound * (1 + 1e-3)
        assert not found[~told].any()
        assert (into.told(u)[~told] > 1e18).all()
        if len(into.parts) == 1 and into.order == 2:
            expected = np.minimum(into.told(u), bound)[told]
            np.testing.assert_allclose(lengths[told, 0], expected, rtol=1e-3, atol=1e-36)


@tiers.every("name", FREE, kind=lambda entry: entry.clips)
def test_without_bound_and_noise_nothing_changes(name):
    """Not even what is no number."""
    if name in NEVER_SILENT:
        with pytest.raises(ValueError, match=r"^start: "):
            made(name, PADDED, math.inf, 0.0)
        return
    entry, told = ENTRIES[name], []
    u = contributions(entry, PADDED)
    given = as_leaves(u, PADDED)

    @jax.jit
    def run(given):
        free = made(name, PADDED, math.inf, 0.0)
        told.append((free.certified_multiplier, bool(free.reason)))
        noisy = free.perturb(jax.random.key(0), given)
        return jax.lax.map(lambda u: free.clip(u)[0], given), noisy

    found, noisy = run(given)
    assert told == [(0, True)]
    if entry.clipping is per_level:
        kept = has_a_norm(u, 2)
        for one, other in zip(vectors(found)[kept], u[kept], strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * np.abs(other).max())
    else:
        assert_identical(found, given)
    assert_identical(noisy, given)


def test_who_is_never_silent():
    assert list(NEVER_SILENT) == ["changing"]


@tiers.every("name", FREE, kind=lambda entry: (entry.clips is fp.laplace, entry.white))
def test_a_single_parameter(name):
    """It is clipped to C, and hidden by noise of one deviation: 20,000 draws, false alarm 1e-6."""
    used, given = made(name, ONE), np.float32([[-9], [0.1], [9]])
    bounded, norm = jax.jit(lambda us: jax.lax.map(used.clip, us))(given)
    np.testing.assert_allclose(bounded, np.clip(given, -C, C), rtol=1e-5)
    np.testing.assert_allclose(norm, np.abs(given[:, 0]), rtol=1e-5)
    assert used.certified_multiplier == pytest.approx(SIGMA)
    keys = jax.random.split(jax.random.key(0), 20_000)
    noise = jax.jit(jax.vmap(lambda key: used.perturb(key, jnp.zeros(1))))(keys)
    if used.noise == "laplace":
        assert np.abs(noise).mean() == pytest.approx(C * SIGMA, rel=8 / 20_000**0.5)
    else:
        assert_normal(np.asarray(noise, float), C * SIGMA)
