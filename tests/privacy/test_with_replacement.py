"""Units drawn with replacement: each counts as often as it is drawn, and the view knows how often."""

import itertools
import math

import numpy as np
import pytest
import tiers
from pair_curves import epsilon_on_grids
from scipy.stats import binom, laplace, norm

from fedpriv.pairs.search import by_divergences
from fedpriv.pairs.separations import separations as exact_law
from fedpriv.privacy import (
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
    certify_seen,
    declared,
)
from fedpriv.privacy.certify import pair_of

DELTA, DRAWS = 1e-3, 200_000


def release(multiplier=4.0, sampling=None, steps=3, **more):
    sampling = sampling or WithReplacement(20, 4, 0.1)
    return declared("third_party", "client", multiplier, sampling, steps, **more)


def epsilon_of(*releases, delta=DELTA):
    return certify_seen(releases, delta, "third_party").epsilon


def hockey_stick(epsilon, separation):
    """H_{e^epsilon} of N(separation, 1) against N(0, 1)."""
    far = norm.sf(epsilon / separation - separation / 2)
    return far - math.exp(epsilon) * norm.sf(epsilon / separation + separation / 2)


def by_patterns(size, rate, steps, multiplier, epsilon):
    """delta, summed over all numbers of times in all rounds."""
    total = 0.0
    for pattern in itertools.product(range(size + 1), repeat=steps):
        squares = sum(n * n for n in pattern)
        if squares:
            chance = math.prod(binom.pmf(n, size, rate) for n in pattern)
            total += chance * hockey_stick(epsilon, math.sqrt(squares) / multiplier)
    return total


@tiers.every("given", [(20, 4, 0.1), (5, 3, 0.4)])
def test_the_mixture_over_all_patterns(given):
    population, size, largest = given
    found = epsilon_of(release(sampling=WithReplacement(population, size, largest)))
    assert by_patterns(size, largest, 3, 4.0, found) == pytest.approx(DELTA, rel=1e-6)


def test_a_number_computed_elsewhere():
    """41 clients equally likely, 6 draws a round; six clip norms in every round that holds one cost 5.9 times that."""
    steps, sigma, delta = 10, 20.0, 1e-5
    drawn = WithReplacement(41, 6, 1 / 41)
    found = epsilon_of(release(sigma, drawn, steps), delta=delta)
    squares, law = np.arange(7) ** 2, np.zeros(37)
    law[squares] = binom.pmf(np.arange(7), 6, 1 / 41)
    total = np.ones(1)
    for _ in range(steps):
        total = np.convolve(total, law)
    n = np.arange(1, len(total))
    exact = total[1:] @ np.vectorize(hockey_stick)(found, np.sqrt(n) / sigma)
    assert exact == pytest.approx(delta, rel=1e-5)
    assert found == pytest.approx(0.34996, rel=1e-4)
    once = declared("server", "client", sigma / 6, Poisson(41, drawn.inclusion), steps)
    assert certify_seen([once], delta, "server").epsilon > 5.8 * found


class Simulated:
    """Log-likelihood ratios of what a view sees of a unit, every draw and every release drawn."""

    def __init__(self, multiplier, drawn, rounds, local_steps, participation, noise):
        rng = np.random.default_rng(0)
        shape = (DRAWS, rounds, local_steps)
        known = 1.0 if participation is None else participation.inclusion
        there = (rng.random(shape[:2]) < known)[..., None]
        times = rng.binomial(drawn.size, drawn.largest, shape) * there
        shift = times / multiplier
        if noise == "gaussian":
            x = rng.normal(size=shape)
            ratios = shift * (x + shift) - shift**2 / 2
        else:
            x = rng.laplace(size=shape)
            ratios = np.abs(x + shift) - np.abs(x)
        self.ratios = ratios.sum((1, 2))

    def delta(self, epsilon):
        """(delta, six standard errors of it: a false alarm in 1e9)."""
        gains = np.maximum(-np.expm1(epsilon - self.ratios), 0)
        return gains.mean(), 6 * gains.std() / math.sqrt(DRAWS)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@tiers.every(
    "participation", [WithReplacement(8, 2, 0.2), FixedSize(8, 2), None], kind=lambda drawn: "any"
)
@tiers.every("counts", [(3, 4), (1, 1)])
def test_accountants_bound_the_simulated_event(noise, participation, counts):
    steps, local_steps = counts
    options = {"local_steps": local_steps, "participation": participation, "noise": noise}
    given = 2.5, WithReplacement(20, 4, 0.15), steps
    made = declared("server", "record", *given, **options)
    found = certify_seen([made], DELTA, "server")
    assert found.relation == "zero_out"
    assert set(found.epsilons) == {"PLD", "RDP"}
    simulated = Simulated(*given, **options)
    for epsilon in found.epsilons.values():
        delta, error = simulated.delta(epsilon)
        assert delta <= DELTA + error
    delta, error = simulated.delta(0.97 * found.epsilons["PLD"])
    assert delta >= DELTA - error  # nearly attained


