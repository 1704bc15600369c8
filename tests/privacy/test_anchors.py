"""Fed-SMP on Fashion-MNIST: sigma 1.4, 100 of 6000 clients, 180 rounds, delta 6000^-1.1.

SVHN has the same clients, cohorts, rounds and sigma in the paper, hence the same numbers.
"""

import math
import time

import numpy as np
import pytest
from tree_nodes import tree_sensitivity_squared

import fedpriv as fp
from fedpriv.pairs.search import by_losses
from fedpriv.pairs.separations import epsilon_of_mixture
from fedpriv.papers import fed_smp_claim
from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.certify import pair_of

DELTA = 6000**-1.1
POISSON = Poisson(6000, 1 / 60, None)
FIXED = FixedSize(6000, 100)


def certified(view, sampling, multiplier=1.4, steps=180):
    return certify_seen([declared(view, "client", multiplier, sampling, steps)], DELTA, view)


@pytest.mark.parametrize(
    ("view", "sampling", "multiplier", "epsilon", "relation", "accountant"),
    [
        ("third_party", POISSON, 1.4, 0.6303, "add_or_remove", "PLD"),
        ("third_party", POISSON, 1.4 * math.sqrt(0.9), 0.6884, "add_or_remove", "PLD"),
        ("third_party", Poisson(6000, 1 / 60, 140), 1.4, 0.6328, "add_or_remove", "PLD"),
        ("third_party", FIXED, 1.4, 3.489, "replace_one", "PLD"),
        ("server_secagg", FIXED, 1.4, 7.187, "zero_out", "PLD"),
        ("server_secagg", POISSON, 1.4, 7.187, "zero_out", "PLD"),
    ],
)
def test_certified(view, sampling, multiplier, epsilon, relation, accountant):
    certificate = certified(view, sampling, multiplier)
    assert certificate.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert (certificate.relation, certificate.accountant) == (relation, accountant)
    assert certificate.view == view


def test_fixed_size_by_renyi():
    assert certified("third_party", FIXED).epsilons["RDP"] == pytest.approx(5.352, rel=1e-3)


def test_fixed_size_is_nearly_tight():
    """A concrete pair (a unit at u or -u, all others at -u, always) already has 3.214.

    Its rounds are Poisson-like: shift 2 C at rate r / n in the direction of removal.
    """
    release = declared("third_party", "client", 1.4 / 2, POISSON, 180)
    attained = by_losses(pair_of([release], "removed"), DELTA).epsilon
    assert attained == pytest.approx(3.214, rel=1e-3)
    assert attained < certified("third_party", FIXED).epsilon < 1.09 * attained


def test_everyone_is_one_gaussian():
    from dp_accounting import get_epsilon_gaussian

    for view in ("third_party", "server", "server_secagg"):
        certificate = certified(view, Everyone(6000), multiplier=20.0)
        exact = get_epsilon_gaussian(20.0 / math.sqrt(180), DELTA)
        assert certificate.epsilon == pytest.approx(exact, rel=1e-9)
        assert certificate.accountant == "PLD"
        assert "attained" in certificate.bound


def test_claimed():
    assert fed_smp_claim(1.4, POISSON, 180, DELTA).epsilon == pytest.approx(1.008, rel=1e-3)
    assert fed_smp_claim(1.4, FIXED, 180, DELTA).epsilon == pytest.approx(1.008, rel=1e-3)


@pytest.mark.parametrize(
    ("sigma", "printed"), [(1.0, "2.02"), (1.4, "1.01"), (2.0, "0.58"), (2.5, "0.44")]
)
def test_printed_for_images(sigma, printed):
    """Tables 4 to 7 come out to every digit with q = 100 / 6000 rounded to 0.0167."""
    claim = fed_smp_claim(sigma, Poisson(6000, 0.0167), 180, DELTA)
    assert f"{claim.epsilon:.2f}" == printed


@pytest.mark.parametrize(
    ("scale", "printed"), [(0.8, "11.51"), (1.0, "6.99"), (1.2, "4.70"), (1.4, "3.39")]
)
def test_printed_for_shakespeare(scale, printed):
    """Tables 8 and 9: 10 of 1e9 hypothetical clients, 1000 rounds, sigma = scale / sqrt(10).

    The text prints sigma = 0.3 for 6.99: 1 / sqrt(10) = 0.316 to one digit (0.3 itself gives 7.90).
    """
    claim = fed_smp_claim(scale / math.sqrt(10), Poisson(10**9, 1e-8), 1000, (1e9) ** -1.1)
    assert f"{claim.epsilon:.2f}" == printed


def test_shakespeare_at_the_printed_sigma():
    claim = fed_smp_claim(0.3, Poisson(10**9, 1e-8), 1000, (1e9) ** -1.1)
    assert claim.epsilon == pytest.approx(7.8975, rel=1e-3)


@pytest.mark.parametrize(
    ("sigma", "clients", "records", "rounds", "epsilon"),
    [(60, 100, 4000, 400, 2.030), (30, 60, 800, 100, 1.803)],
)
def test_certified_dp_scaffold(sigma, clients, records, rounds, epsilon):
    """One client's record replaced, in every round, K = 50, s = 0.2, delta = 1 / (M R).

    The noise is sigma S with S = 2 C / (s R), the distance of replacing a record; a multiplier is relative to
    removing one, half of it.
    """
    sampling = FixedSize(records, records // 5)
    release = declared("third_party", "record", 2 * sigma, sampling, 50 * rounds, adder="own")
    certificate = certify_seen([release], 1 / (clients * records), "third_party")
    assert certificate.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert certificate.relation == "replace_one"


@pytest.mark.parametrize(("rho", "epsilon"), [(0.1507, 3.424), (0.01434, 0.9935)])
def test_deployed_keyboards(rho, epsilon):
    """Published as 3.42 and 0.994: one Gaussian release of that zero-concentrated parameter, delta 1e-10."""
    assert gaussian_epsilon(2 * rho, 1e-10) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.slow
def test_tree_of_a_keyboard():
    """Sigma 7, 2,000 rounds, 313 or more apart, 6 at most; published: zCDP 0.81, epsilon 8.90 at delta 1e-10.

    That is of all complete nodes. What is released costs less.
    """
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    start = time.process_time()
    squared = tree_sensitivity_squared(2000, 2000, separation=313, most=6)
    assert time.process_time() - start < 5
    assert squared == 79
    released = fp.noise_matrices.tree(2000).sensitivity(2000, separation=313, most=6) ** 2
    assert released == pytest.approx(71.775, rel=1e-4)
    assert squared / (2 * 7**2) == pytest.approx(0.8061, rel=1e-3)
    by_renyi = RdpAccountant().compose(GaussianDpEvent(7 / math.sqrt(squared))).get_epsilon(1e-10)
    assert by_renyi == pytest.approx(8.899, rel=1e-3)
    assert gaussian_epsilon(squared / 7**2, 1e-10) == pytest.approx(8.526, rel=1e-3)


def gaussian_epsilon(precision, delta):
    """Exact: of N(0, 1) moved by the square root of `precision`."""
    return epsilon_of_mixture(np.array([precision]), np.ones(1), 0.0, delta)
