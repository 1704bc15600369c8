"""Validation, limits, wording and cost of the ledger."""

import logging
import math
import subprocess
import sys
import time

import numpy as np
import pytest
import tiers

from fedpriv.pairs.divergences import quiet
from fedpriv.papers import fed_smp_claim
from fedpriv.privacy import (
    VIEWS,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
    certify_choice,
    certify_seen,
    declared,
)

SAMPLINGS = (Everyone(100), FixedSize(100, 5), Poisson(100, 0.05), Poisson(100, 0.05, 20))


def release(view="third_party", multiplier=1.4, sampling=SAMPLINGS[2], steps=10, **more):
    return declared(view, "client", multiplier, sampling, steps, **more)


def test_rates():
    assert [sampling.inclusion for sampling in SAMPLINGS] == [1.0, 0.05, 0.05, 0.05]
    assert release(steps=np.int64(3)) == release(steps=3)


@tiers.every("view", VIEWS, kind=lambda view: view == "third_party")
@tiers.every("sampling", SAMPLINGS)
def test_limits(view, sampling):
    def epsilon(**changes):
        return certify_seen([release(view=view, sampling=sampling, **changes)], 1e-5, view).epsilon

    assert epsilon(steps=0) == 0
    assert epsilon(steps=0, multiplier=0.0) == 0
    assert epsilon(multiplier=math.inf) == 0
    assert math.isinf(epsilon(multiplier=0.0))
    assert 0 < epsilon(multiplier=1.0) < math.inf


def test_no_noise_says_why():
    bare = release(multiplier=0.0, reason="the clip norm is the median of private norms")
    certificate = certify_seen([release(), bare], 1e-5, "third_party")
    assert math.isinf(certificate.epsilon)
    assert "not private: the clip norm is the median" in certificate.assumptions[0]
    assert certify_seen([release(multiplier=0.0)], 1e-5, "third_party").assumptions[0]


@tiers.every("sampling", SAMPLINGS[:0:-1], kind=lambda drawn: "any")
def test_little_noise_is_finite_or_infinite_but_never_an_error(sampling):
    for multiplier in (1e-4, 1e-2):
        given = release(multiplier=multiplier, sampling=sampling)
        assert certify_seen([given], 1e-5, "third_party").epsilon > 1e3
        assert fed_smp_claim(multiplier, sampling, 10, 1e-5).epsilon > 1e3


@tiers.every("sampling", [SAMPLINGS[i] for i in (0, 2, 1, 3)], kind=lambda drawn: drawn.everyone)
def test_much_noise_is_an_epsilon_near_zero_not_an_error(sampling):
    for multiplier in (1e5, 1e30):
        given = release(multiplier=multiplier, sampling=sampling)
        assert 0 <= certify_seen([given], 1e-5, "third_party").epsilon < 1e-3
        assert 0 <= fed_smp_claim(multiplier, sampling, 10, 1e-5).epsilon < 1


def test_an_infinite_epsilon_says_why():
    """Losses too large for any grid; Laplace noise has no sampled divergences to fall back to."""
    loud = release(noise="laplace", multiplier=0.005, steps=10**5)
    certificate = certify_seen([loud], 1e-5, "third_party")
    assert math.isinf(certificate.epsilon)
    assert certificate.bound == "no finite bound"
    assert "too little noise" in certificate.assumptions[0]


def test_a_delta_below_the_tails_that_are_kept_falls_back_to_renyi():
    found = certify_seen([release()], 1e-90, "third_party")
    assert (found.accountant, found.epsilons["PLD"]) == ("RDP", math.inf)


def test_a_certificate_says_what_it_is_about():
    for view in VIEWS:
        certificate = certify_seen([release(view=view)], 1e-5, view)
        line = str(certificate)
        for word in ("certified", "client-level", view.split("_")[0], "adjacency", "delta 1e-05"):
            assert word in line
        assert "\n" not in line
        assert certificate.bound.startswith("upper")
        assert certificate.assumptions


def test_claims_say_whether_they_hold():
    everyone, fixed, poisson, cut = (fed_smp_claim(2.0, s, 10, 1e-5) for s in SAMPLINGS)
    assert (everyone.sound, fixed.sound, poisson.sound, cut.sound) == (True, False, True, True)
    assert fixed.epsilon == poisson.epsilon == cut.epsilon < everyone.epsilon
    assert "without replacement" in fixed.reasons[0]
    assert "not proved for this run" in str(fixed)
    assert "claimed" in str(poisson)
    assert "\n" not in str(poisson)
    assert any("server knows who takes part" in reason for reason in poisson.reasons)


