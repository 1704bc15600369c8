"""Views that know the cohort: the participation mixture and composition."""

import math

import numpy as np
import pytest
import tiers
from pair_curves import directions
from scipy.stats import binom, norm

from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.certify import pair_of
from fedpriv.privacy.sampling import ADJACENCIES
from fedpriv.proof.exact import exact
from fedpriv.proof.noise import gaussian_delta

DELTA = 1e-4


def secagg(multiplier, sampling, steps):
    return declared("server_secagg", "client", multiplier, sampling, steps)


def epsilon_of(*releases, delta=DELTA, view="server_secagg"):
    return certify_seen(releases, delta, view).epsilon


def test_mixture_is_the_joint_divergence_of_pattern_and_sums():
    """Two rounds, q = 0.4: sum over the four patterns of an integral over both sums."""
    sigma, rate, epsilon = 1.3, 0.4, 0.3
    axis = np.linspace(-12, 14, 1301)
    without = norm.pdf(axis, 0, sigma)
    delta = 0.0
    for pattern in ((0, 0), (0, 1), (1, 0), (1, 1)):
        chance = math.prod(rate if taken else 1 - rate for taken in pattern)
        first, second = (norm.pdf(axis, taken, sigma) for taken in pattern)
        p = chance * np.multiply.outer(first, second)
        q = chance * np.multiply.outer(without, without)
        delta += np.maximum(p - math.exp(epsilon) * q, 0).sum() * (axis[1] - axis[0]) ** 2
    found = epsilon_of(secagg(sigma, Poisson(10, rate), 2), delta=delta)
    assert found == pytest.approx(epsilon, abs=1e-4)


def test_epsilon_solves_the_sum_over_participations():
    epsilon = epsilon_of(secagg(1.4, FixedSize(60, 6), 25))
    n = np.arange(1, 26)
    delta = binom.pmf(n, 25, 0.1) @ gaussian_delta(epsilon, np.sqrt(n) / 1.4)
    assert delta == pytest.approx(DELTA, rel=1e-6)
    assert delta <= DELTA


def test_two_phases_with_the_same_noise_are_one():
    whole = epsilon_of(secagg(1.4, FixedSize(60, 6), 25))
    phases = epsilon_of(secagg(1.4, FixedSize(60, 6), 15), secagg(1.4, FixedSize(60, 6), 10))
    assert phases == pytest.approx(whole, rel=1e-6)


def test_phases_with_different_noise_and_rates():
    """Against the double sum over both counts."""
    releases = [secagg(1.0, Poisson(50, 0.2), 4), secagg(2.0, Poisson(50, 0.5), 6)]
    epsilon, delta = epsilon_of(*releases), 0.0
    for a in range(5):
        for b in range(7):
            separation = math.sqrt(a / 1.0 + b / 4.0)
            chance = binom.pmf(a, 4, 0.2) * binom.pmf(b, 6, 0.5)
            delta += chance * gaussian_delta(epsilon, separation) if separation else 0.0
    assert delta == pytest.approx(DELTA, rel=1e-6)


def test_participations_are_a_distribution():
    made = secagg(1.4, FixedSize(6000, 100), 180)
    values, weights, missing = exact(pair_of([made], "zeroed"))
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert values @ weights == pytest.approx(180 / 60 / 1.4**2)
    assert 0 <= missing < 1e-28


def test_knowing_the_cohort_costs_more_than_not_knowing_it():
    sampling = Poisson(100, 0.05)
    unknown = declared("third_party", "client", 1.4, sampling, 20)
    assert epsilon_of(secagg(1.4, sampling, 20)) > epsilon_of(unknown, view="third_party")


def test_rate_one_is_everyone():
    sampled = epsilon_of(secagg(5.0, Poisson(10, 1.0), 30))
    assert sampled == pytest.approx(epsilon_of(secagg(5.0, Everyone(10), 30)))


def test_third_party_composes_phases():
    half = declared("third_party", "client", 1.5, Poisson(100, 0.05), 10)
    whole = declared("third_party", "client", 1.5, Poisson(100, 0.05), 20)
    two = epsilon_of(half, half, view="third_party")
    assert two == pytest.approx(epsilon_of(whole, view="third_party"), rel=1e-4)


