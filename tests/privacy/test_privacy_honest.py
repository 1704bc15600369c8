"""Those who drop out or collude take their share of the noise away."""

import math

import pytest

from fedpriv.privacy import VIEWS, Everyone, FixedSize, Poisson, Release, certify_releases

DELTA = 6000**-1.1


def release(view="third_party", multiplier=1.4, sampling=None, **more):
    return Release(view, "client", multiplier, sampling or Poisson(6000, 1 / 60), 180, **more)


def test_ten_of_a_hundred():
    """The anchor: sigma_eff = 1.4 sqrt(0.9)."""
    certificate = certify_releases([release()], DELTA, "third_party", honest=0.9)
    assert certificate.epsilon == pytest.approx(0.6884, rel=1e-3)
    assert any("0.9 of the noise's variance is added" in text for text in certificate.assumptions)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("sampling", [Everyone(6000), FixedSize(6000, 100), Poisson(6000, 1 / 60)])
def test_fewer_shares_cost_more(view, sampling):
    found = [
        certify_releases([release(view, 5.0, sampling)], DELTA, view, honest=h).epsilon
        for h in (1.0, 0.5, 0.1)
    ]
    assert found == sorted(found)
    assert found[0] < found[1] < found[2]


def test_noise_of_one_s_own_does_not_depend_on_others():
    own = release("server", noise_is_split=False)
    whole, half = (certify_releases([own], DELTA, "server", honest=h) for h in (1.0, 0.5))
    assert whole == half


def test_fixed_cohorts_may_not_be_told_of():
    certificate = certify_releases(
        [release(sampling=FixedSize(6000, 100))], DELTA, "third_party", honest=0.9
    )
    assert any("without telling whether it took part" in text for text in certificate.assumptions)


@pytest.mark.parametrize("honest", [0.0, -0.5, 1.1, math.nan])
def test_a_fraction_is_wanted(honest):
    with pytest.raises(ValueError, match=r"honest = .*: give a fraction of the cohort in \(0, 1\]"):
        certify_releases([release()], DELTA, "third_party", honest=honest)
