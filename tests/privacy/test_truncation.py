"""Poisson cohorts that are cut to a capacity: explicit neighbours, which come near the certificate or do not."""

import math

import numpy as np
import pytest
import tiers
from pair_curves import directions, epsilon_on_grids
from scipy.optimize import brentq
from scipy.stats import binom, norm

from fedpriv.pairs.grids import cell_width
from fedpriv.privacy import Poisson, Who, declared
from fedpriv.privacy.certify import pair_of

N, RATE, SIGMA, DELTA = 1000, 0.1, 1.4, 1e-5
STEP, CELL = 0.05, 2e-4


def among_others(capacity, degrees):
    """Densities of a sum with a unit and without it, times the cells' area: every draw by its probability.

    All others are at -e, the unit at this angle from e.
    """
    k = np.arange(N)
    chances = binom.pmf(k, N - 1, RATE)
    k, chances = k[chances > 1e-18], chances[chances > 1e-18]
    joins = chances * RATE * np.minimum(1, capacity / (k + 1))
    along, across = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    e = np.arange(-min(k[-1], capacity) - 12, -min(k[0], capacity) + 14, STEP)
    o = np.arange(-12, 14, STEP)

    def of(weights, means):
        return norm.pdf(e[:, None], means, SIGMA) @ weights

    stays = of(chances - joins, -np.minimum(k, capacity))
    moves = of(joins, along - np.minimum(k, capacity - 1))
    still, moved = norm.pdf(o, 0, SIGMA), norm.pdf(o, across, SIGMA)
    there = np.multiply.outer(stays, still) + np.multiply.outer(moves, moved)
    without = np.multiply.outer(of(chances, -np.minimum(k, capacity)), still)
    return there * STEP**2, without * STEP**2


def composed(p, q, rounds):
    """epsilon -> divergence of so many rounds of p against q, with losses rounded down."""
    seen = (p > 0) & (q > 0)
    cells = np.floor(np.log(p[seen] / q[seen]) / CELL).astype(int)
    first, size = cells.min(), 2**19
    law = np.bincount(cells - first, p[seen])
    total = np.fft.irfft(np.fft.rfft(law, size) ** rounds, size)
    start = int(rounds * (np.arange(len(law)) @ law)) - size // 2
    loss = (start + (np.arange(size) - start) % size + rounds * first) * CELL

    def delta(epsilon):
        above = loss > epsilon
        return total[above] @ -np.expm1(epsilon - loss[above])

    return delta


def certified(capacity, rounds):
    release = declared("third_party", "client", SIGMA, Poisson(N, RATE, capacity), rounds)
    return [release], cell_width(pair_of([release], "removed"))


@tiers.every(
    "given",
    [(20, 0, 3.79, 3.807), (50, 0, 7.87, 7.881), (90, 60, 6.01, 12.22), (100, 90, 4.54, 10.59)],
)
def test_explicit_neighbours_of_a_hundred_rounds(given):
    """A thousand clients, 100 of them on average. Far below that there is nothing to gain; near it, who knows."""
    capacity, degrees, attained, bound = given
    delta = composed(*among_others(capacity, degrees), 100)
    lower = brentq(lambda epsilon: delta(epsilon) - DELTA, 0, 30, xtol=1e-6)
    releases, _ = certified(capacity, 100)
    found = epsilon_on_grids(releases, "removed", DELTA)
    assert lower == pytest.approx(attained, rel=2e-3)
    assert found == pytest.approx(bound, rel=1e-3)
    assert lower <= found


@tiers.every("given", [(20, 0), (90, 90), (100, 0)])
def test_explicit_neighbours_of_one_round(given):
    capacity, degrees = given
    p, q = among_others(capacity, degrees)
    found_ways = directions(certified(capacity, 1)[0], "removed", 2e-4)
    for epsilon in (0.05, 0.3, 1.5):
        for (a, b), direction in zip(((p, q), (q, p)), found_ways, strict=True):
            exact = np.maximum(a - math.exp(epsilon) * b, 0).sum()
            found = direction(epsilon)
            assert exact <= found * (1 + 1e-3) + 1e-12  # the grid of the densities
            if capacity == 20 and degrees == 0:
                assert found <= exact * (1 + 1e-3) + 1e-12


def test_the_cases_are_those_of_the_draw():
    """Who joins among so many others; and how often the unit is there, all in all."""
    cases = Poisson(30, 0.2, 4).cases("removed", Who())
    k = np.arange(30)
    chances = binom.pmf(k, 29, 0.2)
    there = 0.2 * np.minimum(1, 4 / (k + 1))
    assert sum(case.chance for case in cases) == pytest.approx(1, abs=1e-14)
    assert sum(case.chance * case.rate for case in cases) == pytest.approx(chances @ there)
    assert [case.far for case in cases] == [1.0, 2.0]
    assert cases[1].chance == pytest.approx(chances[4:].sum())


@pytest.mark.slow
def test_less_than_the_library_has_for_it():
    """It takes a unit replaced where a cohort is cut."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    for capacity, rounds in ((20, 10), (100, 100)):
        releases, width = certified(capacity, rounds)
        once = pld.from_truncated_subsampled_gaussian_mechanism(
            N, RATE, capacity, SIGMA, value_discretization_interval=width
        )
        theirs = once.self_compose(rounds).get_epsilon_for_delta(DELTA)
        ours = epsilon_on_grids(releases, "removed", DELTA)
        assert 0.8 * theirs < ours < theirs
