"""Mechanism audits of integer noise: the worst integer direction, bounds below each certificate, and faults found."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.stats
import tiers
from canary_runs import CLIENTS, CLIP, COMMON, FEDERATION, RECORDS, attacked, runs
from small import one_round, refused, regression, squared, start

import fedpriv as fp
from fedpriv.attacks import integer_scores
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.attacks.integer_scores import worst_shifts
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import Dropping, Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(0)
DELTA, KINDS = 1e-3, ("discrete_gaussian", "skellam")


def noise_of(kind, shares=10, deviation=1.0, squared_norm=9, dimension=8):
    return IntegerNoise(kind, shares, deviation**2, squared_norm, dimension)


def seen(noise, sampling=None, rounds=1, view="server_secagg", **options):
    drawn = sampling or Everyone(noise.shares)
    options = {"noise": noise.kind, "integers": noise} | options
    return declared(view, "client", noise.multiplier, drawn, rounds, **options)


def bound(made, draws=10_000, significance=1e-6):
    return lower_bounds(draw_scores([made], made.view, draws=draws), DELTA, significance).least


def certified(made):
    return certify_seen([made], DELTA, made.view).epsilon


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deviation", [0.3, 0.6, 2.0])
def test_no_other_direction_shows_more(kind, deviation):
    """Of all integer vectors of three coordinates, by divergences from the masses."""
    noise = noise_of(kind, 6, deviation, 17, 3)
    x = np.arange(-400, 401)
    of_one = [
        scipy.special.logsumexp(2 * noise.law.log_mass(x - k) - noise.law.log_mass(x))
        for k in range(5)
    ]
    all_vectors = itertools.combinations_with_replacement(range(5), 3)
    most = max(sum(of_one[k] for k in v) for v in all_vectors if sum(k * k for k in v) <= 17)
    shifts = worst_shifts(noise)
    assert sum(times * k**2 for k, times in shifts.items()) <= 17
    assert sum(shifts.values()) <= 3
    assert sum(times * of_one[k] for k, times in shifts.items()) >= 0.998 * most


GAUSSIANS, SKELLAM = (noise_of(kind, 10, 2.0, 30) for kind in KINDS)
LOST = Dropping(10, 10, 0.5, True)
SEEN = {
    "a share": seen(noise_of(KINDS[0], 1, 3.0), Everyone(10), view="server", adder="own"),
    "a poisson cohort": seen(SKELLAM, Poisson(50, 0.2), 5, "third_party"),
    "a cohort of one size": seen(GAUSSIANS, FixedSize(50, 10), 5, "third_party"),
    "shares vanish": seen(GAUSSIANS, participation=LOST),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_lower_bounds_keep_below_the_certificate(name):
    """Each of them is wrong with probability 1e-6 at most, where the certificate is right."""
    made = SEEN[name]
    found, most = bound(made), certified(made)
    assert 0 < found <= most


SUMS = [
    (KINDS[0], 10, 1.0, 10),
    (KINDS[1], 100, 3.0, 2000),
]


@tiers.every("sum_of", SUMS)
def test_more_than_sixty_percent_is_found(sum_of):
    """Where the noise of a member is 1 or more; a bound at 1 - 1e-6 keeps below the certificate."""
    kind, shares, deviation, squared_norm = sum_of
    made = seen(noise_of(kind, shares, deviation, squared_norm, 16))
    scores = draw_scores([made], made.view, draws=100_000)
    assert lower_bounds(scores, DELTA, 1e-6).least <= certified(made)
    assert lower_bounds(scores, DELTA).least > 0.6 * certified(made)


@pytest.mark.slow
def test_records_and_what_honest_members_leave():
    """As above, of single records of all clients, and of the shares of half of the clients."""
    kind, honest = "skellam", 0.5
    used = getattr(fp, kind)(CLIP, 0.8 / np.sqrt(CLIENTS), bits=16)
    local = fp.LocalSteps(
        fp.per_example(squared), fp.everyone(RECORDS), 1, COMMON["optimizer"], used
    )
    algorithm = fp.dp_sgd(local, sampler=fp.everyone(CLIENTS), together=True)
    every = fp.trace_round(algorithm, start(3), FEDERATION).seen(1, honest=honest)
    (made,) = (each for each in every if each.view == "server_secagg")
    assert made.unit == "record"
    assert plays_of(made).noise.share_variance >= 1
    told = certified(made)
    scores = draw_scores([made], made.view, draws=100_000)
    assert lower_bounds(scores, DELTA, 1e-6).least <= told
    assert lower_bounds(scores, DELTA).least > 0.6 * told
    among_records = attacked(algorithm, 1, made, per_client=1)
    with refused("records travel as integers; audit the mechanism", NoPlaceError):
        one_round(among_records)(KEY, among_records.init(start(3), FEDERATION), FEDERATION)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_too_little_noise_and_too_long_messages_are_refuted(kind, monkeypatch):
    """Of what certifies a third of the norm, or draws half of the shares: a false alarm has probability 1e-6."""
    noise = noise_of(kind, 10, 2.0, 90)
    told = certified(seen(replace(noise, squared_norm=30)))
    assert bound(seen(noise), 20_000) > told
    draw = integer_scores.draw_shares
    monkeypatch.setattr(
        integer_scores,
        "draw_shares",
        lambda key, noise, *given: draw(key, replace(noise, shares=3), *given),
    )
    made = seen(replace(noise, squared_norm=36))
    assert bound(made, 20_000) > certified(made)


@pytest.mark.slow
def test_canaries_are_scored_as_by_the_noise_of_the_integers():
    """The worst one moves the sum by C, in all four rounds: N(+-mu^2 / 2, mu^2).

    By Kolmogorov and Smirnov; false alarm 1e-6 each.
    """
    used = fp.skellam(CLIP, 2.0, bits=20)
    algorithm = fp.fed_avg(squared, sampler=fp.everyone(12), mechanism=used, **COMMON)
    present, scores = runs(algorithm, 200, 4, regression([2] * 12))
    for there in (True, False):
        law = scipy.stats.norm((there - 0.5), 1.0)
        assert scipy.stats.kstest(scores[present == there, 0], law.cdf).pvalue > 1e-6
    np.testing.assert_allclose(scores[:, 0], scores[:, 1], rtol=0, atol=1e-6)
