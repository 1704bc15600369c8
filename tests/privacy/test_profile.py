"""Privacy profiles, trade-off curves and what they mean: against closed forms, densities and dp-accounting."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import tiers
from drawn_by_hand import seen_by_hand
from scipy.stats import laplace, norm
from small import refused

from fedpriv.privacy import (
    Everyone,
    FixedSize,
    Poisson,
    Who,
    certify_choice,
    certify_seen,
    declared,
)
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.operational import operational_numbers
from fedpriv.privacy.played import plays_of
from fedpriv.privacy.profile import PrivacyProfile

DELTA = 1e-5
RATES = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.5, 0.9, 1.0])
RELEASES = {
    "gaussian": declared("third_party", "client", 1.3, Everyone(10), 3),
    "poisson": declared("third_party", "client", 1.4, Poisson(100, 0.1), 30),
    "cut": declared("third_party", "client", 1.4, Poisson(100, 0.1, 11), 5),
    "fixed": declared("third_party", "client", 2.0, FixedSize(100, 10), 5),
    "laplace": declared("third_party", "client", 1.4, Poisson(100, 0.1), 30, noise="laplace"),
    "known": declared("server", "client", 1.4, FixedSize(100, 10), 30),
}


def of_everyone(multiplier):
    return declared("third_party", "client", multiplier, Everyone(10), 3)


def certified(release, delta=DELTA, **options):
    return certify_seen([release], delta, release.view, **options)


@cache
def certificate_of(name):
    return certified(RELEASES[name])


@cache
def profile_of(name):
    return certificate_of(name).profile()


def gaussian_curve(mu):
    return norm.cdf(norm.ppf(1 - RATES) - mu)


@tiers.every("mu", [1.0, 1e-3, 20.0])
class TestGaussian:
    """Noise on a unit that is certain to take part: all is in closed form."""

    def profile(self, mu):
        return certified(declared("third_party", "client", 2 / mu, Everyone(10), 4)).profile()

    def test_profile(self, mu):
        eps = np.linspace(0, 3 * mu, 40)
        exact = norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        found = self.profile(mu).delta(eps)
        assert (found >= exact * (1 - 1e-9) - 1e-15).all()
        np.testing.assert_allclose(found, exact, rtol=5e-3, atol=1e-9)

    def test_trade_off(self, mu):
        found = self.profile(mu).false_negative_rate(RATES)
        assert (found <= gaussian_curve(mu) + 1e-12).all()
        np.testing.assert_allclose(found, gaussian_curve(mu), atol=1e-4)

    def test_it_is_its_own_bound(self, mu):
        bound = self.profile(mu).gaussian
        assert mu * (1 - 1e-6) <= bound.mu <= mu * (1 + 1e-3)
        assert bound.regret < 1e-4


def drawn(seen):
    """On this depends which accountant has its curve."""
    return seen.view, type(plays_of(seen).drawn), plays_of(seen).noise


@tiers.every("name", RELEASES, kind=drawn)
class TestEveryKind:
    def test_it_passes_through_the_certificates(self, name):
        certificate, profile = certificate_of(name), profile_of(name)
        assert profile.epsilon(DELTA) == certificate.epsilon
        assert DELTA * (1 - 1e-8) <= profile.delta(certificate.epsilon) <= DELTA
        for delta in (1e-10, 0.03):
            other = certified(RELEASES[name], delta).epsilon
            assert profile.epsilon(delta) == pytest.approx(other, rel=2e-3, abs=1e-6)

    def test_it_falls_and_is_convex(self, name):
        profile = profile_of(name)
        x, delta = np.exp(profile.epsilons), profile.deltas
        assert (np.diff(delta) <= 0).all()
        slopes = np.diff(delta) / np.diff(x)
        assert (np.diff(slopes) >= -1e-7 * np.abs(slopes[1:])).all()

    def test_the_trade_off_is_symmetric(self, name):
        """Attackers on either neighbour: whoever errs (a, b) can err (b, a)."""
        profile = profile_of(name)
        missed = profile.false_negative_rate(RATES)
        back = profile.false_negative_rate(missed)
        assert (back <= RATES + 1e-9).all()
        inside = (missed > 0) & (missed < 1) & (RATES > 0.001)
        np.testing.assert_allclose(back[inside], RATES[inside], atol=2e-3)

    def test_mu_bounds_the_curve(self, name):
        profile = profile_of(name)
        mu, regret = profile.gaussian
        a = np.linspace(0, 1, 301)
        proved, bound = profile.false_negative_rate(a), norm.cdf(norm.ppf(1 - a) - mu)
        assert (bound <= proved + 2e-10).all()
        less = norm.cdf(norm.ppf(1 - a) - mu * 0.995)
        tails = np.geomspace(1e-9, 1e-2, 400)
        beyond = norm.cdf(norm.ppf(1 - tails) - mu * 0.995)
        assert (less > proved).any() or (beyond > profile.false_negative_rate(tails)).any()
        shifted = profile.false_negative_rate(np.minimum(a + regret, 1)) - regret
        assert (shifted <= bound + 2e-5).all()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@tiers.every("rate", [0.1, 0.6])
def test_attackers_by_the_likelihood_ratio(noise, rate):
    """One Poisson cohort: the densities' own trade-off curves, of which the worse one is attained."""
    law, scale = {"gaussian": norm, "laplace": laplace}[noise], 0.8
    x = np.linspace(-15, 17, 200_001)
    still, moved = law.pdf(x, scale=scale), law.pdf(x, loc=1, scale=scale)
    pair = (1 - rate) * still + rate * moved, still
    curves = []
    for p, q in (pair, pair[::-1]):
        order = np.argsort(q / p, kind="stable")  # the likeliest of p first
        false = np.cumsum(q[order]) * (x[1] - x[0])
        true = np.cumsum(p[order]) * (x[1] - x[0])
        curves.append(1 - np.interp(RATES, [0, *false], [0, *true]))
    made = declared("third_party", "client", scale, Poisson(10, rate), 1, noise=noise)
    found = certified(made).profile().false_negative_rate(RATES)
    least = np.minimum(*curves)
    assert (found <= least + 1e-5).all()
    assert found[3] == pytest.approx(least[3], abs=1e-3)


