"""Certificates against the accountants of dp-accounting, which compose the events that they hand over."""

from functools import cache

import dp_accounting as dp
import pytest
import tiers
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from fedpriv.privacy import (
    Allocation,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    Release,
    WithReplacement,
    certify_releases,
)

DELTA = 1e-5


def release(multiplier, sampling, steps, view="third_party", **more):
    return Release(view, "client", multiplier, sampling, steps, **more)


def certified(*releases, **more):
    return certify_releases(releases, DELTA, releases[0].view, **more)


def asked(accountant, certificate):
    event, relation = certificate.dp_event()
    grid = {"value_discretization_interval": 5e-4} if accountant is PLDAccountant else {}
    return accountant(neighboring_relation=relation, **grid).compose(event).get_epsilon(DELTA)


def laplace(multiplier, sampling, steps):
    return release(multiplier, sampling, steps, noise="laplace")


POISSON, FIXED, ALL = Poisson(100, 0.1), FixedSize(100, 10), Everyone(100)
LOCAL = Release("server", "record", 3.0, ALL, 4, local_steps=5, participation=Everyone(7))
BOTH = {
    "everyone": [release(3.0, ALL, 20)],
    "a server that knows that all take part": [release(3.0, FixedSize(9, 9), 9, "server")],
    "local steps": [LOCAL],
    "Poisson": [release(1.4, POISSON, 10)],
    "Laplace": [laplace(10.0, ALL, 10)],
    "honest members": [release(4.0, POISSON, 10)],
    "several": [
        release(1.4, POISSON, 6),
        release(4.0, ALL, 3),
        release(2.0, Poisson(100, 0.2), 3),
    ],
}
RDP_ALONE = {
    "fixed size, one replaced": [release(2.0, FIXED, 30)],
    "fixed size and everyone": [release(2.4, FIXED, 30), release(8.0, ALL, 3)],
    "the best run": [release(1.4, POISSON, 30)],
}
PLD_ALONE = {"Laplace, sampled": [laplace(4.0, POISSON, 10)]}
EVENTS = BOTH | RDP_ALONE | PLD_ALONE
HOW = {"honest members": {"honest": 0.5}, "the best run": {"best_of": 5.0}}


@cache
def certificate_of(name):
    return certified(*EVENTS[name], **HOW.get(name, {}))


def event_of(name):
    """What tells the events apart: options, whether several are composed, how units are drawn and shown, the noise."""
    first, *more = EVENTS[name]
    drawn = first.view, type(first.sampling), first.noise, first.local_steps > 1
    return *HOW.get(name, ()), "several" if more else drawn


@tiers.every("name", [*BOTH, *RDP_ALONE], kind=event_of)
def test_renyi_divergences(name):
    certificate = certificate_of(name)
    assert asked(RdpAccountant, certificate) == pytest.approx(certificate.epsilons["RDP"], rel=1e-9)


@tiers.every("name", [*BOTH, *PLD_ALONE], kind=event_of)
def test_privacy_losses(name):
    """Both round losses up, on grids of their own: dp-accounting's has steps of 5e-4."""
    certificate = certificate_of(name)
    assert asked(PLDAccountant, certificate) == pytest.approx(certificate.epsilons["PLD"], rel=1e-4)


@tiers.every("given", [(25, 3, 1.001), (25, 30, 1.001), (12, 30, 1.2)])
def test_cut_cohorts(given):
    """dp-accounting's bound of a cut is above ours; see `Poisson.cases`."""
    capacity, rounds, largest = given
    certificate = certified(release(1.4, Poisson(100, 0.1, capacity), rounds))
    assert 1 <= asked(PLDAccountant, certificate) / certificate.epsilons["PLD"] < largest


@pytest.mark.slow
def test_a_replaced_unit_moves_twice_as_far():
    """By 2 C in 30 rounds of noise 8 C, as one Gaussian of their squares; the PLD accountant doubles it once more."""
    event, relation = certified(release(2.4, FIXED, 3), release(8.0, ALL, 30)).dp_event()
    (whole,) = (each for each in event.events if isinstance(each.event, dp.GaussianDpEvent))
    assert relation == dp.NeighboringRelation.REPLACE_ONE
    assert whole.count / whole.event.noise_multiplier**2 == pytest.approx(30 * (2 / 8) ** 2)
    doubled = PLDAccountant(neighboring_relation=relation).compose(whole).get_epsilon(DELTA)
    assert doubled == pytest.approx(certified(release(2.0, ALL, 30)).epsilon, rel=1e-4)


def test_nothing_and_everything():
    nothing, bare = certified(release(2.0, ALL, 0)), certified(release(0.0, ALL, 3))
    for accountant in (RdpAccountant, PLDAccountant):
        assert asked(accountant, nothing) == 0
        assert asked(accountant, bare) == float("inf")


NO_EVENT = {
    "known draws": release(2.0, POISSON, 3, "server"),
    "blocks": release(2.0, Allocation(100, 4), 3),
    "with replacement": release(2.0, WithReplacement(100, 4, 0.02), 3),
    "dropping": release(2.0, Dropping(100, 10, 0.2), 3),
    "remembered cuts": release(2.0, Poisson(100, 0.1, 25, "remembered"), 3),
    "Laplace of fixed size": laplace(9.0, FIXED, 3),
    "draws within draws": Release("third_party", "record", 2.0, POISSON, 3, participation=FIXED),
}


@tiers.every("name", NO_EVENT, kind=lambda seen: type(seen.sampling))
def test_what_has_no_event(name):
    certificate = certified(NO_EVENT[name])
    with pytest.raises(ValueError, match="dp-accounting has no event for 3 x"):
        certificate.dp_event()
