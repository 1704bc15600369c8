"""Noise and rounds for a target epsilon."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import tiers
from small import blank, certified, refused, sgd, squared, start

from fedpriv import (
    calibrate_groups,
    calibrate_integers,
    calibrate_noise,
    calibrate_rounds,
    calibrate_together,
    certify_together,
    discrete_gaussian,
    dp_fed_avg,
    everyone,
    fed_avg,
    fixed_order,
    fixed_size,
    full_batch,
    grouped,
    poisson,
    trace_round,
)
from fedpriv.certification.calibration import least_noise
from fedpriv.privacy import Everyone, certify_seen, declared

DELTA = 6000**-1.1
COMMON = {"optimizer": sgd, "batches": full_batch()}


def algorithm(sigma, sampler=None):
    sampler = sampler or poisson(6000, 1 / 60, 165)
    return dp_fed_avg(squared, sampler=sampler, clip_norm=1.0, noise_multiplier=sigma, **COMMON)


NINE = fed_avg(squared, sampler=fixed_size(9, 3), **COMMON)
HERE = start(), blank(algorithm(1.0), 1)
AT_TEN = start(), blank(algorithm(1.0, everyone(10)), 1)
AT_NINE = start(), blank(NINE, 1)


class Calibrated(NamedTuple):
    """A calibration, and how its answer is checked.

    Attributes:
      kind: of the calibration.
      find: the answer.
      epsilon: of a number, by a certificate of its own.
      dearer: a number a little dearer than the answer.
    """

    kind: str
    find: Callable[..., Any]
    epsilon: Callable[[Any], float]
    dearer: Callable[[Any], Any]


def less_noise(sigma):
    return sigma * (1 - 2e-3)


def noise_towards(kind, view="third_party", sampler=None, where=HERE, **options):
    """`calibrate_noise` of 50 rounds."""
    make = partial(algorithm, sampler=sampler)

    def find(**target):
        return calibrate_noise(make, *where, rounds=50, view=view, **options, **target)

    def epsilon(sigma):
        return certified(make(sigma), 50, DELTA, view=view, **options).epsilon

    return Calibrated(kind, find, epsilon, less_noise)


def rounds_of(kind, **options):
    """`calibrate_rounds` where everybody takes part."""
    private = algorithm(9.0, everyone(10))

    def find(tolerance, **target):
        return calibrate_rounds(private, *AT_TEN, **options, **target)

    def epsilon(rounds):
        return certified(private, rounds, DELTA, **options).epsilon

    return Calibrated(kind, find, epsilon, lambda rounds: rounds + 1)


def together(make, view):
    """`calibrate_together` of nine in ten honest members."""
    options = {"view": view, "honest": 0.9}

    def epsilon(sigma):
        return certify_together(make(sigma), *HERE, DELTA, **options).epsilon

    return Calibrated(
        "together", partial(calibrate_together, make, *HERE, **options), epsilon, less_noise
    )


def of_a_group():
    """`calibrate_groups` of clip scales, the number of one of two groups."""
    labels = ["strict", "lax"] * 50

    def make(scales):
        return algorithm(2.0, grouped(labels, fixed_order(100, 20), clip_scales=scales))

    where = start(), blank(make({"strict": 1.0, "lax": 1.0}), 1)

    def find(epsilon, **target):
        budgets = {"strict": epsilon, "lax": 2 * epsilon}
        return calibrate_groups(make, *where, epsilon=budgets, rounds=50, **target)

    def epsilon(scales):
        traced = trace_round(make(scales), *where)
        return traced.certify(50, DELTA).of_groups["strict"].epsilon

    return Calibrated(
        "groups", find, epsilon, lambda scales: scales | {"strict": scales["strict"] * (1 + 2e-3)}
    )


def integers():
    """`calibrate_integers` of 14 bits, whose tolerance is its own."""
    d = sum(leaf.size for leaf in start().values())

    def find(tolerance, **target):
        options = {"clients": 10, "dimension": d, "clip_norm": 1.0, "rounds": 4, "bits": 14}
        return calibrate_integers(**options, **target).noise_multiplier

    def epsilon(sigma):
        mechanism = discrete_gaussian(1.0, sigma, bits=14)
        summing = fed_avg(squared, sampler=everyone(10), mechanism=mechanism, **COMMON)
        return certified(summing, 4, DELTA, view="server_secagg").epsilon

    return Calibrated("integers", find, epsilon, less_noise)


OF_BOTH = {  # noise -> runs: statistics whose noise is fixed before training, and one noise for several seeds
    "training": lambda s: [(algorithm(3.0), 1), (algorithm(s), 20)],
    "seeds": lambda s: [(algorithm(s), 20)] * 3,
}
CALIBRATED = {
    "noise towards honest servers": noise_towards("noise", "server_secagg", honest=0.8),
    "noise towards a third party": noise_towards("noise", honest=0.8),
    "noise towards a server": noise_towards("noise", "server"),
    "noise of the best of 4": noise_towards("best", sampler=everyone(10), where=AT_TEN, best_of=4),
    "noise of the best of 4, sampled": noise_towards("best", best_of=4),
    "rounds": rounds_of("rounds"),
    "rounds of the best of 4": rounds_of("rounds of the best", best_of=4),
    "seeds together": together(OF_BOTH["seeds"], "server"),
    "statistics and training": together(OF_BOTH["training"], "third_party"),
    "groups": of_a_group(),
    "integers": integers(),
}


@tiers.every("name", CALIBRATED)
def test_what_is_found_costs_at_most_the_target_and_a_little_dearer_more(name):
    """Each by a certificate of its own, with the options that it was found for."""
    _, find, epsilon, dearer = CALIBRATED[name]
    found = find(epsilon=2.0, delta=DELTA, tolerance=1e-3)
    assert epsilon(found) <= 2.0 < epsilon(dearer(found))


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
    return declared("third_party", "client", multiplier, Everyone(10), times)


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
        least_noise(
            lambda s: certify_seen([seen(1.0, 3), seen(s, 1)], DELTA, "third_party"), 0.1, 0.01
        )
    ),
    r"sampler: made for 6000 clients": lambda: calibrate_together(
        lambda s: [(algorithm(s), 1), (NINE, 1)], *AT_NINE, epsilon=1.0, delta=DELTA
    ),
    r"epsilon: 1000000000\.0; is met by any": lambda: noise(epsilon=1e9, view="server_secagg"),
    r"epsilon: 0\.001; a single round costs": lambda: rounds(epsilon=1e-3),
    r"epsilon: 1\.0; no number of rounds reaches it: nothing hid": lambda: rounds(sigma=0.0),
    r"view: 'server'; a server sees every run, not only the best": lambda: noise(
        view="server", best_of=4
    ),
    r"view: 'server_secagg'; a server sees every run, not only": lambda: rounds(
        view="server_secagg", best_of=4
    ),
    r"best_of: 4\.0; a claim is of one run; leave one of": lambda: noise(claimed=True, best_of=4),
    r"rounds do not reach it": lambda: rounds(sigma=9e5, view="server_secagg"),
}


@tiers.every("said", UNREACHABLE)
def test_what_cannot_be_reached_is_said(said):
    with refused(said):
        UNREACHABLE[said]()
