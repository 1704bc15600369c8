"""JoPEQ: the law of its noise, its privacy by the closed forms, and its limits."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from scipy import integrate, stats
from small import (
    FALSE_ALARM,
    certified,
    gradient,
    one_round,
    records,
    regression,
    squared,
    start,
    vector,
)

from fedpriv import everyone, full_batch
from fedpriv.algorithms.jopeq import private_laplace, private_t
from fedpriv.papers import jopeq, t_epsilon

pytestmark = pytest.mark.usefixtures("quick_to_compile")

N = 60_000


@cache
def noise_of(private, key=0, value=0.0, count=N):
    """What is added to `value`, f64[count]."""
    decoded, outside = jax.jit(private.apply)(jax.random.key(key), jnp.full(count, value))
    assert outside < 1e-4 or value
    return np.asarray(decoded, np.float64)


def laplace_plus_uniform(x, b, step):
    """Distribution function of Laplace(b) + U(-step / 2, step / 2)."""

    def primitive(y):  # of Laplace's
        return np.where(y < 0, b / 2 * np.exp(-np.abs(y) / b), y + b / 2 * np.exp(-np.abs(y) / b))

    return (primitive(x + step / 2) - primitive(x - step / 2)) / step


@tiers.every("bits", [8, 4])
def test_total_noise_is_laplace_plus_uniform_of_the_target_s_variance(bits):
    private = private_laplace(bits, 1.0, 2.0)
    b = 2 * 1.0 / 2.0
    total = noise_of(private)
    step = math.sqrt(12 * private.lattice.variance)
    assert private.scale == b
    assert 2 * private.added**2 + step**2 / 12 == pytest.approx(2 * b**2)
    law = stats.kstest(total, lambda x: laplace_plus_uniform(x, private.added, step))
    assert law.pvalue > FALSE_ALARM
    # Kurtosis makes the sample variance's standard deviation sqrt(5 / n) of the variance.
    assert abs(total.var() / (2 * b**2) - 1) < 5 * math.sqrt(5 / N)


@pytest.mark.slow
def test_with_enough_bits_the_total_is_the_target():
    """Kolmogorov-Smirnov against Laplace(2 gamma / epsilon): the distance to it is far below what is seen."""
    private = private_laplace(8, 1.0, 2.0)
    step = math.sqrt(12 * private.lattice.variance)
    x = np.linspace(-8, 8, 4001)
    distance = np.abs(
        laplace_plus_uniform(x, private.added, step) - stats.laplace(0, 1).cdf(x)
    ).max()
    assert distance < 2e-3
    assert stats.kstest(noise_of(private)[:20_000], stats.laplace(0, 1.0).cdf).pvalue > FALSE_ALARM
    # With 4 bits it visibly is not: the reason why the claim is not proved.
    coarse = private_laplace(4, 1.0, 2.0)
    assert stats.kstest(noise_of(coarse), stats.laplace(0, 1.0).cdf).pvalue < 1e-12


@pytest.mark.slow
def test_with_enough_bits_total_t_noise_has_the_target_s_covariance_and_law():
    private = private_t(9, 1.0, 3.0, degrees=8.0)
    total = noise_of(private, count=60_000).reshape(-1, 2)
    covariance = private.scale**2 * 8 / 6
    # Kurtosis 1.5 of t with 8 degrees: (3 + 1.5 - 1) / n.
    allowed = 5 * covariance * math.sqrt(3.5 / len(total))
    np.testing.assert_allclose(np.cov(total.T), covariance * np.eye(2), atol=allowed)
    for axis in range(2):
        found = stats.kstest(total[:20_000, axis] / private.scale, stats.t(8).cdf)
        assert found.pvalue > FALSE_ALARM


@pytest.mark.slow
def test_the_noise_does_not_depend_on_the_input():
    private = private_laplace(8, 1.0, 2.0)
    for given, inside in ((0.77, 0.77), (3.0, 1.0)):
        moved = noise_of(private, 1, given) - inside
        assert stats.ks_2samp(moved, noise_of(private)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("distance", "degrees"), [(0.5, 4.0), (2.8, 8.0), (10.0, 3.0)])
def test_epsilon_of_t_noise_is_the_largest_ratio(distance, degrees):
    law = stats.multivariate_t(shape=0.49 * np.eye(2), df=degrees)
    x = np.stack(np.meshgrid(np.linspace(-20, 20, 2001), np.linspace(-2, 2, 21)), -1)
    ratio = law.logpdf(x) - law.logpdf(x - np.array([distance, 0.0]))
    assert t_epsilon(distance, 0.7, degrees, 2) == pytest.approx(ratio.max(), rel=1e-3)
    assert t_epsilon(distance, 0.7, degrees, 2) >= ratio.max() - 1e-9


def test_settings_are_the_stated_epsilon():
    private = private_t(8, 1.5, 3.0, degrees=5.0)
    assert t_epsilon(2 * math.sqrt(2) * 1.5, private.scale, 5.0, 2) == pytest.approx(3.0)
    assert private.hidden > 3.0
    assert private_laplace(8, 1.5, 3.0).hidden > 3.0
    assert private_laplace(20, 1.5, 3.0).hidden == pytest.approx(3.0, rel=1e-6)


def test_no_noise_can_make_a_uniform_error_laplace():
    """Its characteristic function would be 0 at 2 pi / step, where Laplace's is not."""
    step, b = 0.5, 1.0
    t = 2 * math.pi / step
    uniform, _ = integrate.quad(lambda x: math.cos(t * x) / step, -step / 2, step / 2)
    assert abs(uniform) < 1e-12
    assert 1 / (1 + (b * t) ** 2) > 1e-3


FEDERATION = regression([4] * 5)
COMMON = {"sampler": everyone(5), "optimizer": lambda t: optax.sgd(0.1), "batches": full_batch()}


@tiers.every("noise", ["laplace", "t"])
def test_little_noise_is_fed_avg(noise):
    epsilon = {"laplace": 3e6, "t": 90.0}[noise]
    quiet = jopeq(squared, **COMMON, bits=22, bound=10.0, epsilon=epsilon, noise=noise)
    state = quiet.init(start(), FEDERATION)
    after, metrics = one_round(quiet)(jax.random.key(1), state, FEDERATION)
    theta = vector(start())
    mean = np.mean([gradient(theta, *records(FEDERATION, i)) for i in range(5)], 0)
    np.testing.assert_allclose(vector(after.params), theta - 0.1 * mean, atol=1e-4)
    assert metrics["uplink"].bits() == 22 * 4


@pytest.mark.slow
def test_what_is_claimed_and_certified():
    algorithm = jopeq(squared, **COMMON, bits=8, bound=1.0, epsilon=2.0)
    claim = algorithm.claim(5, 1e-5)
    assert (claim.epsilon, claim.sound, claim.view, claim.unit) == (2.0, False, "server", "client")
    for view in ("server", "third_party", "server_secagg"):
        found = certified(algorithm, 5, 1e-5, view=view)
        assert math.isinf(found.epsilon)
        assert "knows the dither" in found.assumptions[0]
