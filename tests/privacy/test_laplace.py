"""Laplace releases: composition against closed forms and the library."""

import math

import numpy as np
import pytest
from scipy.stats import binom, laplace

from fedpriv.pairs.grids import all_grids
from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.certify import pair_of
from fedpriv.proof.noise import laplace_delta

DELTA = 1e-4


def release(view="third_party", multiplier=2.0, sampling=None, steps=10, **more):
    sampling = sampling or Poisson(100, 0.05)
    return declared(view, "client", multiplier, sampling, steps, noise="laplace", **more)


def epsilon_of(*releases, delta=DELTA):
    return certify_seen(releases, delta, releases[0].view).epsilon


@pytest.mark.parametrize("split", [(0.5, 0.5), (2.0, 0.3)])
def test_one_axis_is_the_worst_for_a_given_l1_distance(split):
    """Noise on two coordinates that both move, against one that moves by as much."""
    axis = np.linspace(-16, 18, 1701)
    cell = (axis[1] - axis[0]) ** 2
    moved = np.multiply.outer(*(laplace.pdf(axis, shift) for shift in split))
    still = np.multiply.outer(laplace.pdf(axis), laplace.pdf(axis))
    for epsilon in (0.0, 0.3, 0.8, 1.5):
        both = np.maximum(moved - math.exp(epsilon) * still, 0).sum() * cell
        assert both <= laplace_delta(epsilon, sum(split)) + 4e-5


def test_a_round_of_everyone_has_the_pure_epsilon():
    for view in ("third_party", "server_secagg"):
        found = epsilon_of(release(view, 4.0, Everyone(10), 1), delta=1e-12)
        assert found == pytest.approx(0.25, rel=1e-3)


def test_everyone_by_both_accountants():
    certificate = certify_seen([release(sampling=Everyone(10))], DELTA, "third_party")
    assert set(certificate.epsilons) == {"PLD", "RDP"}
    assert certificate.accountant == "PLD"
    assert certificate.epsilons["PLD"] < certificate.epsilons["RDP"] < 10 / 2
    assert "discretised" in certificate.bound


def test_cuts_cost_what_they_may_show():
    """Often cut: a client that then moves the sum twice."""
    roomy, tight, tighter = (
        epsilon_of(release(sampling=Poisson(100, 0.05, c))) for c in (25, 17, 6)
    )
    plain = epsilon_of(release())
    assert plain <= roomy < plain * 1.001
    assert roomy <= tight < 1.01 * plain
    assert tight < tighter < 3 * plain


def test_known_cohort_against_the_sum_over_participations():
    """Numerically composed n times for each n, averaged over the binomial."""
    steps, rate, multiplier = 6, 0.3, 1.5
    found = epsilon_of(release("server_secagg", multiplier, FixedSize(10, 3), steps))
    from dp_accounting.pld import privacy_loss_distribution as pld

    once = pld.from_laplace_mechanism(multiplier)
    delta = sum(
        binom.pmf(n, steps, rate) * once.self_compose(n).get_delta_for_epsilon(found)
        for n in range(1, steps + 1)
    )
    assert delta == pytest.approx(DELTA, rel=2e-2)


def test_gaussian_and_laplace_compose():
    noisy = declared("server_secagg", "client", 3.0, FixedSize(10, 3), 6)
    both = epsilon_of(release("server_secagg", 3.0, FixedSize(10, 3), 6), noisy)
    assert (
        max(epsilon_of(noisy), epsilon_of(release("server_secagg", 3.0, FixedSize(10, 3), 6)))
        < both
    )
    assert both < 2 * epsilon_of(noisy) + 2


def test_the_discretised_route_agrees_with_the_closed_form():
    """Gaussian participation mixtures, which have both."""
    noisy = [declared("server_secagg", "client", 1.4, FixedSize(60, 6), 25)]
    exact = epsilon_of(*noisy)
    grids = all_grids(pair_of(noisy, "zeroed"), DELTA)
    assert exact <= min(grid.epsilon for grid in grids) <= exact * (1 + 1e-3)


def test_missing_shares_of_laplace_noise_are_not_certified():
    certificate = certify_seen([release(honest=0.9)], DELTA, "third_party")
    assert math.isinf(certificate.epsilon)
    assert "no longer Laplace" in certificate.assumptions[0]
    whole = release(sampling=FixedSize(100, 5))
    own = release(sampling=FixedSize(100, 5), adder="own", honest=0.9)
    assert epsilon_of(own) == epsilon_of(whole)


def test_poisson_is_the_library_s_event():
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    event = dp.PoissonSampledDpEvent(0.05, dp.LaplaceDpEvent(2.0))
    expected = PLDAccountant().compose(event, 10).get_epsilon(DELTA)
    certificate = certify_seen([release()], DELTA, "third_party")
    assert certificate.epsilon == pytest.approx(expected, rel=1e-3)
    assert set(certificate.epsilons) == {"PLD"}  # the library has no sampled Laplace divergences
