"""Schedules of clip norm and noise: what each round uses, and what the certificate composes."""

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from dp_accounting import pld
from noise import check_noise
from small import (
    assert_close,
    blank,
    certified,
    released,
    sgd,
    squared,
    start,
)

from fedpriv import (
    calibrate_noise,
    dynamic,
    everyone,
    fed_avg,
    full_batch,
    gaussian,
    mechanism,
    poisson,
)
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DELTA = 1e-5
FALLING = {"clip_decay": 3.0, "noise_decay": 2.0}


def averaging(used, sampler):
    return fed_avg(squared, sampler=sampler, optimizer=sgd, batches=full_batch(), mechanism=used)


def test_a_round_follows_the_formula():
    """As many parts as rounds: C_t = C rho_C^(-t / T), sigma_t = sigma rho^(-t / T), traced or not."""
    schedule = dynamic(gaussian(0.5, 1.2), rounds=12, parts=12, **FALLING)
    t = np.arange(12)
    expected = [0.5 * 3.0 ** (-t / 12), 1.2 * 2.0 ** (-t / 12)]
    np.testing.assert_allclose(jax.vmap(of_round(schedule))(t), expected, rtol=1e-6)
    each = [of_round(schedule)(int(i)) for i in t]
    np.testing.assert_allclose(np.transpose(each), expected, rtol=1e-6)


def of_round(schedule):
    def at(t):
        now = schedule.in_round(t)
        return now.clip_norm, now.noise_multiplier

    return at


@pytest.mark.parametrize("total", [1, 3, 10, 12])
@pytest.mark.parametrize("parts", [1, 3, 10])
def test_multipliers_are_what_the_rounds_use(total, parts):
    """For runs shorter and longer than the schedule, and for more parts than rounds."""
    schedule = dynamic(gaussian(0.5, 1.2), rounds=total, parts=parts, **FALLING)
    used = np.asarray(jax.vmap(of_round(schedule))(jnp.arange(25))[1])
    for rounds in (0, 1, 2, 7, 10, 11, 25):
        pieces = schedule.multipliers(rounds)
        assert sum(steps for steps, _ in pieces) == rounds
        assert len(pieces) <= parts
        assert all(steps > 0 for steps, _ in pieces) or rounds == 0
        declared = np.repeat([m for _, m in pieces], [steps for steps, _ in pieces])
        np.testing.assert_allclose(used[:rounds], declared, rtol=1e-6)


@tiers.every("when", [(30, 3), (0, 0), (5, 2)])
def test_the_noise_of_a_round(when):
    """C_t sigma_t, and contributions clipped to C_t; rounds from T on keep the last part."""
    t, piece = when
    schedule = dynamic(gaussian(0.5, 1.2), rounds=8, parts=4, **FALLING)
    bound, sigma = 0.5 * 3 ** (-piece / 4), 1.2 * 2 ** (-piece / 4)
    clipped, _ = jax.jit(lambda t, x: schedule.in_round(t).clip(x))(t, jnp.arange(7.0))
    assert np.linalg.norm(clipped) == pytest.approx(bound, rel=1e-6)

    def draw(key):
        return schedule.in_round(jnp.int32(t)).perturb(key, jnp.zeros(7))

    check_noise(draw, bound * sigma, draws=1000)


@pytest.mark.slow
def test_other_shapes_keep_their_multiplier():
    """Haar noise of multiplier sigma / sqrt(8) falls with sigma."""
    shaped = mechanism(flat(), haar_noise(6), clip_norm=0.5, noise_multiplier=1.2)
    schedule = dynamic(shaped, rounds=8, parts=2, noise_decay=4.0)
    assert schedule.multipliers(8) == (
        (4, shaped.certified_multiplier),
        (4, shaped.certified_multiplier / 2),
    )
    drawn = [schedule.in_round(t).perturb(jax.random.key(0), jnp.zeros(6)) for t in (0, 4)]
    assert_close(drawn[1], drawn[0] / 2)


def by_hand(sampling=None):
    """PLD of 4, 3 and 3 rounds of the thirds of FALLING, from sigma 2."""
    accountant = pld.PLDAccountant()
    for steps, piece in ((4, 0), (3, 1), (3, 2)):
        event = dp_accounting.GaussianDpEvent(2.0 * 2.0 ** (-piece / 3))
        if sampling is not None:
            event = dp_accounting.PoissonSampledDpEvent(sampling, event)
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
    return accountant.get_epsilon(DELTA)


@tiers.every("rate", [None, 1 / 16], lambda rate: 0)
def test_certificate_against_dp_accounting(rate):
    sampler = everyone(64) if rate is None else poisson(64, rate, 64)
    schedule = dynamic(gaussian(0.5, 2.0), rounds=10, parts=3, **FALLING)
    found = certified(averaging(schedule, sampler), 10, DELTA)
    assert found.epsilon == pytest.approx(by_hand(rate), rel=1e-3)
    if rate is None:  # Gaussian mechanisms add up in squares
        joint = sum(n / m**2 for n, m in schedule.multipliers(10)) ** -0.5
        whole = certified(averaging(gaussian(0.5, joint), sampler), 1, DELTA)
        assert found.epsilon == pytest.approx(whole.epsilon, rel=1e-3)


@pytest.mark.slow
def test_calibrated_noise_meets_the_budget():
    def make(sigma):
        used = dynamic(gaussian(0.5, sigma), rounds=10, parts=3, **FALLING)
        return averaging(used, everyone(64))

    target = {"epsilon": 3.0, "rounds": 10, "delta": DELTA}
    sigma = calibrate_noise(make, start(), blank(make(1.0)), **target)
    spent = certified(make(sigma), 10, DELTA).epsilon
    assert 3.0 * (1 - 1e-3) <= spent <= 3.0
    assert certified(make(sigma), 11, DELTA).epsilon > 3.0


def test_it_declares_itself():
    schedule = dynamic(gaussian(0.5, 1.2), rounds=8)
    assert (schedule.noise, schedule.reason) == ("gaussian", "")
    shares = released(averaging(schedule, everyone(4)), 8)["server"]
    assert [plays_of(each).multiplier for each in shares] == pytest.approx(
        [m / 2 for _, m in schedule.multipliers(8)]
    )
