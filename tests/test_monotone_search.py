"""The search of all calibrations: it ends at the dearest number that a target allows, whatever the cost is like."""

import math

import pytest
import tiers

from fedpriv.certification.monotone_search import Range, UnreachableError, search
from fedpriv.mechanisms.integers import WrapsError

NOISE = Range(dearest=1e-3, cheapest=1e9, begin=(0.6, 2.7), factor=7.0)
SHARE = Range(dearest=1.0, cheapest=1e-9, begin=(1.0, 1.0), factor=8.0)
ROUNDS = Range(dearest=1000, cheapest=1, begin=(1, 1), factor=2, whole=True)
TOLERANCE = 1e-4


def rising(number):
    return number**1.5


def wraps_above(most):
    def cost(noise):
        if noise > most:
            raise WrapsError("bits: 3; give 4")
        return 1 / noise

    return cost


COSTS = {  # what may vary, what it costs, the target
    "noise": (NOISE, lambda noise: 3 / noise, 0.5),
    "little noise": (NOISE, lambda noise: 3 / noise, 500.0),
    "much noise": (NOISE, lambda noise: 3 / noise, 1e-7),
    "infinite where noise is little": (NOISE, lambda x: math.inf if x < 40 else 1 / x, 0.02),
    "infinite up to where it is little enough": (
        NOISE,
        lambda x: math.inf if x < 40 else 1 / x,
        9.0,
    ),
    "nothing where noise is much": (NOISE, lambda x: 0.0 if x > 40 else 1 / x, 1e-9),
    "wraps where noise is much": (NOISE, wraps_above(40.0), 0.03),
    "in steps": (NOISE, lambda noise: math.ceil(30 / noise), 4.5),
    "shares": (SHARE, rising, 1e-3),
    "few shares": (SHARE, rising, 1e-12),
    "rounds": (ROUNDS, rising, 100.0),
    "one round": (ROUNDS, rising, 1.0),
    "nearly all rounds": (ROUNDS, rising, rising(999)),
    "rounds of infinite cost": (ROUNDS, lambda t: math.inf if t > 77 else 0.1, 5.0),
    "fewer clients, of which more cost less": (
        Range(2, 5000, begin=(700, 900), factor=3, whole=True),
        lambda n: 10 / n,
        0.11,
    ),
    "clients, of which more cost less": (
        Range(2, 5000, begin=(2, 3), factor=2, whole=True),
        lambda n: 10 / n,
        0.013,
    ),
}


def dearer(of, number):
    """The next number, or one a little more than the tolerance nearer to the dearest."""
    up = of.dearest > of.cheapest
    if of.whole:
        return number + (1 if up else -1)
    return number * (1 + 2 * TOLERANCE) ** (1 if up else -1)


@pytest.mark.parametrize("name", COSTS)
def test_the_answer_costs_at_most_the_target_and_one_little_dearer_more(name):
    of, cost, target = COSTS[name]
    found = search(cost, target, of, str, tolerance=TOLERANCE)
    assert cost(found) <= target < cost(dearer(of, found))
    assert isinstance(found, int) == of.whole


@tiers.every("of", [NOISE, SHARE, ROUNDS])
def test_where_the_dearest_number_is_allowed_it_is_the_answer(of):
    assert search(lambda _: 1.0, 1.0, of, str, tolerance=TOLERANCE) == of.dearest


@pytest.mark.parametrize("of", [NOISE, SHARE, ROUNDS])
@pytest.mark.parametrize("cost", [1.1, math.inf])
def test_where_the_cheapest_number_costs_too_much_it_is_refused(of, cost):
    with pytest.raises(UnreachableError, match=f"^at {of.cheapest}$"):
        search(lambda _: cost, 1.0, of, "at {}".format, tolerance=TOLERANCE)


def test_sums_that_wrap_at_the_answer_are_refused_as_they_are():
    for most in (40.0, 1e-4):  # with the least noise, too
        with pytest.raises(WrapsError, match="bits: 3"):
            search(wraps_above(most), 0.02, NOISE, str, tolerance=TOLERANCE)


def test_a_cost_is_met_as_closely_as_is_wanted():
    """Where it rises with the fourth power, an answer within a tolerance of its number would miss it."""
    within = 1e-3
    close = {"tolerance": within / 2, "below": within / 2}
    spent = search(lambda share: share**4, 0.5, SHARE, str, **close) ** 4
    assert (1 - within) * 0.5 <= spent <= 0.5


def test_no_cost_is_computed_twice():
    seen = []
    search(lambda noise: seen.append(noise) or 3 / noise, 0.5, NOISE, str, tolerance=TOLERANCE)
    assert len(seen) == len(set(seen)) < 12
