"""Records drawn by a client in local steps, clients drawn in rounds: the view is told which clients take part."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedpriv.privacy import Everyone, FixedSize, Poisson, Release, certify_releases, losses
from fedpriv.privacy.cuts import chance_of_cuts

DELTA, ROUNDS, STEPS, RATE = 1e-4, 6, 3, 0.25
CLIENTS = FixedSize(20, 5)
RECORDS = {
    "replace_one": FixedSize(100, 10),
    "add_or_remove": Poisson(100, 0.1),
    "zero_out": Everyone(100),
}


def release(records, view="server", steps=ROUNDS, local_steps=STEPS, participation=CLIENTS, **more):
    arguments = {
        "noise_is_split": False,
        "local_steps": local_steps,
        "participation": participation,
    }
    return Release(view, "record", 1.6, records, steps, **arguments | more)


def epsilon_of(*releases, view="server", delta=DELTA):
    return certify_releases(releases, delta, view).epsilon


@pytest.mark.parametrize("relation", RECORDS)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_against_the_sum_over_participations(relation, noise):
    """delta = sum_n Bin(n; T, l) delta of n K plain local steps, each composed on its own."""
    records = RECORDS[relation]
    certificate = certify_releases([release(records, noise=noise)], DELTA, "server")
    assert certificate.relation == relation
    total = 0.0
    for n in range(1, ROUNDS + 1):
        plain = [release(records, steps=n * STEPS, local_steps=1, participation=None, noise=noise)]
        composed = losses.compose(plain, relation, losses.cell_width(plain, relation))
        total += binom.pmf(n, ROUNDS, RATE) * composed.get_delta_for_epsilon(certificate.epsilon)
    assert total == pytest.approx(DELTA, rel=2e-2)  # two ways to discretise


@pytest.mark.parametrize("relation", RECORDS)
def test_a_client_in_every_round_composes_all_steps(relation):
    records = RECORDS[relation]
    nested = epsilon_of(release(records, participation=Everyone(20)))
    plain = epsilon_of(release(records, steps=ROUNDS * STEPS, local_steps=1, participation=None))
    assert nested == pytest.approx(plain, rel=1e-3)
    assert epsilon_of(release(records)) < nested


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove"])
def test_renyi_is_a_bound_as_well(relation):
    certificate = certify_releases([release(RECORDS[relation])], DELTA, "server")
    assert certificate.accountant == "PLD"
    assert certificate.epsilons["PLD"] < certificate.epsilons["RDP"] < math.inf


def test_no_view_is_more_than_another_but_for_shares():
    found = {
        view: epsilon_of(release(FixedSize(100, 10), view), view=view)
        for view in ("third_party", "server", "server_secagg")
    }
    assert len(set(found.values())) == 1


def test_every_local_step_can_be_cut():
    cut = release(Poisson(100, 0.1, 25))
    assert chance_of_cuts([cut]) == pytest.approx(ROUNDS * STEPS * binom.sf(25, 100, 0.1))


def test_the_draw_of_clients_is_among_the_assumptions():
    for records in RECORDS.values():
        texts = " ".join(certify_releases([release(records)], DELTA, "server").assumptions)
        assert "average over" in texts
        assert "every unit takes part in every round" not in texts
    event = certify_releases([release(FixedSize(100, 10))], DELTA, "server").event
    assert "6 x 3 x gaussian" in event
    assert "of a client in FixedSize(population=20, size=5)" in event


def test_monotone_in_steps_and_rates():
    records = FixedSize(100, 10)
    by_steps = [epsilon_of(release(records, local_steps=k)) for k in (1, 2, 5)]
    by_rate = [epsilon_of(release(records, participation=FixedSize(20, n))) for n in (1, 5, 20)]
    assert np.all(np.diff(by_steps) > 0)
    assert np.all(np.diff(by_rate) > 0)
