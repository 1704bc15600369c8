"""Bounds and estimates of epsilon from scores: against closed forms, linear programs, enumeration; and their errors."""

import math
from itertools import product

import dp_accounting
import numpy as np
import pytest
import tiers
from jax_privacy.auditing import CanaryScoreAuditor, Explicit
from scipy import stats
from scipy.optimize import linprog

from fedpriv.attacks.bounds import Thresholds, _at_least, _tossed, best_thresholds, lower_bounds
from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.attacks.one_run import METHODS, epsilon_one_run, p_value_one_run
from fedpriv.experiments.attacks.audit.null import (
    gaussian,
    many_runs,
    one_run,
    pairs,
    randomised_response,
    subsampled,
)
from fedpriv.mechanisms.mechanisms import gaussian as gaussian_noise
from fedpriv.privacy import Poisson, PrivacyProfile, certify_seen, declared

NOISE = frozenset({"gaussian"})


def mu_of(epsilon, delta):
    return 1 / dp_accounting.get_sigma_gaussian(epsilon, delta)


# Many draws


@tiers.every("epsilon", [1.0, 4.0])
def test_bounds_of_many_draws_reach_epsilon(epsilon):
    """Of 4 million draws of a Gaussian pair; they are wrong with probability 1e-6."""
    delta = 5e-3
    pair, rng = gaussian(mu_of(epsilon, delta)), np.random.default_rng(0)
    fixed = best_thresholds(pair.scores(rng, 200_000), delta, 1e-6, runs=4_000_000)
    found = lower_bounds(pair.scores(rng, 2_000_000), delta, 1e-6, threshold=fixed)
    assert 0.9 * epsilon < found.clopper_pearson <= epsilon
    assert 0.98 * epsilon < found.gaussian <= epsilon
    assert found.least == found.gaussian


@pytest.mark.parametrize(
    ("epsilon", "delta", "least"), [(1, 5e-3, 0.71), (4, 5e-3, 2.90), (8, 1e-5, 3.61)]
)
def test_they_have_more_power_than_the_counts_of_one_direction(epsilon, delta, least):
    """`least`: by Clopper-Pearson bounds of both rates at the best threshold, of 16,000 draws. Median of 9."""
    pair, rng = gaussian(mu_of(epsilon, delta)), np.random.default_rng(0)
    fixed = best_thresholds(pair.scores(rng, 100_000), delta, runs=16_000)
    found = [lower_bounds(pair.scores(rng, 8_000), delta, threshold=fixed) for _ in range(9)]
    assert np.median([bounds.clopper_pearson for bounds in found]) > least


def test_one_guess_alone_gives_up_half_of_delta():
    """A mechanism that shows a unit with probability delta, and says nothing else, is (0, delta)-private."""
    delta, rng = 0.1, np.random.default_rng(0)
    present = (rng.random(50_000) < delta).astype(float)
    scores = Scores(present, np.zeros(50_000), frozenset({"other"}), False)
    fixed = Thresholds((-np.inf, 1.0), (-np.inf, 1.0))
    assert lower_bounds(scores, delta, 1e-6, threshold=fixed).clopper_pearson == 0
    # With less than that it is not private at all: right guesses without a wrong one show about log n.
    assert lower_bounds(scores, delta / 2, 1e-6, threshold=fixed).clopper_pearson > 3


