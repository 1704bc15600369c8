"""Integers keep their promise on the error: roundings' bias, too, which adds up over clients as noise does not."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from dp_accounting import get_epsilon_gaussian
from scipy import optimize, stats
from small import FALSE_ALARM

import fedpriv as fp
from fedpriv.mechanisms.integers import IntegerSum, integer_sum
from fedpriv.mechanisms.rounding import DEVIATIONS, round_within, rounded_bound, rounding_bias

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DELTA, FAR = 1e-5, ("all equal", "one coordinate")


def longest(kind, d):
    """A message of norm 1."""
    x = {
        "all equal": np.ones(d),
        "one coordinate": np.eye(1, d)[0],
        "random": np.random.default_rng(d).normal(size=d),
    }[kind]
    return (x / np.linalg.norm(x)).astype(np.float32)


def measured(used, messages, runs):
    """Root mean squares of the error of a coordinate of the sum, of as many messages as it is for, all the same."""

    def squares(key, message):
        public, noise, rounding = jax.random.split(key, 3)
        keys = jax.random.split(rounding, used.summed)
        total = jax.vmap(lambda k: used.encode(public, k, message))(keys).sum(0)
        found = used.decode(public, used.perturb(noise, total, None)[0], message)
        return jnp.mean((found - used.summed * message) ** 2)

    @jax.jit
    def mean(message):
        keys = jax.random.split(jax.random.key(7), runs)
        return jnp.mean(jax.lax.map(lambda key: squares(key, message), keys, batch_size=16))

    return [math.sqrt(float(mean(message))) for message in messages]


def at_most(error, numbers):
    """What is measured of so many numbers of that error stays below, but for one in a million."""
    return error * math.sqrt(stats.chi2.ppf(1 - FALSE_ALARM, numbers) / numbers)


# (noise, dimension, clients, epsilon, rounds, within)
PROMISES = [
    ("discrete_gaussian", 1, 1000, 20.0, 5, 1.2),
    ("skellam", 2, 1000, 20.0, 1, 1.5),
    ("discrete_gaussian", 1, 1, 2.0, 5, 1.01),
    ("discrete_gaussian", 5, 1000, 0.5, 1, 1.1),
    ("discrete_gaussian", 130, 1000, 20.0, 5, 1.2),
]


@pytest.mark.slow
@pytest.mark.parametrize("promise", PROMISES)
def test_the_error_is_within_what_calibration_promises(promise):
    """Of messages that are as long as they may be and all the same, against the real noise of that epsilon."""
    noise, d, clients, epsilon, rounds, within = promise
    asked = {"delta": DELTA, "rounds": rounds, "within": within, "noise": noise}
    found = fp.calibrate_integers(epsilon, clients=clients, dimension=d, clip_norm=1.5, **asked)
    made = found.mechanism().integers, 1.5, found.noise_multiplier, clients, d
    real = 1.5 * math.sqrt(rounds) * real_multiplier(epsilon)
    runs = max(20, 60 // d)
    errors = measured(integer_sum(*made), [1.4999 * longest(kind, d) for kind in FAR], runs)
    assert max(errors) <= at_most(within * real, runs * d)


def real_multiplier(epsilon):
    """Of real Gaussian noise, once."""
    return optimize.brentq(lambda m: get_epsilon_gaussian(m, DELTA) - epsilon, 0.05, 1e3)


# (noise, bits, noise multiplier, members, dimension, messages of a member)
SUMS = [
    ("discrete_gaussian", 14, 0.3, 30, 3, 10),
    ("skellam", 12, 0.5, 100, 2, 1),
    ("skellam", 20, 0.3, 1, 5, 200),
]


@pytest.mark.slow
@pytest.mark.parametrize("of", SUMS)
def test_a_sum_is_no_farther_off_than_it_says(of):
    noise, bits, sigma, members, d, each = of
    used = IntegerSum(noise, bits, 1.0, sigma, members, d, each)
    errors = measured(used, [0.9999 * longest(kind, d) for kind in FAR], 60)
    assert max(errors) <= at_most(used.error, 60 * d)


def law_of(x, squared_norm):
    """(all roundings, i64[2^d, d], their chances given that the norm is within the bound)."""
    low = np.floor(x)
    ups = np.array(list(itertools.product((0, 1), repeat=len(x))))
    chances = np.where(ups, x - low, 1 - (x - low)).prod(axis=1)
    chances[((low + ups) ** 2).sum(axis=1) > squared_norm] = 0
    return low + ups, chances / chances.sum(), chances.sum()


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_every_rounding_is_as_likely_and_as_little_biased_as_is_said(d):
    """By all roundings of vectors on the ball's surface and inside, exactly."""
    rng = np.random.default_rng(d)
    most = dict.fromkeys(DEVIATIONS, 0.0)
    for norm, deviations in itertools.product(rng.uniform(0.5, 12, 60), DEVIATIONS):
        (bound,) = rounded_bound(np.array([norm]), d, deviations)
        for x in [longest("all equal", d), longest("one coordinate", d), *rng.normal(size=(4, d))]:
            x = norm * rng.choice([1, 1 - 1e-9, 0.95]) * x / np.linalg.norm(x)
            roundings, chances, within = law_of(x, bound)
            assert within >= 1 - math.exp(-(deviations**2) / 2) - 1e-12
            bias = roundings.T @ chances - x
            assert all(bias * np.sign(x) <= 1e-9)  # towards zero
            most[deviations] = max(most[deviations], np.linalg.norm(bias))
    for deviations, found in most.items():
        assert found <= rounding_bias(d, deviations) + 1e-9
    assert most[math.inf] < 1e-9
    assert most[1.0] > 0.1


@tiers.every("x", [(0.4, -1.7, 2.2), (3.3,), (-2.6, 2.6)])
@pytest.mark.parametrize("deviations", [1.0, math.inf])
def test_numbers_are_rounded_by_that_law(x, deviations):
    """Chi-square of all roundings."""
    x, runs = np.array(x), 20_000
    (bound,) = rounded_bound(np.array([np.linalg.norm(x)]), len(x), deviations)
    roundings, chances, _ = law_of(x, bound)
    keys = jax.random.split(jax.random.key(0), runs)
    found = jax.jit(jax.vmap(lambda k: round_within(k, jnp.float32(x), int(bound))))(keys)
    counts = (np.asarray(found)[:, None] == roundings).all(axis=2).sum(axis=0)
    assert counts.sum() == runs
    seldom = chances * runs < 10
    assert counts[seldom].sum() <= 60
    expected = chances[~seldom] * runs
    statistic = ((counts[~seldom] - expected) ** 2 / expected).sum()
    assert statistic < stats.chi2.ppf(1 - FALSE_ALARM, max(1, len(expected) - 1))


def test_large_numbers_are_rounded_without_bias_too():
    """To a 16-bit coin: where number and coin would be added up first, a float's last digit is 2^-9 here."""
    x = jnp.full(2**18, 2.0**14 + 2**-9, jnp.float32)
    rounded = jax.jit(lambda x: round_within(jax.random.key(0), x, 2**60))(x)
    up = np.asarray(rounded).astype(np.int64) - 2**14
    assert set(np.unique(up)) == {0, 1}
    assert abs(up.sum() - 2**18 * 2**-9) < 5 * math.sqrt(2**18 * 2**-9)
