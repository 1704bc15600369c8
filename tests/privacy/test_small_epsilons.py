"""No grid gives away 1 % of an epsilon, however small: closed forms, integrals and the limit of loud noise."""

import math

import mpmath
import numpy as np
import pytest
import tiers
from pair_curves import epsilon_on_grids
from scipy.optimize import brentq
from small import blank, sgd, squared, start

from fedpriv import calibrate_noise, dp_fed_avg, full_batch, poisson
from fedpriv.privacy import (
    VIEWS,
    Allocation,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
    certify_seen,
    declared,
)
from fedpriv.privacy.certify import among
from fedpriv.privacy.played import plays_of
from fedpriv.proof.curves import add_delta, remove_delta
from fedpriv.proof.noise import gaussian_delta

MANY = 10**8


def release(multiplier, sampling, steps=1, view="third_party", **more):
    return declared(view, more.pop("unit", "client"), multiplier, sampling, steps, **more)


def certified(releases, delta, view="third_party"):
    return certify_seen(releases, delta, view).epsilon


def is_within_a_percent(found, delta_of, delta):
    """Not below the truth, a curve, and from 1e-5 on 1 % above it at most."""
    assert delta_of(found) <= delta * (1 + 1e-6)
    assert found < 1e-5 or delta_of(found / 1.01) >= delta


def sampled_delta(noise, separation, rate):
    """Both directions of one round of noise moved at a rate, by the outputs where the loss is above epsilon."""

    def above(x):  # Pr[noise > x]
        if noise == "gaussian":
            return mpmath.ncdf(-x)
        return mpmath.exp(-x) / 2 if x >= 0 else 1 - mpmath.exp(x) / 2

    def edge(ratio):  # where the moved density is so many times the other
        if ratio <= 0:
            return -mpmath.inf
        loss = mpmath.log(ratio)
        if noise == "gaussian":
            return loss / separation + separation / 2
        if loss >= separation:
            return mpmath.inf
        return -mpmath.inf if loss < -separation else (loss + separation) / 2

    def delta(epsilon):
        with mpmath.workdps(60):
            e, q = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(rate)
            x = edge((e - 1 + q) / q)
            remove = q * above(x - separation) - (e - 1 + q) * above(x)
            x = edge((1 / e - 1 + q) / q)
            add = (1 - above(x)) - e * (1 - (1 - q) * above(x) - q * above(x - separation))
            return max(remove, add, 0)

    return delta


@tiers.every("given", [(1e-3, 1e-8), (1e-6, 1e-18), (0.9, 1e-5)])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_one_round(noise, given):
    """By the outputs themselves, in 60 digits; a replaced unit as one that is moved twice as far."""
    rate, delta = given
    for multiplier in (0.3, 1.0, 30.0, 1e4):
        for sampling, neighbour, separation in (
            (Poisson(MANY, rate), "removed", 1 / multiplier),
            (FixedSize(10**6, round(rate * 10**6)), "replaced", 2 / multiplier),
        ):
            one = release(multiplier, sampling, noise=noise)
            found = epsilon_on_grids([one], neighbour, delta)
            is_within_a_percent(found, sampled_delta(noise, separation, rate), delta)


@tiers.every("delta", [1e-8, 1e-18])
@tiers.every("given", [(0.5, 1e-6), (1.0, 1e-3), (30.0, 0.1)])
def test_two_rounds(given, delta):
    """By an integral over the first round of the closed form of the second; heavy tails."""
    multiplier, rate = given
    x = np.linspace(-14, 14 + 1 / multiplier, 20_001)
    still, moved = (
        np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (0, 1 / multiplier)
    )
    loss = np.log1p(rate * np.expm1(x / multiplier - 0.5 / multiplier**2))
    remove, add = (lambda e, f=f: f(e, multiplier, rate) for f in (remove_delta, add_delta))
    ways = (
        ((1 - rate) * still + rate * moved, loss, remove, add),
        (still, -loss, add, remove),
    )

    def both(epsilon):
        found = []
        for density, first, there, back in ways:
            left = epsilon - first
            below = np.minimum(left, 0.0)
            second = -np.expm1(below) + np.exp(below) * back(-below)
            second = np.where(left >= 0, there(np.maximum(left, 0.0)), second)
            found.append(density @ second * (x[1] - x[0]))
        return max(found)

    found = certified([release(multiplier, Poisson(MANY, rate), 2)], delta)
    is_within_a_percent(found, both, delta)


def loud(view="third_party", **more):
    """Releases of noise so loud that all losses together are Gaussian, and their squared separation at multiplier 1."""

    def of(sampling, steps, squared, neighbour=None, **own):
        def made(multiplier):
            one = release(multiplier, sampling, steps, view, **more, **own)
            return [among(one, neighbour) if neighbour else one]

        return made, steps * squared

    return of