def test_no_bad_luck_with_coins_or_thresholds_leaves_nothing():
    """100 sets of scores of 20 rounds, in each of which a unit is with probability 1/4: an epsilon of 4.4.

    Where coins that fell badly left none to count, one set in 400 showed nothing, at 95 % alone.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(100):
        mu = np.sqrt(rng.binomial(20, 0.25, (2, 4_000))) / 2.568
        x = mu * rng.normal(size=mu.shape)
        scores = Scores(x[0] + mu[0] ** 2 / 2, x[1] - mu[1] ** 2 / 2, NOISE, False)
        found.append([lower_bounds(scores, 1e-5, of).clopper_pearson for of in (0.05, 0.2)])
    assert np.min(found) > 0.5
    assert np.max(found) < 4.4


def test_clopper_pearson():
    for successes, trials in ((0, 5), (3, 7), (40, 40)):
        exact = stats.binomtest(successes, trials, alternative="greater").proportion_ci(0.99)
        assert _at_least(successes, trials, 0.01) == pytest.approx(exact.low, abs=1e-12)


@tiers.every("both", [(30, 80), (50, 50), (500, 500)])
def test_coins_choose_nearly_all_draws(both):
    """As many as there are enough of both for, but with a probability of a twentieth of the significance."""
    present, absent = both
    scores, rng = (np.arange(float(present)), np.arange(float(absent))), np.random.default_rng(0)
    counted = [tuple(map(len, _tossed(*scores, 0.05, rng))) for _ in range(2000)]
    (runs,) = {sum(pair) for pair in counted}  # never none
    coin = stats.binom(runs, 0.5)
    assert coin.sf(present) + coin.sf(absent) <= 0.05 / 20
    more = stats.binom(runs + 1, 0.5)
    assert more.sf(present) + more.sf(absent) > 0.05 / 20
    heads = [there for there, away in counted if there + away]
    assert abs(np.mean(heads) - runs / 2) < 5 * math.sqrt(runs / 4 / len(heads))


def test_too_few_draws_show_nothing():
    for n in (1, 3):
        found = lower_bounds(Scores(np.ones(n), np.zeros(n), NOISE, True), 1e-3)
        assert (found.clopper_pearson, found.gaussian) == (0, 0)


def test_nothing_is_guessed_twice_where_thresholds_overlap():
    """All are "present" here, which is right for half of them."""
    overlap = Thresholds((1.0, 0.0), (1.0, 0.0))
    scores = Scores(np.full(500, 0.5), np.full(500, 0.5), NOISE, True)
    found = lower_bounds(scores, 1e-3, threshold=overlap)
    assert (found.clopper_pearson, found.gaussian) == (0, 0)
    scores = Scores(np.full(500, 1.0), np.full(500, -1.0), NOISE, True)
    assert lower_bounds(scores, 1e-3, threshold=overlap).clopper_pearson > 3


def test_the_gaussian_bound_is_for_gaussian_noise_alone():
    there, away = np.arange(100.0) + 50, np.arange(100.0)
    for noise, certain, delta in ((NOISE, False, 0.1), (frozenset({"laplace"}), True, 0.1)):
        assert lower_bounds(Scores(there, away, noise, certain), delta).gaussian is None
    found = lower_bounds(Scores(there, away, NOISE, True), 0.0)
    assert found.gaussian is None
    assert found.least == found.clopper_pearson


# One run


def canaries(correct, made, others):
    """Scores and coins of which the `made` highest are guessed, so many of them rightly."""
    there = np.append(np.arange(made) < correct, np.zeros(others, bool))
    return np.append(np.ones(made), np.zeros(others)), there


@pytest.mark.parametrize(("m", "c", "v"), [(1000, 1000, 700), (500, 80, 74), (30, 30, 30)])
def test_f_dp_is_as_in_jax_privacy_for_as_many_guesses(m, c, v):
    scores, there = canaries(v, c, m - c + (m == c == v))
    theirs = CanaryScoreAuditor(scores[there], scores[~there]).epsilon_one_run_fdp(
        0.05, 1e-4, threshold_strategy=Explicit(0.5)
    )
    ours = epsilon_one_run(scores, there, 1e-4, guesses=(0, c))
    assert ours == pytest.approx(theirs, abs=1e-3)


def most_probable(m, c, v, delta, epsilon):
    """The largest Pr[v or more] that the theorem allows for the curve of (epsilon, delta): a linear program."""
    rows, most = [], []
    for i in range(1, c + 1):
        right = np.array([j / m if j >= i else 0 for j in range(c + 1)])
        wrong = np.array([(c - j) / m if j >= i - 1 else 0 for j in range(c + 1)])
        # wrong >= f(1 - right) for both lines of f
        rows += [math.exp(-epsilon) * right - wrong, math.exp(epsilon) * right - wrong]
        most += [math.exp(-epsilon) * delta, math.exp(epsilon) - 1 + delta]
    gain = -(np.arange(c + 1) >= v).astype(float)
    found = linprog(gain, rows, most, np.ones((1, c + 1)), [1.0])
    return -found.fun


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize(("m", "c"), [(20, 8), (12, 12)])
def test_p_values_solve_the_linear_program(m, c, epsilon):
    delta = 0.02
    at_zero = 1 - 2 * (1 - delta) / (1 + math.exp(epsilon))
    profile = PrivacyProfile(np.array([0.0, epsilon]), np.array([at_zero, delta]))
    for v in range(c // 2 + 1, c + 1):
        found = p_value_one_run(*canaries(v, c, m - c), profile, guesses=(0, c))
        assert found == pytest.approx(most_probable(m, c, v, delta, epsilon), rel=1e-6)


def test_bounds_by_any_curve_invert_their_p_values():
    epsilon = epsilon_one_run(*canaries(70, 80, 500), 1e-3, method="epsilon_delta", guesses=(0, 80))
    at_zero = 1 - 2 * (1 - 1e-3) / (1 + math.exp(epsilon))
    profile = PrivacyProfile(np.array([0.0, epsilon]), np.array([at_zero, 1e-3]))
    p_value = p_value_one_run(*canaries(70, 80, 500), profile, guesses=(0, 80))
    assert p_value == pytest.approx(0.05, rel=1e-6)


def exact_profile(law):
    """Of a mechanism over all coins (f64[2, .., 2, outputs]), for neighbours that differ in any one of them."""
    epsilons = np.linspace(0, 8, 801)
    deltas = np.zeros_like(epsilons)
    for axis in range(law.ndim - 1):
        one, other = (np.take(law, side, axis).reshape(-1, law.shape[-1]) for side in (0, 1))
        for p, q in ((one, other), (other, one)):
            excess = np.maximum(p - np.exp(epsilons)[:, None, None] * q, 0).sum(-1).max(1)
            deltas = np.maximum(deltas, excess)
    return PrivacyProfile(epsilons, deltas)


@pytest.mark.parametrize("seed", range(6))
def test_no_mechanism_beats_the_theorem(seed):
    """Enumerated: random mechanisms of four canaries, and every guess by rank, all coins and outputs."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(8, [0.3, 1.0, 3.0][seed % 3]), size=(2,) * 4)
    profile = exact_profile(law)
    scores = np.array([np.take(law, 1, j).mean((0, 1, 2)) for j in range(4)])  # [canary, output]
    scores = scores / np.array([np.take(law, 0, j).mean((0, 1, 2)) for j in range(4)])
    for guesses in ((0, 1), (1, 1), (2, 2), (0, 4)):
        c = sum(guesses)
        tail = np.zeros(c + 2)
        for coins, output in product(product((0, 1), repeat=4), range(8)):
            order = np.argsort(scores[:, output])
            there = np.array(coins, bool)
            right = (~there[order[: guesses[0]]]).sum() + there[order[4 - guesses[1] :]].sum()
            tail[: right + 1] += law[(*coins, output)] / 16
        for v in range(1, c + 1):
            bound = p_value_one_run(*canaries(v, c, 4 - c), profile, guesses=(0, c))
            assert tail[v] <= bound * (1 + 1e-6)


