"""What is equal has one pair, whoever looks, and its losses are composed once."""

import pytest

from fedpriv.pairs import grids, search
from fedpriv.privacy import VIEWS, Everyone, Poisson, certify_seen, declared
from fedpriv.privacy.certify import pair_of
from fedpriv.proof.seen import common_neighbour


@pytest.fixture
def composed():
    """How often losses were composed, from an empty cache."""
    for cached in (search.by_losses, grids.all_grids):
        cached.cache_clear()
    return lambda: grids.all_grids.cache_info().misses


RECORDS = [
    declared(v, "record", 1.3, Poisson(80, 0.1), 7, participation=Everyone(5)) for v in VIEWS
]
ADDERS = dict(zip(VIEWS, ("server", "own", "enclave"), strict=True))


def of_clients(view, multiplier=1.7):
    return declared(view, "client", multiplier, Everyone(20), 9, adder=ADDERS[view])


CLIENTS = [of_clients(view) for view in VIEWS]


@pytest.mark.parametrize(("seen", "times"), [(RECORDS, 1), (CLIENTS, 0)])
def test_three_equal_views_have_one_pair(composed, seen, times):
    """Where all noise is Gaussian and told, nothing is composed: a closed form is known."""
    found = [certify_seen(seen, 1e-5, view) for view in VIEWS]
    assert composed() == times
    assert len({c.compositions for c in found}) == 1
    assert len({c.epsilon for c in found}) == 1
    assert [c.view for c in found] == list(VIEWS)  # what is said of a view stays its own
    found[0].epsilons.clear()  # and what a caller does to one certificate, too
    assert certify_seen(seen, 1e-5, "third_party").epsilons == found[1].epsilons


def test_views_that_differ_are_not_mixed_up():
    less = [of_clients("third_party"), of_clients("server", 1.7 / 2), of_clients("server_secagg")]
    by_view = {view: certify_seen(less, 1e-5, view) for view in VIEWS}
    for view, certificate in by_view.items():
        alone = [r for r in less if r.view == view]
        pair = pair_of(alone, common_neighbour(alone))
        assert certificate.epsilon == search.epsilon(pair, 1e-5).epsilon
    pairs = {view: c.compositions[0].pair for view, c in by_view.items()}
    assert pairs["server"] != pairs["third_party"] == pairs["server_secagg"]
    assert by_view["server"].epsilon > by_view["third_party"].epsilon


def test_a_hidden_cohort_and_a_visible_one_are_not_mixed_up():
    drawn = [declared(v, "client", 1.7, Poisson(100, 0.1), 9) for v in VIEWS]
    found = {view: certify_seen(drawn, 1e-5, view) for view in VIEWS}
    pairs = {view: c.compositions[0].pair for view, c in found.items()}
    assert pairs["third_party"] != pairs["server"] == pairs["server_secagg"]
    assert found["third_party"].relation == "add_or_remove"
    assert found["server"].relation == found["server_secagg"].relation == "zero_out"
    assert found["third_party"].epsilon < found["server"].epsilon