def bayes(prior: float, tpr: float, fpr: float) -> float:
    """P(true unit | positive answer), from counts of 10^6 units."""
    true = 1e6 * prior
    return true * tpr / (true * tpr + (1e6 - true) * fpr)


def test_what_hides_all_leaves_a_positive_answer_at_the_prior():
    """True and false positives are equally frequent."""
    nothing = PrivacyProfile(np.array([0.0, 1.0]), np.zeros(2))
    for precisions in operational_numbers(nothing).precisions:
        np.testing.assert_allclose(precisions, [0.5, 0.01], rtol=1e-12)


@tiers.every("name", ["poisson", "gaussian"])
def test_operational_numbers_as_dp_accounting_has_them(name):
    from dp_accounting.pld import privacy_loss_distribution as pld

    multiplier, drawn, rounds = {
        "gaussian": (1.3, {}, 3),
        "poisson": (1.4, {"sampling_prob": 0.1}, 30),
    }[name]
    library = pld.from_gaussian_mechanism(
        multiplier, value_discretization_interval=1e-3, **drawn
    ).self_compose(rounds)
    eps = np.linspace(0, 30, 6001)
    delta = np.array(library.get_delta_for_epsilon(eps))

    def found(rate):
        return min((delta + np.exp(eps) * rate).min(), (1 - (1 - delta - rate) / np.exp(eps)).min())

    numbers = certificate_of(name).operational_numbers()
    told = [found(0.01), found(0.001)]
    np.testing.assert_allclose(numbers.true_positive_rates, told, atol=1e-3)
    for precisions, tpr, fpr in zip(numbers.precisions, told, (0.01, 0.001), strict=True):
        np.testing.assert_allclose(
            precisions, [bayes(0.5, tpr, fpr), bayes(0.01, tpr, fpr)], atol=1e-3
        )
    assert numbers.advantage == pytest.approx(delta[0], abs=1e-3)
    rare = 0.99 + 0.01 * library.get_delta_for_epsilon(math.log(99))
    np.testing.assert_allclose(numbers.success, [(1 + delta[0]) / 2, rare], atol=1e-3)
    assert numbers.reconstruction == pytest.approx(found(0.1), abs=1e-3)


def test_the_best_of_several_runs_by_divergences_alone():
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    made = declared("third_party", "client", 5.0, Everyone(10), 1)
    certificate = certified(made, best_of=3.0)
    profile = certificate.profile()
    assert profile.epsilon(DELTA) == certificate.epsilon
    orders = np.array(rdp.DEFAULT_RDP_ORDERS)
    once = orders / 50
    total = once + 2 * np.min((1 - 1 / orders) * once + math.log(3) / orders)
    total += math.log(3) / (orders - 1)
    for epsilon in (0.0, 0.5, 2.0):
        exact = rdp.compute_delta(orders, total, epsilon)[0]
        assert exact <= profile.delta(epsilon) <= exact * 1.01


