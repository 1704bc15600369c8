"""Noise and rounds for a target epsilon."""

from functools import partial

import pytest
import tiers
from small import blank, certified, refused, sgd, squared, start

from fedpriv import (
    calibrate_noise,
    calibrate_rounds,
    calibrate_together,
    certify_together,
    dp_fed_avg,
    everyone,
    fed_avg,
    fixed_size,
    full_batch,
    poisson,
)
from fedpriv.certification.calibration import smallest
from fedpriv.privacy import Everyone, Release, certify_releases

DELTA = 6000**-1.1
COMMON = {"optimizer": sgd, "batches": full_batch()}


def algorithm(sigma, sampler=None):
    sampler = sampler or poisson(6000, 1 / 60, 165)
    return dp_fed_avg(squared, sampler=sampler, clip_norm=1.0, noise_multiplier=sigma, **COMMON)


NINE = fed_avg(squared, sampler=fixed_size(9, 3), **COMMON)
HERE = start(), blank(algorithm(1.0), 1)
AT_TEN = start(), blank(algorithm(1.0, everyone(10)), 1)
AT_NINE = start(), blank(NINE, 1)


@tiers.every("told", [("server_secagg", 0.8), ("third_party", 0.8), ("server", 1.0)])
def test_noise(told):
    view, honest = told
    target = {"epsilon": 2.0, "rounds": 50, "delta": DELTA, "view": view, "honest": honest}
    sigma = calibrate_noise(algorithm, *HERE, **target, tolerance=1e-3)

    def epsilon(sigma):
        return certified(algorithm(sigma), 50, DELTA, view=view, honest=honest).epsilon

    assert epsilon(sigma) <= 2.0 < epsilon(sigma * (1 - 2e-3))


def test_noise_against_the_closed_form():
    """Everyone, one round: the analytic Gaussian mechanism of Balle and Wang."""
    from dp_accounting import get_sigma_gaussian

    found = calibrate_noise(
        lambda s: algorithm(s, everyone(10)), *AT_TEN, epsilon=1.0, rounds=4, delta=1e-5
    )
    exact = 2 * get_sigma_gaussian(1.0, 1e-5)
    assert exact <= found <= exact * (1 + 2e-4)


@pytest.mark.slow
def test_claimed_noise_gives_the_paper_s_sigma():
    """Table 4: epsilon 1.01 at sigma 1.4 (and q = 1 / 60)."""
    budget = {"epsilon": 1.008, "rounds": 180, "delta": DELTA, "claimed": True}
    sigma = calibrate_noise(algorithm, *HERE, **budget, tolerance=3e-4)
    assert sigma == pytest.approx(1.4, rel=1e-3)


SEARCHED = {
    "everyone": (algorithm(40.0, everyone(10)), AT_TEN),
    "poisson": (algorithm(1.4), HERE),  # of which the claim of 180 rounds is 1.008
}


@tiers.every("name", SEARCHED)
def test_rounds(name):
    private, where = SEARCHED[name]

    def certificate(rounds):
        return certified(private, rounds, DELTA).epsilon

    def claim(rounds):
        return private.claim(rounds, DELTA).epsilon

    found = []
    for claimed, epsilon in ((True, claim), (False, certificate)):
        target = {"epsilon": 1.0, "delta": DELTA, "claimed": claimed}
        found.append(calibrate_rounds(private, *where, **target))
        assert epsilon(found[-1]) <= 1.0 < epsilon(found[-1] + 1)
    assert found[0] < found[1]
    assert name == "everyone" or found[0] < 180 < found[1]


@pytest.mark.slow
def test_rounds_that_are_wanted_anyway_end_the_search():
    assert calibrate_rounds(algorithm(1.4), *HERE, epsilon=5.0, delta=DELTA, at_most=37) == 37
    few = calibrate_rounds(algorithm(1.4), *HERE, epsilon=0.28, delta=DELTA, at_most=37)
    least, more = (certified(algorithm(1.4), rounds, DELTA).epsilon for rounds in (few, few + 1))
    assert least <= 0.28 < more
    assert few < 37


OF_BOTH = {  # noise -> runs: statistics whose noise is fixed before training, and one noise for several seeds
    "training": lambda s: [(algorithm(3.0), 1), (algorithm(s), 20)],
    "seeds": lambda s: [(algorithm(s), 20)] * 3,
}


@tiers.every("told", [("seeds", "server"), ("training", "third_party")])
def test_noise_of_several_runs(told):
    """At the noise that is found all runs together cost at most the target, and more just below it."""
    (runs, view), target = told, 2.0
    make = OF_BOTH[runs]
    options = {"delta": DELTA, "view": view, "honest": 0.9}
    sigma = calibrate_together(make, *HERE, epsilon=target, **options, tolerance=1e-2)

    def epsilon(sigma):
        return certify_together(make(sigma), *HERE, **options).epsilon

    assert epsilon(sigma) <= target < epsilon(sigma * (1 - 2e-2))


@pytest.mark.slow
def test_together_one_run_takes_the_noise_that_it_takes_alone():
    """And beside statistics that cost nothing; beside others more."""
    target = {"epsilon": 1.0, "delta": DELTA, "tolerance": 1e-2}
    training = partial(algorithm, sampler=everyone(10))
    alone = calibrate_noise(training, *AT_TEN, rounds=20, **target)
    quiet = training(8.0)

    def beside(*runs):
        return calibrate_together(lambda s: [*runs, (training(s), 20)], *AT_TEN, **target)

    assert beside() == alone == beside((quiet, 0))
    assert beside((quiet, 1)) > alone


def noise(**changes):
    calibrate_noise(algorithm, *HERE, **{"epsilon": 1.0, "rounds": 5, "delta": DELTA} | changes)


def rounds(sigma=1.4, **changes):
    calibrate_rounds(algorithm(sigma), *HERE, **{"epsilon": 1.0, "delta": DELTA} | changes)


def seen(multiplier, times):
    return Release("third_party", "client", multiplier, Everyone(10), times)


UNREACHABLE = {
    r"epsilon: 1\.0; no noise multiplier reaches it: nothing hides a client from third_party": lambda: (
        calibrate_noise(
            lambda s: NINE,
            *AT_NINE,
            epsilon=1.0,
            rounds=3,
            delta=0.1,
        )
    ),
    r"epsilon: 0\.1; .* is spent whatever the noise multiplier; let `make` use its argument": lambda: (
        calibrate_noise(lambda s: algorithm(1.0), *HERE, epsilon=0.1, rounds=3, delta=DELTA)
    ),
    r"epsilon: 0\.1; cannot be reached even with a noise multiplier of 1e\+09, which costs": lambda: (
        smallest(
            lambda s: certify_releases([seen(1.0, 3), seen(s, 1)], DELTA, "third_party"), 0.1, 0.01
        )
    ),
    r"sampler: made for 6000 clients": lambda: calibrate_together(
        lambda s: [(algorithm(s), 1), (NINE, 1)], *AT_NINE, epsilon=1.0, delta=DELTA
    ),
    r"epsilon: 1000000000\.0; is met by any": lambda: noise(epsilon=1e9, view="server_secagg"),
    r"epsilon: 0\.001; a single round costs": lambda: rounds(epsilon=1e-3),
    r"epsilon: 1\.0; no number of rounds reaches it: nothing hid": lambda: rounds(sigma=0.0),
    r"rounds do not reach it": lambda: rounds(sigma=9e5, view="server_secagg"),
}


@tiers.every("said", UNREACHABLE)
def test_what_cannot_be_reached_is_said(said):
    with refused(said):
        UNREACHABLE[said]()