def test_all_shown_with_probability_delta_keeps_the_bound():
    """Randomised response that shows all coins with probability delta is (epsilon, delta)-private."""
    epsilon, delta, c = 0.5, 0.03, 20
    at_zero = delta + (1 - delta) * math.tanh(epsilon / 2)
    profile = PrivacyProfile(np.array([0.0, epsilon]), np.array([at_zero, delta]))
    for v in (15, 18, 20):
        honest = stats.binom(c, 1 / (1 + math.exp(-epsilon)))
        tail = delta + (1 - delta) * honest.sf(v - 1)
        assert tail <= p_value_one_run(*canaries(v, c, 0), profile, guesses=(0, c))


def test_steinke_by_hand():
    """Theorem 5.2 with delta near 0: c of c guesses right at p >= (1 + e^-eps)^-c, where c is a fifth of 200."""
    present = np.arange(200) % 2 == 0
    least = -np.log(0.05 ** (-1 / 40) - 1)
    for method in ("steinke", "epsilon_delta"):
        found = epsilon_one_run(present.astype(float), present, 1e-12, method=method)
        assert found == pytest.approx(least, abs=1e-3)


def test_equal_scores_say_nothing_however_they_are_ordered():
    """Coins in the order of the canaries, as callers may have them."""
    there = np.arange(2_500) < 1_250
    for method in METHODS:
        assert epsilon_one_run(np.zeros(2_500), there, 1e-3, method=method) < 0.2
    assert epsilon_one_run(np.arange(2_500.0), there, 1e-3) == 0


def test_coins_that_all_fell_alike_say_nothing():
    for present in (np.ones(30, bool), np.zeros(30, bool)):
        for method in METHODS:
            assert epsilon_one_run(np.arange(30.0), present, 1e-5, method=method) == 0
    assert epsilon_one_run(np.zeros(1), np.ones(1, bool), 1e-5) == 0


def test_a_certificate_is_refuted_by_canaries_with_too_little_noise():
    """Wrongly with probability 1e-6. All are guessed: that helps where nearly all guesses are right."""
    rng = np.random.default_rng(0)
    there = rng.random((5, 400)) < 0.5
    scores = rng.normal(size=there.shape) + 5 * there
    guesses = (1_000, 1_000)
    assert p_value_one_run(scores, there, gaussian(0.5).profile(), guesses=guesses) < 1e-6
    assert p_value_one_run(scores, there, gaussian(5.0).profile(), guesses=guesses) > 1e-6


# How often they are wrong