def test_a_claim_for_cohorts_that_are_often_cut_is_not_sound():
    claim = fed_smp_claim(2.0, Poisson(100, 0.05, 7), 10, 1e-5)
    assert not claim.sound
    assert "raise the capacity" in claim.reasons[0]


def test_limits_of_a_claim():
    assert fed_smp_claim(2.0, SAMPLINGS[2], 0, 1e-5).epsilon == 0
    assert fed_smp_claim(math.inf, SAMPLINGS[2], 5, 1e-5).epsilon == 0
    assert math.isinf(fed_smp_claim(0.0, SAMPLINGS[2], 5, 1e-5).epsilon)


@pytest.mark.parametrize("sampling", [SAMPLINGS[0], SAMPLINGS[2]])
def test_a_sound_claim_is_above_the_certificate(sampling):
    claim = fed_smp_claim(2.0, sampling, 10, 1e-5)
    proved = certify_seen([release(multiplier=2.0, sampling=sampling)], 1e-5, "third_party")
    assert claim.epsilon > proved.epsilon


@tiers.every("mean", [10.0, 1.5, 200.0])
@pytest.mark.parametrize("sampling", [SAMPLINGS[0], SAMPLINGS[2]])
def test_the_best_of_several_runs(mean, sampling):
    """As dp-accounting counts it, and the limits: a run alone, and more runs cost more."""
    import dp_accounting as dp

    released = [release(sampling=sampling), release(multiplier=3.0, sampling=sampling, steps=7)]
    ours = certify_seen(released, 1e-5, "third_party", best_of=mean)
    accountant = dp.rdp.RdpAccountant()
    rounds = []
    for multiplier, steps in ((1.4, 10), (3.0, 7)):
        event = dp.GaussianDpEvent(multiplier)
        if isinstance(sampling, Poisson):
            event = dp.PoissonSampledDpEvent(0.05, event)
        rounds.append(dp.SelfComposedDpEvent(event, steps))
    once = dp.ComposedDpEvent(rounds)
    accountant.compose(dp.dp_event.RepeatAndSelectDpEvent(once, mean, 1))
    assert ours.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    assert ours.accountant == "RDP"
    alone = certify_seen(released, 1e-5, "third_party", best_of=1)
    assert alone == certify_seen(released, 1e-5, "third_party")
    assert alone.epsilon < ours.epsilon
    assert ours.epsilon < certify_seen(released, 1e-5, "third_party", best_of=2 * mean).epsilon


@tiers.every("mean", [5.0, 1.5, 40.0])
def test_a_choice_among_settings_costs_as_much_as_the_worst_at_every_order(mean):
    """Two settings whose Rényi divergences cross cost more than either; the theorem written out in NumPy."""
    import dp_accounting as dp

    settings = {(4.0, 0.5): None, (0.8, 0.01): None}
    for multiplier, rate in settings:
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier))
        curve = dp.rdp.RdpAccountant().compose(dp.SelfComposedDpEvent(event, 10))._rdp
        settings[multiplier, rate] = np.array(curve)
    orders = np.array(dp.rdp.RdpAccountant()._orders)
    worst = np.maximum(*settings.values())
    assert len(np.unique(np.argmax(list(settings.values()), axis=0))) == 2  # they cross
    of_count = np.min((orders - 1) / orders * worst + np.log(mean) / orders)
    of_best = worst + 2 * of_count + np.log(mean) / (orders - 1)
    expected, _ = dp.rdp.compute_epsilon(orders, of_best, 1e-5)
    a, b = ([release(multiplier=m, sampling=Poisson(1000, q))] for m, q in settings)
    found = certify_choice([a, b], 1e-5, mean)
    assert found.epsilon == pytest.approx(expected, rel=1e-6)
    alone = [certify_seen(each, 1e-5, "third_party", best_of=mean) for each in (a, b)]
    assert found.epsilon > max(c.epsilon for c in alone)
    assert certify_choice([b, a], 1e-5, mean).epsilon == found.epsilon
    assert certify_choice([a], 1e-5, mean) == alone[0]
    louder = [release(multiplier=6.0, sampling=Poisson(1000, 0.5))]  # never the worst
    assert certify_choice([a, louder], 1e-5, mean).epsilon == alone[0].epsilon
    bare = [release(multiplier=0.0)]
    assert certify_choice([a, bare], 1e-5, mean).epsilon == math.inf