HIDDEN, KNOWN, RECORDS = loud(), loud("server"), loud(unit="record")
LOUD = {
    "poisson": HIDDEN(Poisson(1000, 0.1), 5000, 0.01),
    "rare": HIDDEN(Poisson(10**6, 1e-3), 5 * 10**6, 1e-6),
    "laplace": HIDDEN(Poisson(1000, 0.1), 5000, 0.01, noise="laplace"),
    "cut, hardly": HIDDEN(Poisson(1000, 0.1, 200), 5000, 0.01),
    "emptied": RECORDS(Poisson(1000, 0.1), 5000, 0.01, neighbour="emptied"),
    "fixed": HIDDEN(FixedSize(1000, 100), 5000, 0.04),
    "fixed laplace": HIDDEN(FixedSize(1000, 100), 5000, 0.04, noise="laplace"),
    "vanishing": HIDDEN(Dropping(1000, 100, 0.5, False), 5000, 0.01),
    "noise lost": HIDDEN(Dropping(1000, 100, 0.5, True), 5000, 4 * 50 * 100 / 1000**2),
    "block": HIDDEN(Allocation(1000, 10), 500, 0.1),
    "long block": HIDDEN(Allocation(1000, 300), 2000, 1 / 300),
    "everyone": HIDDEN(Everyone(1000), 500, 1.0),
    "everyone laplace": HIDDEN(Everyone(1000), 500, 1.0, noise="laplace"),
    "known": KNOWN(FixedSize(1000, 100), 50_000, 0.1),
    "known laplace": KNOWN(Poisson(1000, 0.1), 50_000, 0.1, noise="laplace"),
    "with replacement": KNOWN(WithReplacement(1000, 50, 1e-3), 50_000, 50 * (1e-3 + 49e-6)),
    "records of a client": RECORDS(
        Poisson(200, 0.1), 50_000, 0.1 * 0.1**2 * 5, local_steps=5, participation=FixedSize(100, 10)
    ),
}


def of_draw(entry):
    """How units are drawn, and what the noise is."""
    (seen,) = entry[0](1.0)
    return type(plays_of(seen).drawn), plays_of(seen).noise


@tiers.every("epsilon", [1e-3, 1e-5])
@tiers.every("kind", LOUD, kind=of_draw)
def test_many_loud_rounds(kind, epsilon):
    """As one Gaussian release of the same variance of the loss (Dong, Roth and Su 2022, Theorem 3.4)."""
    made, squared = LOUD[kind]
    delta = epsilon / 100
    mu = math.exp(
        brentq(lambda m: float(gaussian_delta(epsilon, math.exp(m))) - delta, -30, 3, xtol=1e-10)
    )
    releases = made(math.sqrt(squared) / mu)
    found = certified(releases, delta, releases[0].view)
    assert found == pytest.approx(epsilon, rel=1e-2)


@tiers.every("delta", [1e-5, 1e-18])
@tiers.every("separation", [0.1, 1e-5, 17.0])
def test_all_sizes_of_epsilon(separation, delta):
    """Everybody is drawn, and the closed form is not used: Balle and Wang's curve, towards all views."""

    def exact(epsilon):
        with mpmath.workdps(60):
            mu, e = mpmath.mpf(separation), mpmath.mpf(epsilon)
            return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)

    for rounds in (1, 1000):
        multiplier = math.sqrt(rounds) / separation
        drawn = release(multiplier, Poisson(10, 1.0), rounds)
        is_within_a_percent(epsilon_on_grids([drawn], "removed", delta), exact, delta)
        for view in VIEWS:
            everyone = release(multiplier, Everyone(10), rounds, view)
            is_within_a_percent(certified([everyone], delta, view), exact, delta)


def test_rare_loud_and_frequent_quiet_rounds():
    """Counts of rounds whose precisions differ by 10^7: rare ones decide about a part of delta alone."""
    rare = release(1.0, FixedSize(10**7, 1), 300, "server")
    often = release(5000.0, FixedSize(1000, 300), 300_000, "server")
    least, most = (certified([often], delta, "server") for delta in (1e-3, 1e-3 - 3e-5))
    assert least <= certified([rare, often], 1e-3, "server") <= most


@pytest.mark.slow
def test_cells_stay_few():
    """10^8 rounds, in each of which the loss is about 10^-8."""
    found = certified([release(1e6, Poisson(MANY, 0.01), 10**8)], 1e-5)
    is_within_a_percent(found, lambda epsilon: float(gaussian_delta(epsilon, 1e-4)), 1e-5)


@pytest.mark.slow
def test_losses_too_rare_for_delta_take_no_room():
    """Cohorts of two, of which another is in one of 20,000 rounds of a unit: the cut costs hardly anything."""
    whole, cut = (
        epsilon_on_grids(
            [release(0.629, Poisson(10_000, 1.01e-6, capacity), 1630)], "removed", 5.9e-6
        )
        for capacity in (None, 2)
    )
    assert whole <= cut <= 1.01 * whole


@pytest.mark.slow
def test_blocks_of_one_round():
    """As if everyone took part: Balle and Wang's curve, by grids, too."""
    one = release(68.9, Allocation(1000, 1), 139)
    everyone = release(68.9, Everyone(1000), 139)
    exact = certified([everyone], 0.068)
    assert certified([one], 0.068) == exact
    assert exact <= epsilon_on_grids([one], "removed", 0.068) <= 1.01 * exact


@pytest.mark.slow
def test_calibrated():
    def make(sigma):
        return dp_fed_avg(
            squared,
            sampler=poisson(1000, 0.1),
            clip_norm=1.0,
            noise_multiplier=sigma,
            optimizer=sgd,
            batches=full_batch(),
        )

    budget = {"epsilon": 1e-3, "rounds": 5000, "delta": 1e-5, "tolerance": 1e-3}
    found = calibrate_noise(make, start(), blank(make(1.0), 1), **budget)
    assert found == pytest.approx(12_202, rel=5e-3)
