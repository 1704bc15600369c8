"""Dithered lattice quantization: nearest points, uniform errors, enough codes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from scipy import stats
from small import FALSE_ALARM

from fedpriv.compression.lattice import dithered, hexagonal, lattice_for, scalar

pytestmark = pytest.mark.usefixtures("quick_to_compile")

POINTS = np.array([(i + 0.5 * j, j * np.sqrt(3) / 2) for i in range(-9, 10) for j in range(-9, 10)])


def test_nearest_points_of_the_hexagonal_lattice():
    x = np.random.default_rng(0).uniform(-3, 3, (2000, 2)).astype(np.float32)
    nearest = POINTS[((x[:, None] - POINTS) ** 2).sum(-1).argmin(1)]
    for scale in (1.0, 0.2):
        found = jax.jit(hexagonal(scale).nearest)(np.float32(scale) * x)
        np.testing.assert_allclose(found, scale * nearest, atol=1e-5)


@pytest.mark.parametrize("lattice", [scalar(0.7), hexagonal(0.7)], ids=["scalar", "hexagonal"])
def test_the_error_is_uniform_on_the_cell_and_independent_of_the_input(lattice):
    n = 60_000
    z = np.asarray(jax.jit(lambda key: lattice.dither(key, (n,)))(jax.random.key(0)))
    np.testing.assert_allclose(jax.jit(lattice.nearest)(z), 0, atol=1e-6)  # in the cell
    np.testing.assert_allclose(np.cov(z.T), lattice.variance * np.eye(lattice.dim), atol=1e-3)
    code = jax.jit(lambda key, x: dithered(key, x, lattice, 100.0))
    for x in (0.0, 0.31, -7.7):
        decoded, outside = code(jax.random.key(1), jnp.full(n, x))
        assert outside == 0
        error = np.asarray(decoded, np.float64) - np.float32(x)
        if lattice.dim == 1:
            law = stats.uniform(-0.35, 0.7)
            assert stats.kstest(error, law.cdf).pvalue > FALSE_ALARM
        else:  # as the dither, which fills the hexagon
            pairs = error.reshape(-1, 2)
            for axis in range(2):
                assert stats.ks_2samp(pairs[:, axis], z[:, axis]).pvalue > FALSE_ALARM
            np.testing.assert_allclose(np.cov(pairs.T), lattice.variance * np.eye(2), atol=1e-3)


def test_the_hexagonal_dither_is_uniform():
    """Equal counts in cells of equal area: six triangles of the hexagon."""
    z = np.asarray(jax.jit(lambda key: hexagonal(1.0).dither(key, (60_000,)))(jax.random.key(3)))
    sector = np.floor((np.arctan2(z[:, 1], z[:, 0]) + np.pi / 6) / (np.pi / 3)).astype(int) % 6
    assert stats.chisquare(np.bincount(sector, minlength=6)).pvalue > FALSE_ALARM
    nearest = np.asarray(jax.jit(hexagonal(0.5).nearest)(z))
    inner = np.abs(nearest).max(1) < 1e-6  # a quarter of the area
    assert stats.binomtest(int(inner.sum()), len(z), 0.25).pvalue > FALSE_ALARM


@pytest.mark.parametrize("dim", [1, 2])
@tiers.every("bits", [3, 2, 4, 6])
def test_bits_number_all_points(bits, dim):
    lattice, limit = lattice_for(bits, 1.0, dim)
    n = 200_000
    x = np.random.default_rng(0).uniform(-limit, limit, (n, dim)).astype(np.float32)
    points = np.unique(np.round(np.asarray(jax.jit(lattice.nearest)(x)), 4), axis=0)
    assert len(points) <= 2 ** (bits * dim)
    assert limit < 1
    if dim == 1:
        assert len(points) == 2**bits - 1


def test_what_is_outside_is_counted():
    lattice, limit = lattice_for(4, 1.0, 1)
    x = jnp.where(jnp.arange(1000) < 250, 5.0, 0.0)
    coded = jax.jit(lambda key, x: dithered(key, x, lattice, limit))
    decoded, outside = coded(jax.random.key(0), x)
    assert outside == 0.25
    assert decoded.max() < 1.2
