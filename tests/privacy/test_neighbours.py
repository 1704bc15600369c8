"""What dp-accounting means by its relations: these fail if the library changes its meaning."""

import math

import pytest
import tiers
from pair_curves import epsilon_on_grids

from fedpriv.pairs.search import by_divergences
from fedpriv.privacy import FixedSize, Poisson, declared
from fedpriv.privacy.certify import pair_of

DELTA = 1e-5


def library_epsilon(accountant, event, relation, count=1):
    import dp_accounting as dp

    accountant = accountant(neighboring_relation=dp.NeighboringRelation[relation])
    return accountant.compose(event, count).get_epsilon(DELTA)


def test_pld_accountant_doubles_the_distance_itself():
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    replaced = library_epsilon(PLDAccountant, dp.GaussianDpEvent(2.0), "REPLACE_ONE")
    halved = library_epsilon(PLDAccountant, dp.GaussianDpEvent(1.0), "ADD_OR_REMOVE_ONE")
    assert replaced == pytest.approx(halved, rel=1e-4)


def test_rdp_accountant_takes_the_actual_distance():
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    event = dp.GaussianDpEvent(2.0)
    replaced = library_epsilon(RdpAccountant, event, "REPLACE_ONE")
    assert replaced == library_epsilon(RdpAccountant, event, "ADD_OR_REMOVE_ONE")
    whole = dp.SampledWithoutReplacementDpEvent(10, 10, event)
    assert library_epsilon(RdpAccountant, whole, "REPLACE_ONE") == pytest.approx(replaced)


def test_both_routes_agree_on_the_whole_population():
    """Cohort of everyone, one unit replaced: a Gaussian of multiplier sigma / 2 by either route."""
    from dp_accounting import get_epsilon_gaussian

    release = declared("third_party", "client", 6.0, FixedSize(10, 10), 4)
    exact = get_epsilon_gaussian(6.0 / 2 / math.sqrt(4), DELTA)
    by_pld = epsilon_on_grids([release], "replaced", DELTA)
    by_rdp = by_divergences(pair_of([release], "replaced"), DELTA).epsilon
    assert by_pld == pytest.approx(exact, rel=1e-4)
    assert exact <= by_rdp <= 1.2 * exact


@pytest.mark.parametrize(
    ("rounds", "delta"), [(1000, 1e-5), (1000, 1e-12), (10**6, 5e-10), (10**6, 1e-18)]
)
def test_rounding_of_the_transforms_stays_within_its_margin(rounds, delta):
    """Very many Gaussian rounds through the discretised route are never below the closed form."""
    from dp_accounting import get_epsilon_gaussian

    multiplier = 1.4 * math.sqrt(rounds)
    release = declared("third_party", "client", multiplier, Poisson(10, 1.0, None), rounds)
    found = epsilon_on_grids([release], "removed", delta)
    exact = get_epsilon_gaussian(1.4, delta)
    assert exact <= found <= exact * 1.05


def test_a_cut_that_never_happens_changes_nothing():
    """dp-accounting itself fails here: its chance of a cut underflows."""
    plain = declared("third_party", "client", 1.4, Poisson(6000, 1 / 60, None), 5)
    roomy = declared("third_party", "client", 1.4, Poisson(6000, 1 / 60, 674), 5)
    found = [epsilon_on_grids([r], "removed", DELTA) for r in (plain, roomy)]
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_the_library_converts_divergences_as_certified_and_the_papers_as_claimed():
    """RdpAccountant: Canonne, Kamath and Steinke 2020, Prop. 12; the papers: Mironov 2017, Prop. 3."""
    import dp_accounting as dp
    import numpy as np
    from dp_accounting.rdp import RdpAccountant

    from fedpriv.privacy.claims._renyi import to_epsilon

    orders = np.array([3.0, 8.0, 20.0])
    divergences = orders / (2 * 2.0**2)
    accountant = RdpAccountant(orders).compose(dp.GaussianDpEvent(2.0))
    np.testing.assert_allclose(accountant.rdp, divergences)
    newer = divergences + np.log1p(-1 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1)
    assert accountant.get_epsilon(DELTA) == pytest.approx(newer.min(), rel=1e-9)
    older = min(d + math.log(1 / DELTA) / (a - 1) for a, d in zip(orders, divergences, strict=True))
    assert to_epsilon(divergences, orders, DELTA) == pytest.approx(older, rel=1e-12)
    assert newer.min() < older


def test_laplace_events_are_scale_over_sensitivity():
    """A pure epsilon of 1 / parameter, by both accountants; the library knows add-or-remove only."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.rdp import RdpAccountant

    once = pld.from_laplace_mechanism(4.0)
    assert once.get_delta_for_epsilon(0.25) == pytest.approx(0, abs=1e-9)
    assert once.get_delta_for_epsilon(0.24) == pytest.approx(1 - math.exp(-0.005), rel=1e-3)
    divergence = RdpAccountant([1e4]).compose(dp.LaplaceDpEvent(4.0)).rdp[0]
    assert divergence == pytest.approx(0.25, rel=1e-3)
    replaced = PLDAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    assert not replaced.supports(dp.LaplaceDpEvent(4.0))


@tiers.every("capacity", [None, 8], kind=lambda capacity: "any")
def test_poisson_is_the_library_s_event(capacity):
    """For cohorts that are cut, the library's bound is a looser one."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    event = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.5))
    if capacity is not None:
        event = dp.TruncatedSubsampledGaussianDpEvent(100, 0.05, capacity, 1.5)
    expected = library_epsilon(PLDAccountant, event, "ADD_OR_REMOVE_ONE", count=30)
    release = declared("third_party", "client", 1.5, Poisson(100, 0.05, capacity), 30)
    found = epsilon_on_grids([release], "removed", DELTA)
    if capacity is None:
        assert found == pytest.approx(expected, rel=1e-3)
    else:
        assert 0.95 * expected < found < expected