def test_the_choice_among_settings_costs_the_largest_divergence():
    settings = [[of_everyone(m)] for m in (3.0, 5.0)]
    choice = certify_choice(settings, DELTA, 3.0)
    assert choice.profile().epsilon(DELTA) == choice.epsilon
    worst = certified(settings[0][0], best_of=3.0)
    eps = np.linspace(0, 3, 7)
    np.testing.assert_allclose(choice.profile().delta(eps), worst.profile().delta(eps), rtol=1e-9)


@pytest.mark.parametrize("quieter_first", [True, False])
def test_the_choice_among_settings_without_epsilon_has_their_largest_delta(quieter_first):
    """All have epsilon 0 at a delta of 0.1, and one releases nothing."""
    seen, nothing = (of_everyone(m) for m in (1000.0, math.inf))
    settings = [[seen], [nothing]] if quieter_first else [[nothing], [seen]]
    choice = certify_choice(settings, 0.1, 3.0)
    assert choice.epsilon == 0
    assert choice.profile().delta(0.0) >= 2 * norm.cdf(math.sqrt(3) / 2000) - 1


def test_a_choice_with_settings_that_nothing_hides_has_no_curve():
    """Nor has one whose epsilon at a small delta is infinite that of some settings alone."""
    loud, bare = (of_everyone(m) for m in (0.9, 0.0))
    for settings in ([[loud], [bare]], [[bare], [loud]]):
        choice = certify_choice(settings, DELTA, 3.0)
        assert choice.epsilon == choice.profile().epsilon(0.5) == math.inf


def test_a_choice_among_neighbours_of_two_kinds_is_refused_also_where_epsilon_is_0():
    drawn = Poisson(100, 0.1), FixedSize(100, 10)
    settings = [[declared("third_party", "client", 1e5, by, 30)] for by in drawn]
    with refused("relation: .*choose among settings of one kind"):
        certify_choice(settings, 0.1, 3.0)


def test_far_points_of_a_profile_are_joined_by_a_line_in_the_odds():
    """Which is hardly above its end, 1,000 nats below it, and no float."""
    profile = PrivacyProfile(np.array([0.0, 1.0, 2001.0]), np.array([1.0, 0.5, 0.0]))
    np.testing.assert_allclose(
        profile.delta([1.0, 1001.0, 1301.0, 2000.0]), [0.5, 0.5, 0.5, 0.5 * (1 - math.exp(-1))]
    )
    assert profile.delta(2500.0) == 0
    assert profile.epsilon(0.25) == pytest.approx(2001 + math.log(0.5), rel=1e-12)
    loud = certified(declared("third_party", "client", 1e-3, Everyone(10), 4))
    assert loud.profile().epsilon(DELTA) == pytest.approx(loud.epsilon, rel=1e-9)
    exact = norm.sf((loud.epsilon - 700) / 2000 - 1000)
    assert loud.profile().delta(loud.epsilon - 700) >= exact


def test_without_an_accountant_nothing_is_proved():
    loud = declared("third_party", "client", 5e-3, Poisson(100, 0.5), 10**6, noise="laplace")
    certificate = certified(loud)
    assert certificate.epsilon == math.inf
    assert certificate.operational_numbers().advantage == 1


def test_the_limits():
    bare = certified(declared("third_party", "client", 0.0, Everyone(10), 1))
    nothing = certified(declared("third_party", "client", math.inf, Everyone(10), 1))
    np.testing.assert_array_equal(bare.profile().false_negative_rate(RATES), 0.0)
    np.testing.assert_array_equal(nothing.profile().false_negative_rate(RATES), 1 - RATES)
    assert bare.profile().gaussian is None
    assert bare.profile().epsilon(DELTA) == math.inf
    assert nothing.profile().gaussian.mu < 1e-8
    assert bare.operational_numbers().advantage == 1
    assert bare.operational_numbers().mu is None


def test_what_is_seen_for_certain_now_and_then_has_no_mu():
    """A client of a cut cohort that remembers gives away who took its place."""
    drawn = Drawn(Poisson(100, 0.1, 31), Who(remembers=True))
    profile = certified(seen_by_hand(drawn, 1.4, 5), 0.1).profile()
    assert profile.deltas[-1] > 1e-9
    assert profile.gaussian is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gaussian", "10 of 1,000 clients whose contributions were set to zero, recognises"),
        ("poisson", "10 of 1,000 clients that did not take part, recognises"),
        ("fixed", "10 of 1,000 trainings with one client for trainings with another in its place,"),
    ],
)
def test_the_sentence_speaks_of_the_neighbours(name, said):
    certificate = certificate_of(name)
    numbers, sentence = certificate.operational_numbers(), certificate.in_words()
    assert said in sentence
    (most,) = (
        int(a)
        for a, b in itertools.pairwise(sentence.split())
        if b == "of" and a.isdigit() and a != "10"
    )
    assert most == math.ceil(1000 * numbers.true_positive_rates[0])