def test_one_round_of_laplace_noise():
    axis = np.linspace(-60, 60, 240_001)
    still, exact = laplace.pdf(axis), 0.0
    found = epsilon_of(release(noise="laplace", steps=1))
    for n in range(1, 5):
        gain = np.maximum(laplace.pdf(axis, n / 4.0) - math.exp(found) * still, 0.0)
        exact += binom.pmf(n, 4, 0.1) * np.trapezoid(gain, axis)
    assert exact == pytest.approx(DELTA, rel=1e-3)


def test_the_discretised_route_agrees_with_the_mixture():
    made = release()
    by_losses = epsilon_on_grids([made], "zeroed", DELTA)
    exact = epsilon_of(made)
    assert exact * (1 - 1e-9) <= by_losses <= exact * (1 + 1e-3)
    assert exact <= by_divergences(pair_of([made], "zeroed"), DELTA).epsilon < 2 * exact


def test_who_is_drawn_less_often_is_hidden_better():
    found = [epsilon_of(release(sampling=WithReplacement(20, 4, p))) for p in (0.05, 0.1, 0.3, 1)]
    assert np.all(np.diff(found) > 0)
    everyone = epsilon_of(release(1.0, Everyone(20)))  # four times, for sure
    assert found[-1] == pytest.approx(everyone, rel=1e-9)


def test_one_draw_is_a_known_cohort_of_one():
    once = epsilon_of(release(sampling=WithReplacement(20, 1, 0.05), steps=40))
    known = declared("server", "client", 4.0, FixedSize(20, 1), 40)
    assert once == pytest.approx(certify_seen([known], DELTA, "server").epsilon, rel=1e-9)


def test_between_one_message_and_all_of_them():
    """More is seen than of a unit that counts once where it is drawn, less than of one that counts `size` times."""
    drawn = WithReplacement(20, 4, 0.1)
    least, most = (
        certify_seen(
            [declared("server", "client", m, Poisson(20, drawn.inclusion), 3)], DELTA, "server"
        )
        for m in (4.0, 1.0)
    )
    assert least.epsilon < epsilon_of(release()) < most.epsilon


@tiers.every("given", [(100, 1000), (1000, 50), (30, 10**5)])
def test_many_draws_are_rounded_up_a_little(given):
    size, steps = given
    drawn = WithReplacement(1000, size, 0.01)
    values, weights, missing = exact_law(pair_of([release(1.0, drawn, steps)], "zeroed"))
    mean, p = size * 0.01, 0.01
    expected = steps * (mean * (1 - p) + mean**2)
    assert 1 - 1e-9 <= values @ weights / expected < 1 + 1e-3
    assert weights.sum() + missing == pytest.approx(1, abs=1e-9)
    assert missing < 1e-30
    assert len(values) <= 10_000


@pytest.mark.slow
def test_several_releases_stay_tractable():
    phases = [release(100.0 + i, WithReplacement(50, 40, 0.02), 5000) for i in range(3)]
    three = epsilon_of(*phases)
    loudest, quietest = (
        epsilon_of(release(m, WithReplacement(50, 40, 0.02), 15_000)) for m in (102, 100)
    )
    assert loudest < three < quietest


def test_what_is_assumed_is_said():
    texts = " ".join(certify_seen([release()], DELTA, "third_party").assumptions)
    assert "moves a sum by n clip norms" in texts
    assert "average over the draw" in texts
