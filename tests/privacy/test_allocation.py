"""Blocks of which a unit is in one round, drawn at random: against integrals, simulation and bounds of others."""

import itertools
import math

import numpy as np
import pytest
import tiers
from drawn_by_hand import seen_by_hand
from pair_curves import directions as directions_of
from scipy.stats import binom, laplace, norm

from fedpriv.privacy import Allocation, Everyone, Who, certify_seen, declared
from fedpriv.privacy.drawn import Drawn

DELTA = 1e-5
STEP = 0.02
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)


def block_of(multiplier, sampling, blocks=1, noise="gaussian"):
    if isinstance(sampling, int):
        sampling = Allocation(1000, sampling)
    drawn = sampling if isinstance(sampling, Drawn) else Drawn(sampling)
    return seen_by_hand(drawn, multiplier, blocks, noise=noise)


def certified(multiplier, sampling, blocks=1, noise="gaussian", delta=DELTA):
    return certify_seen(
        [block_of(multiplier, sampling, blocks, noise)], delta, "third_party"
    ).epsilon


def directions(release):
    """With the unit against without it, and the other way round: epsilon -> delta."""
    return directions_of([release], "removed")


def divergences(p, q, epsilon):
    a = math.exp(epsilon)
    return np.maximum(p - a * q, 0).sum(), np.maximum(q - a * p, 0).sum()


LAWS = {"gaussian": norm, "laplace": laplace}


@tiers.every("noise", LAWS, kind=lambda law: "any")
@tiers.every("multiplier", [0.5, 1.0, 2.0])
def test_blocks_of_two_by_integration(noise, multiplier):
    law = LAWS[noise]
    x = np.arange(-12, 12 + 1 / multiplier, STEP) * (1 if noise == "gaussian" else 1.7)
    still, moved = (law.pdf(x, m) * (x[1] - x[0]) for m in (0, 1 / multiplier))
    q = np.multiply.outer(still, still)
    p = (np.multiply.outer(moved, still) + np.multiply.outer(still, moved)) / 2
    found = [
        curve(np.array(EPSILONS)) for curve in directions(block_of(multiplier, 2, noise=noise))
    ]
    for epsilon, told in zip(EPSILONS, np.transpose(found), strict=True):
        for exact, bound in zip(divergences(p, q, epsilon), told, strict=True):
            assert exact * (1 - 2e-3) - 1e-12 <= bound <= exact * (1 + 4e-3) + 1e-4 * STEP


@tiers.every("given", [(5, 0.7), (64, 1.0), (300, 0.5)])
def test_longer_blocks_by_simulation(given):
    """Means of 20,000 draws of the ratio, within five deviations: false alarm 1e-6 each, by the normal law."""
    block, multiplier = given
    mu, rng = 1 / multiplier, np.random.default_rng(0)
    draws = (rng.normal(size=(1000, block)) for _ in range(20))
    ratio = np.concatenate([np.exp(mu * x - mu**2 / 2).mean(1) for x in draws])
    found = directions(block_of(multiplier, block))
    for epsilon in (0.0, 0.2):
        a = math.exp(epsilon)
        for draws, curve in zip(
            (np.maximum(ratio - a, 0), np.maximum(1 - a * ratio, 0)), found, strict=True
        ):
            margin = 5 * draws.std() / math.sqrt(len(draws))
            assert abs(curve(epsilon) - draws.mean()) <= margin + 1e-5


@tiers.every(
    "given",
    [(1.0, 10, 5, 4.2656, 4.2971), (0.5, 100, 10, 11.950, 12.1434)],
)
def test_between_the_bounds_of_the_library(given):
    """PLD_accounting 2.0 of the theorem's authors, loss_discretization 0.01: a minute for each of these numbers."""
    multiplier, block, blocks, lower, upper = given
    assert lower <= certified(multiplier, block, blocks) <= upper


