"""Composition far out in the tail: closed forms in many digits, importance sampling, the library where it reaches."""

import gc
import itertools
import math
import weakref

import mpmath
import numpy as np
import pytest
import tiers
from pair_curves import bound, directions, epsilon_on_grids
from scipy.optimize import brentq
from scipy.stats import laplace, norm

from fedpriv.pairs.grids import on_grids
from fedpriv.pairs.large_losses import ComposedApart
from fedpriv.pairs.separations import epsilon_of_mixture
from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.certify import pair_of
from fedpriv.proof.cells import Losses
from fedpriv.proof.composed import Composed
from fedpriv.proof.exact import exact
from fedpriv.proof.pairs import NOTHING, Times, Told
from fedpriv.proof.tilted import DrawLosses

LAWS = {"gaussian": norm, "laplace": laplace}


def release(multiplier=1.4, sampling=None, steps=10, view="third_party", **more):
    return declared(view, "client", multiplier, sampling or Poisson(100, 0.05), steps, **more)


def gaussian_epsilon(separation, delta):
    """The root of Balle and Wang's curve, in 60 digits."""
    with mpmath.workdps(60):
        mu = mpmath.mpf(separation)

        def excess(epsilon):
            below = mpmath.ncdf(mu / 2 - epsilon / mu)
            above = mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
            return mpmath.log((below - above) / mpmath.mpf(delta))

        guess = mu**2 / 2 + mu * mpmath.sqrt(-2 * mpmath.log(delta))
        return float(mpmath.findroot(excess, (guess / 4, guess), solver="anderson", tol=1e-30))


@tiers.every("delta", [1e-15, 1e-5, 1e-25])
@tiers.every("given", [(0.5, 1), (1.4, 1), (10.0, 100), (40.0, 20)])
def test_gaussian_noise_without_sampling(given, delta):
    """The closed form, and nothing of it given away but the width of a cell."""
    multiplier, rounds = given
    made = release(multiplier, Poisson(10, 1.0), rounds)
    found = epsilon_on_grids([made], "removed", delta)
    closed = gaussian_epsilon(math.sqrt(rounds) / multiplier, delta)
    assert closed <= found <= closed * (1 + 1e-3)


class Sampled:
    """One direction of rounds of noise, moved by 1 / multiplier at a rate, by importance sampling.

    The output is rounded to a fine grid, which can only lower what it tells.
    """

    def __init__(self, noise, multiplier, rate, rounds, removed, epsilon, draws=100_000):
        law, edges = LAWS[noise], np.linspace(-45, 45, 60_001)
        at = edges - 1 / multiplier
        moved = np.diff(law.cdf(np.minimum(at, 0))) - np.diff(law.sf(np.maximum(at, 0)))
        still = np.diff(law.cdf(np.minimum(edges, 0))) - np.diff(law.sf(np.maximum(edges, 0)))
        pair = ((1 - rate) * still + rate * moved, still)
        p, q = pair if removed else pair[::-1]
        seen = (p > 1e-300) & (q > 1e-300)
        p, loss = p[seen], np.log(p[seen] / q[seen])

        def weights(tilt):
            exponents = np.log(p) + tilt * loss
            return exponents - np.logaddexp.reduce(exponents), np.logaddexp.reduce(exponents)

        def off(tilt):
            return rounds * (np.exp(weights(tilt)[0]) @ loss) - epsilon

        tilt = brentq(off, 0, 1e3) if off(1e3) > 0 else 1e3
        logs, moment = weights(tilt)
        cumulative = np.cumsum(np.exp(logs))
        rng = np.random.default_rng(0)
        total = np.zeros(draws)
        for _ in range(rounds):
            drawn = np.searchsorted(cumulative, rng.random(draws) * cumulative[-1])
            total += loss[np.minimum(drawn, len(loss) - 1)]
        gains = np.where(total > epsilon, -np.expm1(np.minimum(epsilon - total, 0)), 0.0)
        each = gains * np.exp(rounds * moment - tilt * total)
        self.delta, self.error = each.mean(), 6 * each.std() / math.sqrt(draws)


RARELY, OFTEN = (1.4, 0.05, 20), (0.8, 0.3, 3)


@tiers.every(
    "given",
    [
        ("gaussian", 1e-15, OFTEN),
        ("laplace", 1e-10, OFTEN),
        ("laplace", 1e-15, RARELY),
        ("gaussian", 1e-18, RARELY),
    ],
    kind=lambda given: given[0],
)
def test_sampled_rounds(given):
    """Every noise meets every sampling. Six standard errors: a false alarm in 1e9."""
    noise, delta, drawn = given
    multiplier, rate, rounds = drawn
    made = release(multiplier, Poisson(100, rate), rounds, noise=noise)
    epsilon = epsilon_on_grids([made], "removed", delta)
    both = directions([made], "removed")
    assert max(delta_of(epsilon) for delta_of in both) <= delta * (1 + 1e-3)
    attained = False
    for removed, delta_of in zip((True, False), both, strict=True):
        here, nearby = (
            Sampled(noise, multiplier, rate, rounds, removed, factor * epsilon)
            for factor in (1.0, 0.998)
        )
        assert here.delta - here.error <= delta_of(epsilon)
        attained |= nearby.delta + nearby.error >= delta
    assert attained