@pytest.mark.slow
def test_the_accountants_are_imported_on_first_use():
    code = "import sys, fedpriv; print('dp_accounting' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_only_the_library_s_harmless_remarks_are_silenced(caplog):
    logger = logging.getLogger("absl")
    with caplog.at_level(logging.WARNING, logger="absl"), quiet():
        logger.warning("x failed to converge after %d iterations", 3)
        logger.warning("Negative Renyi divergence")
    logger.warning("x failed to converge after %d iterations", 3)
    assert "Negative" in caplog.records[0].msg
    assert len(caplog.records) == 2


def test_a_progress_bar_can_ask_every_round():
    """The distribution of one round is computed once; later calls only compose it."""
    certify_seen([release(steps=180)], 1e-5, "third_party")
    start = time.process_time()
    for steps in (1, 100, 400):
        certify_seen([release(steps=steps)], 1e-5, "third_party")
    assert time.process_time() - start < 6


@tiers.every("view", VIEWS, kind=lambda view: view == "third_party")
@tiers.every("sampling", SAMPLINGS)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_absurd_multipliers_are_infinite_or_nearly_zero(view, sampling, noise):
    """Where floats would overflow on the way, less noise than there is is counted."""
    for multiplier, least, most in ((1e-200, math.inf, math.inf), (1e160, 0.0, 1e-3)):
        given = release(view=view, multiplier=multiplier, sampling=sampling, noise=noise)
        certificate = certify_seen([given], 1e-5, view)
        assert least <= certificate.epsilon <= most
        if most > 1:
            assert "too little for a finite number" in certificate.assumptions[0]


def test_what_adds_noise_is_assumed_in_words():
    def texts(view="third_party", **more):
        return " ".join(certify_seen([release(view=view, **more)], 1e-5, view).assumptions)

    assert "even if nobody joins" in texts()
    assert "nobody joins" not in texts(sampling=SAMPLINGS[1])
    assert "1 / s of the noise's variance" in texts("server_secagg")
    own = texts("server", adder="own")
    assert "adds that noise before" in own
    assert "1 / s" not in own


def test_only_what_is_attained_is_called_so():
    def bound(**more):
        given = release(view="server_secagg", **more)
        return certify_seen([given], 1e-5, "server_secagg").bound

    assert "attained" in bound()
    assert "attained" not in bound(sampling=SAMPLINGS[3])
    assert "attained" not in bound(adder="own")


@pytest.mark.slow
def test_many_kinds_of_rounds_stay_tractable_and_sound():
    """Three phases of thousands of rounds each: their counts would make billions of combinations."""
    phases = [(1.0 + 0.137 * i, Poisson(100, 0.05 + 0.03 * i)) for i in range(3)]
    several = [release("server_secagg", m, s, 5000) for m, s in phases]
    found = certify_seen(several, 1e-5, "server_secagg").epsilon
    worst = release("server_secagg", 1.0, Poisson(100, 0.11), 15000)
    once = release("server_secagg", 1.0, phases[0][1], 5000)
    assert certify_seen([once], 1e-5, "server_secagg").epsilon < found
    assert found < certify_seen([worst], 1e-5, "server_secagg").epsilon


@pytest.mark.parametrize("multiplier", [1e-300, 1e300])
def test_absurd_claims_are_numbers(multiplier):
    claim = fed_smp_claim(multiplier, SAMPLINGS[2], 10, 1e-5)
    assert math.isinf(claim.epsilon) == (multiplier < 1)
    assert claim.epsilon > 0


def test_everyone_may_be_drawn_beside_draws_with_replacement():
    replaced = declared("third_party", "client", 1.0, WithReplacement(100, 1, 0.01), 50)
    alone = certify_seen([replaced], 1e-5, "third_party").epsilon
    assert alone > 6
    everyone_once = declared("third_party", "client", 1e5, Everyone(100), 1)
    both = certify_seen([replaced, everyone_once], 1e-5, "third_party").epsilon
    assert both == pytest.approx(alone, rel=1e-3)
    assert both >= alone * (1 - 1e-9)
    assert any(
        "are public" in text for text in certify_seen([replaced], 1e-5, "third_party").assumptions
    )