@tiers.every("multiplier", [5.0, 0.5, 0.01])
def test_limits_and_order(multiplier):
    """A block of one round is the plain mechanism; longer blocks hide more, and none less than that."""
    blocks = 4
    whole = certify_seen(
        [declared("third_party", "client", multiplier, Everyone(9), blocks)], DELTA, "third_party"
    ).epsilon
    each = [certified(multiplier, block, blocks) for block in (1, 2, 3, 10, 37)]
    assert each[0] == pytest.approx(whole, rel=1e-9)
    assert all(b <= a * (1 + 2e-3) for a, b in itertools.pairwise(each))
    assert multiplier < 0.5 or each[-1] < 0.9 * whole


def test_what_is_sent_may_depend_on_what_was_seen():
    """In the second round of a block, and after it, by the sign of what was seen; by the unit's own memory, too."""
    x = np.arange(-6, 6, 0.4)
    density = {m: norm.pdf(x, m) * 0.4 for m in (-1, 0, 1)}

    def block(signs):
        """Densities of a block with the unit in its first round, and in its second; by sign, then by what was seen."""
        still = density[0]
        second = np.where(x[:, None] > 0, density[signs[0]], density[-signs[0]])
        first = np.multiply.outer(density[signs[1]], still)
        return first, still[:, None] * second

    q = np.multiply.outer(density[0], density[0])
    by_first_round = (
        block((1, 1)),
        block((-1, -1)),
    )  # of the second block, by the round in the first
    p = 0.0
    for mine, then in zip(block((1, 1)), by_first_round, strict=True):
        p = p + np.multiply.outer(mine, sum(then) / 2) / 2
    once, twice = (directions(block_of(1.0, 2, blocks)) for blocks in (1, 2))
    for epsilon in (0.1, 1.0):
        for exact, curve in zip(divergences(sum(block((1, 1))) / 2, q, epsilon), once, strict=True):
            assert exact == pytest.approx(curve(epsilon), rel=2e-2, abs=1e-5)
        for exact, curve in zip(
            divergences(p, np.multiply.outer(q, q), epsilon), twice, strict=True
        ):
            assert exact <= curve(epsilon) * 1.01 + 1e-6


class TestCut:
    """Rounds of more units than there is room for."""

    def test_the_cases_are_no_seldomer_than_full_rounds(self):
        """By all draws of five others; and how often a unit that makes room is seen is that of one full round."""
        sampling = Allocation(6, 3, 4)
        draws = [*itertools.product(range(3), repeat=5)]
        full = np.array([sum(d.count(t) >= 4 for t in range(3)) for d in draws])
        kept, cut = sampling.cases("removed", Who())
        assert kept.chance + cut.chance == 1
        assert cut.chance >= (full >= 1).mean() * (1 - 1e-12)
        assert (kept.far, cut.far) == (1, 2)
        of_one, of_all = Allocation(1000, 10, 157).cases("removed", Who(remembers=True))[1:]
        once = binom.sf(156, 999, 0.1)
        assert of_one.chance * of_one.rate == pytest.approx(once, rel=1e-6)
        assert of_all.chance <= 50 * once**2

    def test_costs_hardly_anything_where_it_is_seldom(self):
        for remembers in (False, True):
            drawn = Drawn(Allocation(1000, 10, 157), Who(remembers=remembers))
            seldom = certified(1.0, drawn, 5)
            assert certified(1.0, 10, 5) <= seldom * (1 + 1e-9)
            assert seldom == pytest.approx(certified(1.0, 10, 5), rel=2e-3)

    def test_a_unit_that_is_seen_costs_its_chance(self):
        drawn = Drawn(Allocation(1000, 10, 157), Who(remembers=True))
        forward, backward = directions(block_of(100.0, drawn))
        for curve in (forward, backward):
            assert curve(3.0) == pytest.approx(binom.sf(156, 999, 0.1), rel=0.05)


def test_no_renyi_divergences_are_known():
    release = block_of(5.0, 2)
    found = certify_seen([release], DELTA, "third_party")
    assert set(found.epsilons) == {"PLD"}
    assert found.relation == "add_or_remove"
