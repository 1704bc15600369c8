"""Is the noise what is declared? A statistical check in the whitened space, with a stated false-alarm rate."""

from collections.abc import Callable

import jax
import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6  # of a correct mechanism, had its seeds not been fixed; shared by the four parts
DISTRIBUTIONS = {"gaussian": stats.norm(), "laplace": stats.laplace(scale=2**-0.5)}  # variance 1


def check_noise(
    draw: Callable[[jax.Array], jax.Array],
    std: float | np.ndarray,
    noise: str = "gaussian",
    draws: int = 4000,
    seed: int = 0,
) -> None:
    """Draws from `draw(key) -> f32[d]` are independent over keys and coordinates, centred, and of the declared law.

    In the whitened space z = draw / std: the mean (chi-square over the coordinates), the variances (each coordinate's
    on its own), the correlations (chi-square over the pairs) and the distribution (Kolmogorov-Smirnov).
    """
    keys = jax.random.split(jax.random.key(seed), draws)
    z = np.asarray(jax.lax.map(draw, keys), np.float64) / std
    n, d = z.shape
    alarm = FALSE_ALARM / 4
    assert n * np.sum(z.mean(0) ** 2) < stats.chi2.isf(alarm, d), "mean"

    fourth = DISTRIBUTIONS[noise].moment(4)  # the variance of z^2 is fourth - 1
    excess = np.sqrt(n / (fourth - 1)) * (np.mean(z**2, 0) - 1)
    assert np.all(np.abs(excess) < stats.norm.isf(alarm / 2 / d)), "variance"

    products = (z.T @ z / np.sqrt(n))[np.triu_indices(d, 1)]
    assert np.sum(products**2) < stats.chi2.isf(alarm, len(products)), "covariance"

    order = np.random.default_rng(seed).permutation(z.size)[:10_000]
    assert stats.kstest(z.ravel()[order], DISTRIBUTIONS[noise].cdf).pvalue > alarm, "shape"
