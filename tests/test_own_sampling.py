"""A sampler of somebody's own, in two files: certified, audited, explained and refused like those that fedpriv has."""

from functools import cache

import dp_accounting as dp
import numpy as np
import optax
import pytest
from correlated_runs import correlated, descent, matrix_of
from dp_accounting.pld import PLDAccountant
from rush_hour_cases import RushHours
from rush_hours import rush_hours
from scipy import stats
from small import FALSE_ALARM, refused, regression, squared, start

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.claims import fed_smp_claim
from fedpriv.testing.measurements import check_sampler

pytestmark = pytest.mark.usefixtures("quick_to_compile")

N, RATE, RUSH, SIGMA, ROUNDS, DELTA = 8, 0.125, 0.25, 2.0, 3, 1e-4
SAMPLING, SAMPLER = RushHours(N, RATE, RUSH), rush_hours(N, RATE, RUSH)
FEDERATION, PARAMS = regression([3] * N), start()


def dp_fed_avg(sampler=SAMPLER, **more):
    private = {"clip_norm": 1.0, "noise_multiplier": SIGMA}
    plain = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
    return fp.dp_fed_avg(squared, sampler=sampler, **private, **plain, **more)


@cache
def traced():
    return fp.trace_round(dp_fed_avg(), PARAMS, FEDERATION)


def release(sampling, view="third_party", rounds=ROUNDS):
    return declared(view, "client", SIGMA, sampling, rounds)


def test_its_epsilon_is_that_of_rounds_whose_rush_hours_are_known():
    """Of dp-accounting: k of the rounds release a Gaussian sum of everyone, the others a Poisson sampled one."""

    def of_rounds(k):
        accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
        noise = dp.GaussianDpEvent(SIGMA)
        usual = dp.PoissonSampledDpEvent(RATE, noise)
        for event, times in ((noise, k), (usual, ROUNDS - k)):
            if times:
                accountant.compose(event, times)
        return accountant

    certificate = traced().certify(ROUNDS, DELTA)
    assert certificate.relation == "add_or_remove"
    hours = stats.binom(ROUNDS, RUSH).pmf(np.arange(ROUNDS + 1))

    accountants = [of_rounds(k) for k in range(ROUNDS + 1)]

    def delta(epsilon):
        return hours @ [each.get_delta(epsilon) for each in accountants]

    assert delta(1.001 * certificate.epsilon) < DELTA < delta(0.998 * certificate.epsilon)
    without = fp.certify(dp_fed_avg(fp.poisson(N, RATE)), PARAMS, FEDERATION, ROUNDS, DELTA)
    assert certificate.epsilon > without.epsilon
    assert set(certificate.epsilons) == {"PLD", "RDP"}
    assert certificate.epsilons["RDP"] >= certificate.epsilon


def test_a_server_knows_how_often_a_client_took_part():
    certificate = traced().certify(ROUNDS, DELTA, view="server_secagg")
    assert certificate.relation == "zero_out"
    n = np.arange(1, ROUNDS + 1)
    often = stats.binom(ROUNDS, RUSH + (1 - RUSH) * RATE).pmf(n)

    def delta(epsilon):
        apart = np.sqrt(n) / SIGMA
        some = stats.norm.cdf(apart / 2 - epsilon / apart)
        return often @ (some - np.exp(epsilon) * stats.norm.cdf(-apart / 2 - epsilon / apart))

    assert delta(certificate.epsilon) == pytest.approx(DELTA, rel=1e-6)


def test_it_is_explained_in_words():
    certificate = traced().certify(ROUNDS, DELTA)
    (said,) = SAMPLING.words("removed")
    assert said in certificate.assumptions
    assert repr(SAMPLING) in certificate.event
    made_by_hand = [text for text in certificate.assumptions if "sampler made by hand" in text]
    assert len(made_by_hand) == 1


@pytest.mark.slow
def test_its_audit_is_below_its_certificate_and_near_it():
    scores = draw_scores(traced().seen(1), "third_party", draws=200_000)
    certified = traced().certify(1, 0.01).epsilon
    bound = lower_bounds(scores, 0.01, significance=FALSE_ALARM).least
    assert 0.4 * certified < bound <= certified
    usual = [release(Poisson(N, RATE), rounds=1)]
    assert bound > certify_seen(usual, 0.01, "third_party").epsilon


def test_it_is_measured():
    check_sampler(SAMPLER, seed=1)
    busier = rush_hours(N, RATE, 2 * RUSH)._replace(accounting=SAMPLING)
    with refused("of the draws, but the accounting says"):
        check_sampler(busier, seed=1)
    in_step = rush_hours(N, 0.0, SAMPLING.inclusion)._replace(
        accounting=SAMPLING
    )  # as often, but all at once
    with refused("together is in .* of the draws"):
        check_sampler(in_step, seed=1)


def test_what_it_does_not_say_is_not_guessed():
    class Silent(RushHours):
        together = None

    silent = rush_hours(N, RATE, RUSH)._replace(accounting=Silent(N, RATE, RUSH))
    with refused("does not say how often two are drawn together"):
        check_sampler(silent, seed=1)
    assert not SAMPLING.everyone
    assert not SAMPLING.full


class TestComposition:
    def test_with_others_of_its_adjacency(self):
        both = [release(SAMPLING), release(Poisson(N, RATE)), release(Everyone(N))]
        alone = certify_seen(both[:1], DELTA, "third_party").epsilon
        together = certify_seen(both, DELTA, "third_party")
        assert together.relation == "add_or_remove"
        assert together.epsilon > alone

    def test_it_is_refused_with_those_of_another(self):
        both = [release(SAMPLING), release(FixedSize(N, 2))]
        with refused(
            "RushHours.*removed: another unit takes the place .*; replaced: rush hours are"
        ):
            certify_seen(both, DELTA, "third_party")

    def test_no_schedule_of_it_is_known_to_correlated_noise(self):
        algorithm = descent(correlated(matrix_of("tree")), SAMPLER)
        with refused("RushHours.* may draw a client in any rounds"):
            fp.certify(algorithm, PARAMS, FEDERATION, ROUNDS, DELTA)

    def test_its_members_do_not_vanish(self):
        with refused("give one of fp.everyone, fp.fixed_size and fp.poisson"):
            fp.dropping(SAMPLER, 0.25)

    def test_a_papers_formula_does_not_know_it(self):
        claim = fed_smp_claim(SIGMA, SAMPLING, ROUNDS, DELTA)
        assert claim.sound == (
            claim.epsilon >= certify_seen([release(SAMPLING)], DELTA, "third_party").epsilon
        )
        assert "does not know this way of drawing cohorts" in claim.reasons[0]