def test_the_pairs_are_what_they_say():
    """The subsampled one is a Poisson round, and scores above epsilon are as likely as (epsilon, delta) says."""
    pair = subsampled(2.0, 0.2)
    used = gaussian_noise(1.0, 0.5)
    made = declared("third_party", "client", 0.5, Poisson(50, 0.2), 1, mechanism=used)
    for delta in (1e-1, 5e-3, 1e-5):
        certified = certify_seen([made], delta, "third_party").epsilon
        assert pair.epsilon(delta) == pytest.approx(certified, rel=1e-3)
    rng = np.random.default_rng(0)
    for pair in (gaussian(1.0), subsampled(2.0, 0.2), randomised_response(1.0)):
        scores = pair.scores(rng, 100_000)
        for above in (0.2, 0.8):
            found = np.mean(scores.present > above) - np.exp(above) * np.mean(scores.absent > above)
            assert found < pair.delta(np.array(above)) + 5 * (1 + np.exp(above)) / math.sqrt(4e5)


PAIRS = {f"{pair.name}, delta {delta}": (pair, delta) for pair, delta in pairs()}


@tiers.every("name", PAIRS, kind=lambda case: "a pair")
def test_bounds_are_wrong_as_seldom_as_they_say(name):
    """Of 100 audits at 95 % more than 18 have a chance of 1e-6. 1,000: `attacks/audit/null.py`."""
    pair, delta = PAIRS[name]
    for row in (*many_runs(pair, delta, 100, 500), *one_run(pair, delta, 100, 200)):
        assert row.exceeded <= row.allowed == 18


# Estimates


def test_the_estimate_of_a_gaussian_mechanism():
    """Scores of mu = 1; the relative error of 1e5 each is below 2 % (five standard deviations)."""
    rng = np.random.default_rng(0)
    present = np.arange(200_000) % 2 == 0
    scores = rng.normal(size=200_000) + present
    true = dp_accounting.get_epsilon_gaussian(1.0, 1e-5)
    found = gaussian_estimate(scores.reshape(2, -1), present.reshape(2, -1), 1e-5)
    assert found.epsilon == pytest.approx(true, rel=0.03)
    assert found.low < true < found.high
    assert found.mu == pytest.approx(1, rel=0.03)
    assert found.p_value > 1e-6
    assert gaussian_estimate(-scores, present, 1e-5)[:4] == (0, 0, 0, 0)


def test_its_interval_is_that_of_the_non_central_t():
    rng = np.random.default_rng(1)
    there = np.arange(60) < 25
    scores = rng.normal(size=60) + 1.5 * there
    found = gaussian_estimate(scores, there, 1e-3)
    scale = math.sqrt(1 / 25 + 1 / 35)
    t = stats.ttest_ind(scores[there], scores[~there]).statistic
    assert found.mu == pytest.approx(t * scale)
    for end, chance in ((found.low, 0.975), (found.high, 0.025)):
        assert stats.nct.cdf(t, 58, mu_of(end, 1e-3) / scale) == pytest.approx(chance, abs=2e-3)


@pytest.mark.slow
def test_its_interval_and_test_are_wrong_as_seldom_as_they_say():
    """Of 200 normal samples; more than the binomial quantiles have a chance of 1e-6.

    The tests of normality are approximations, and 60 scores of a side are few for them: 7 % are allowed instead of 5 %.
    """
    rng, outside, small = np.random.default_rng(0), 0, 0
    for _ in range(200):
        there = rng.random(120) < 0.5
        found = gaussian_estimate(rng.normal(size=120) + there, there, 1e-3)
        outside += not found.low <= dp_accounting.get_epsilon_gaussian(1.0, 1e-3) <= found.high
        small += found.p_value < 0.05
    assert outside <= stats.binom.ppf(1 - 1e-6, 200, 0.05)
    assert 1 < small <= stats.binom.ppf(1 - 1e-6, 200, 0.07)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, there, rng: x * (1 + 0.2 * there),
        lambda x, there, rng: x + 0.05 * x**2,
        lambda x, there, rng: x + 3 * (there & (rng.random(len(x)) < 0.1)),
    ],
    ids=["variances", "skewed", "mixture"],
)
def test_the_assumption_is_refuted_where_it_fails(change):
    rng = np.random.default_rng(0)
    there = rng.random(4_000) < 0.5
    scores = change(rng.normal(size=4_000), there, rng)
    assert gaussian_estimate(scores, there, 1e-3).p_value < 1e-3


def test_estimates_of_few_scores():
    there = np.arange(10) < 5
    assert gaussian_estimate(there.astype(float), there, 1e-3).epsilon == math.inf
    assert gaussian_estimate(np.zeros(10), there, 1e-3)[:4] == (0, 0, 0, 0)
    assert math.isnan(gaussian_estimate(np.arange(10.0), there, 1e-3).p_value)
    assert gaussian_estimate(np.arange(10.0), np.ones(10, bool), 1e-3).epsilon == 0
