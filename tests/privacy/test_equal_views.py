"""Equal releases are certified once, whoever looks."""

from dataclasses import replace

import pytest
from fedpriv.privacy.release_normal_form import normal_form

from fedpriv.privacy import VIEWS, Everyone, Poisson, Release, certify_releases
from fedpriv.privacy.certify import epsilons_of
from fedpriv.privacy.relations import relation_of


@pytest.fixture
def accounted():
    """How often the accountants were asked, from an empty cache."""
    epsilons_of.cache_clear()
    yield lambda: epsilons_of.cache_info().misses
    epsilons_of.cache_clear()


RECORDS = [Release(v, "record", 1.3, Poisson(80, 0.1), 7, participation=Everyone(5)) for v in VIEWS]
CLIENTS = [
    Release(v, "client", 1.7, Everyone(20), 9, adder=adder)
    for v, adder in zip(VIEWS, ("server", "own", "enclave"), strict=True)
]


@pytest.mark.parametrize("releases", [RECORDS, CLIENTS])
def test_three_equal_views_are_accounted_for_once(accounted, releases):
    found = [certify_releases(releases, 1e-5, view) for view in VIEWS]
    assert accounted() == 1
    assert len({c.epsilon for c in found}) == 1
    assert [c.view for c in found] == list(VIEWS)  # what is said of a view stays its own
    found[0].epsilons.clear()  # and what a caller does to one certificate, too
    assert certify_releases(releases, 1e-5, "third_party").epsilons == found[1].epsilons


def test_views_that_differ_are_not_mixed_up(accounted):
    less = [replace(r, multiplier=r.multiplier / 2) if r.view == "server" else r for r in CLIENTS]
    by_view = {view: certify_releases(less, 1e-5, view).epsilon for view in VIEWS}
    assert accounted() == 2
    for view, epsilon in by_view.items():
        alone = [r for r in less if r.view == view]
        direct = epsilons_of.__wrapped__(normal_form(alone), relation_of(alone, view), 1e-5)
        assert epsilon == min(direct.values())
    assert by_view["server"] > by_view["third_party"]


def test_a_hidden_cohort_and_a_visible_one_are_not_mixed_up(accounted):
    drawn = [Release(v, "client", 1.7, Poisson(100, 0.1), 9) for v in VIEWS]
    found = {view: certify_releases(drawn, 1e-5, view) for view in VIEWS}
    assert accounted() == 2  # the third party; both views that see who takes part
    assert found["third_party"].relation == "add_or_remove"
    assert found["server"].relation == found["server_secagg"].relation == "zero_out"
    assert found["third_party"].epsilon < found["server"].epsilon