def test_everyone_joins_either_relation():
    everyone = declared("third_party", "client", 8.0, Everyone(100), 5)
    fixed = declared("third_party", "client", 4.0, FixedSize(100, 5), 5)
    poisson = declared("third_party", "client", 4.0, Poisson(100, 0.05), 5)
    replaced = certify_seen([everyone, fixed], DELTA, "third_party")
    removed = certify_seen([everyone, poisson], DELTA, "third_party")
    alone = certify_seen([everyone], DELTA, "third_party")
    assert (replaced.relation, removed.relation) == ("replace_one", "add_or_remove")
    assert alone.epsilon < removed.epsilon < replaced.epsilon


def test_releases_of_other_views_are_ignored():
    one = secagg(1.4, FixedSize(60, 6), 5)
    bare = declared("server", "client", 0.0, FixedSize(60, 6), 5, reason="messages in clear")
    assert epsilon_of(one, bare) == epsilon_of(one)


# Records drawn by a client in local steps, clients drawn in rounds: the view is told which clients take part

ROUNDS, STEPS, RATE = 6, 3, 0.25
CLIENTS = FixedSize(20, 5)
RECORDS = {
    "replaced": FixedSize(100, 10),
    "removed": Poisson(100, 0.1),
    "zeroed": Everyone(100),
}


def nested(records, view="server", steps=ROUNDS, local_steps=STEPS, participation=CLIENTS, **more):
    arguments = {
        "adder": "own",
        "local_steps": local_steps,
        "participation": participation,
    }
    return declared(view, "record", 1.6, records, steps, **arguments | more)


def epsilon(release, view="server"):
    return epsilon_of(release, view=view)


@tiers.every("neighbour", RECORDS, kind=lambda drawn: "a draw")
@tiers.every("noise", ["gaussian", "laplace"])
def test_against_the_sum_over_participations(neighbour, noise):
    """delta = sum_n Bin(n; T, l) delta of n K plain local steps, each composed on its own."""
    records = RECORDS[neighbour]
    certificate = certify_seen([nested(records, noise=noise)], DELTA, "server")
    assert certificate.relation == ADJACENCIES[neighbour]
    total = 0.0
    for n in range(1, ROUNDS + 1):
        plain = [nested(records, steps=n * STEPS, local_steps=1, participation=None, noise=noise)]
        delta = max(delta(certificate.epsilon) for delta in directions(plain, neighbour))
        total += binom.pmf(n, ROUNDS, RATE) * delta
    assert total == pytest.approx(DELTA, rel=2e-2)  # two ways to discretise


@pytest.mark.parametrize("neighbour", RECORDS)
def test_a_client_in_every_round_composes_all_steps(neighbour):
    records = RECORDS[neighbour]
    always = epsilon(nested(records, participation=Everyone(20)))
    plain = epsilon(nested(records, steps=ROUNDS * STEPS, local_steps=1, participation=None))
    assert always == pytest.approx(plain, rel=1e-3)
    assert epsilon(nested(records)) < always


@pytest.mark.parametrize("neighbour", ["replaced", "removed"])
def test_renyi_is_a_bound_as_well(neighbour):
    certificate = certify_seen([nested(RECORDS[neighbour])], DELTA, "server")
    assert certificate.accountant == "PLD"
    assert certificate.epsilons["PLD"] < certificate.epsilons["RDP"] < math.inf


def test_no_view_is_more_than_another_but_for_shares():
    found = {
        view: epsilon(nested(FixedSize(100, 10), view), view=view)
        for view in ("third_party", "server", "server_secagg")
    }
    assert len(set(found.values())) == 1


@pytest.mark.slow
def test_every_local_step_can_be_cut():
    found = [epsilon(nested(Poisson(100, 0.1, capacity))) for capacity in (None, 40, 15, 10)]
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert np.all(np.diff(found[1:]) > 0)


def test_the_draw_of_clients_is_among_the_assumptions():
    for records in RECORDS.values():
        texts = " ".join(certify_seen([nested(records)], DELTA, "server").assumptions)
        assert "average over" in texts
        assert "every unit takes part in every round" not in texts
    event = certify_seen([nested(FixedSize(100, 10))], DELTA, "server").event
    assert "6 x 3 x gaussian" in event
    assert "of a client in FixedSize(population=20, size=5)" in event


@pytest.mark.slow
def test_monotone_in_steps_and_rates():
    records = FixedSize(100, 10)
    by_steps = [epsilon(nested(records, local_steps=k)) for k in (1, 2, 5)]
    by_rate = [epsilon(nested(records, participation=FixedSize(20, n))) for n in (1, 5, 20)]
    assert np.all(np.diff(by_steps) > 0)
    assert np.all(np.diff(by_rate) > 0)