@pytest.mark.parametrize("noise", LAWS)
@tiers.every("given", [(30, 1e-4), (1, 1e-5)])
def test_the_library_where_it_reaches(noise, given):
    from dp_accounting.pld import privacy_loss_distribution as pld

    make = {"gaussian": pld.from_gaussian_mechanism, "laplace": pld.from_laplace_mechanism}[noise]
    rounds, cell = given
    once = make(1.4, sampling_prob=0.05, value_discretization_interval=cell)
    theirs = once.self_compose(rounds, 1e-30).get_epsilon_for_delta(1e-10)
    found = epsilon_on_grids([release(steps=rounds, noise=noise)], "removed", 1e-10)
    assert found == pytest.approx(theirs, rel=1e-3)


@tiers.every("delta", [1e-10, 1e-18])
def test_rounds_that_are_seen_or_not(delta):
    """Of several kinds, with local steps: discretised against the mixture over all counts."""
    made = [
        release(1.4, Everyone(60), 9, "server", local_steps=2, participation=FixedSize(60, 6)),
        release(3.0, Poisson(60, 0.3), 5, "server"),
    ]
    closed = epsilon_of_mixture(*exact(pair_of(made, "zeroed")), delta)
    found = epsilon_on_grids(made, "zeroed", delta)
    assert closed <= found <= closed * (1 + 1e-3)


@tiers.every(
    "sampling",
    [Poisson(6000, 1 / 60), FixedSize(6000, 100), Poisson(6000, 1 / 60, 90)],
    kind=lambda sampling: "any",
)
def test_tighter_than_renyi(sampling):
    delta = 1e-15
    found = certify_seen([release(sampling=sampling, steps=180)], delta, "third_party")
    assert found.accountant == "PLD"
    assert found.epsilon < 0.95 * found.epsilons["RDP"]
    less = certify_seen([release(sampling=sampling, steps=180)], 10 * delta, "third_party")
    assert less.epsilon < found.epsilon


def test_a_small_distribution_by_hand():
    """All outcomes of three rounds, in each of which the unit takes part in two releases or in none."""
    once = Losses(-2, np.array([0.2, 0.0, 0.3, 0.1, 0.35]), 0.05)
    tree = Times(Told(((0.4, Times(DrawLosses(once, 0.25), 2)), (0.6, NOTHING))), 3)
    composed = Composed(tree, 0.25)
    outcomes = [*zip((np.arange(5) - 2) * 0.25, once.chances, strict=True), (math.inf, 0.05)]
    of_round = [(0.0, 0.6)]
    for (a, p), (b, q) in itertools.product(outcomes, repeat=2):
        of_round.append((a + b, 0.4 * p * q))
    by_hand = dict.fromkeys((0.0, 0.1, 0.25, 1.3, 2.9), 0.0)
    infinite = 0.0
    for rounds in itertools.product(of_round, repeat=3):
        loss, chance = sum(r[0] for r in rounds), math.prod(r[1] for r in rounds)
        infinite += chance if loss == math.inf else 0.0
        for epsilon in by_hand:
            by_hand[epsilon] += chance * max(0.0, -math.expm1(min(epsilon - loss, 0.0)))
    assert composed.infinity == pytest.approx(infinite, rel=1e-12)
    for epsilon, delta in by_hand.items():
        assert delta * (1 - 1e-14) <= bound(composed, epsilon) <= delta * (1 + 1e-9)

    # Where it is the largest loss that is told apart, and several of them count as infinite.
    apart = ComposedApart(tree, 0.25, 6 * 0.4 * 0.35 + 1e-9)
    large = 0.4 * 2 * 0.35  # expected of a round, in which 0.4 * 0.35^2 is the chance of two
    several = 3 * 0.4 * 0.35**2 + 3 * large**2
    assert apart.infinity == pytest.approx(infinite + several, rel=1e-6)
    for epsilon, delta in by_hand.items():
        assert delta <= bound(apart, epsilon) <= delta + several + 1e-9


def test_rare_losses_that_no_tilt_reaches():
    """Their chances fall as a power: against convolutions, in which nothing cancels."""
    tail = 1e-8 * np.arange(1.0, 1001) ** -5.0
    chances = np.concatenate([[0.5, 0.5 - tail.sum()], tail])
    twice = np.convolve(chances, chances)
    of_four = np.convolve(twice, twice)
    losses_of_four = (np.arange(len(of_four)) - 4) * 1e-3
    tree = Times(DrawLosses(Losses(-1, chances, 0.0), 1e-3), 4)
    for epsilon in (0.05, 0.1, 0.3):
        delta = float(of_four @ -np.expm1(np.minimum(epsilon - losses_of_four, 0.0)))
        assert delta < 1e-13
        assert bound(Composed(tree, 1e-3), epsilon) >= delta
        apart = ComposedApart(tree, 1e-3, math.sqrt(2e-4 * delta))
        assert delta <= bound(apart, epsilon) <= 1.01 * delta


def test_a_composition_leaves_nothing_behind():
    """Its arrays, megabytes at every evaluation of a run, go without waiting for cyclic garbage to be looked for."""
    pair = pair_of([release(1.4, Poisson(100, 0.05), 50)], "removed")
    gc.disable()
    try:
        (grid,) = on_grids(pair, 1e-5)
        assert 0 < grid.epsilon < math.inf
        left = weakref.ref(grid.composed[0].sums[0])
        on_grids.cache_clear()
        del grid
        assert left() is None
    finally:
        gc.enable()
