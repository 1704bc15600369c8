"""Certificates against the accountants of dp-accounting, which compose the events that they hand over."""

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from small import refused

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
from fedpriv.privacy.integer_sums import IntegerNoise

DELTA = 1e-5


def release(multiplier, sampling, steps, view="third_party", **more):
    return Release(view, "client", multiplier, sampling, steps, **more)


def certified(*releases, **more):
    return certify_releases(releases, DELTA, releases[0].view, **more)


def asked(accountant, certificate):
    event, relation = certificate.dp_event()
    return accountant(neighboring_relation=relation).compose(event).get_epsilon(DELTA)


def laplace(multiplier, sampling, steps):
    return release(multiplier, sampling, steps, noise="laplace")


POISSON, FIXED, ALL = Poisson(100, 0.1), FixedSize(100, 10), Everyone(100)
LOCAL = Release("server", "record", 3.0, ALL, 4, local_steps=5, participation=Everyone(7))
BOTH = {
    "everyone": certified(release(3.0, ALL, 20)),
    "a server that knows that all take part": certified(release(3.0, FixedSize(9, 9), 9, "server")),
    "local steps": certified(LOCAL),
    "Poisson": certified(release(1.4, POISSON, 30)),
    "Laplace": certified(laplace(10.0, ALL, 30)),
    "honest members": certified(release(4.0, POISSON, 30), honest=0.5),
    "several": certified(
        release(1.4, POISSON, 30), release(4.0, ALL, 3), release(2.0, Poisson(100, 0.2), 3)
    ),
}
RDP_ALONE = {
    "fixed size, one replaced": certified(release(2.0, FIXED, 30)),
    "fixed size and everyone": certified(release(2.4, FIXED, 30), release(8.0, ALL, 3)),
    "the best run": certified(release(1.4, POISSON, 30), best_of=5.0),
}
LAPLACE_SAMPLED = certified(laplace(4.0, POISSON, 30))


@pytest.mark.parametrize("name", [*BOTH, *RDP_ALONE])
def test_renyi_divergences(name):
    certificate = (BOTH | RDP_ALONE)[name]
    assert asked(RdpAccountant, certificate) == pytest.approx(certificate.epsilons["RDP"], rel=1e-9)


@pytest.mark.parametrize("name", [*BOTH, "Laplace, sampled"])
def test_privacy_losses(name):
    """Both round losses up, on grids of their own: dp-accounting's has steps of 1e-4."""
    certificate = BOTH.get(name, LAPLACE_SAMPLED)
    assert asked(PLDAccountant, certificate) == pytest.approx(certificate.epsilons["PLD"], rel=1e-4)


@pytest.mark.parametrize(("capacity", "largest"), [(25, 1.001), (12, 1.2)])
def test_cut_cohorts(capacity, largest):
    """dp-accounting's bound of a cut is above ours; see `Poisson.cases`."""
    certificate = certified(release(1.4, Poisson(100, 0.1, capacity), 30))
    assert 1 <= asked(PLDAccountant, certificate) / certificate.epsilons["PLD"] < largest


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


@pytest.mark.parametrize(
    "seen",
    [
        release(2.0, POISSON, 3, "server"),
        release(2.0, Allocation(100, 4), 3),
        release(2.0, WithReplacement(100, 4, 0.02), 3),
        release(2.0, Dropping(100, 10, 0.2), 3),
        release(2.0, Poisson(100, 0.1, 25, "remembered"), 3),
        laplace(9.0, FIXED, 3),
        Release("third_party", "record", 2.0, POISSON, 3, participation=FIXED),
    ],
)
def test_what_has_no_event(seen):
    certificate = certified(seen)
    with pytest.raises(ValueError, match="dp-accounting has no event for 3 x"):
        certificate.dp_event()


@pytest.mark.parametrize("kind", ["discrete_gaussian", "skellam"])
@pytest.mark.parametrize("sampling", [ALL, FIXED])
def test_integer_noise_has_no_event(kind, sampling):
    """Not even that of real noise, which is exact to 1e-6 at best."""
    noise = IntegerNoise(kind, 100, 4.0, 100, 5)
    seen = release(noise.multiplier, sampling, 3, noise=kind, integers=noise)
    with refused("of integers; compare a run with fp.gaussian of noise_multiplier=2$"):
        certified(seen).dp_event()
