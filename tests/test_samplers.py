"""Samplers draw what their accounting says."""

import math
from itertools import combinations

import jax
import numpy as np
import pytest
from scipy import stats
from small import FALSE_ALARM, assert_uniform

from fedpriv import capacity_for, everyone, fixed_size, poisson, with_replacement
from fedpriv.privacy import Everyone, FixedSize, Poisson

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TRIALS = 20_000


def draws(sampler, trials=TRIALS, seed=0):
    keys = jax.random.split(jax.random.key(seed), trials)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(sampler.draw))(keys))


def taking_part(cohort, population):
    """bool[trials, population]."""
    slots = cohort.ids[..., None] == np.arange(population)
    assert np.all(slots.sum(1) <= 1), "a client is drawn twice"
    return slots.any(1)


def test_everyone():
    sampler = everyone(5)
    cohort = draws(sampler, 3)
    np.testing.assert_array_equal(cohort.ids, [np.arange(5)] * 3)
    assert cohort.mask.all()
    assert sampler.expected_size == 5
    assert sampler.accounting == Everyone(5)


def test_fixed_size_is_uniform_over_subsets():
    sampler = fixed_size(6, 3)
    assert sampler.accounting == FixedSize(6, 3)
    assert sampler.expected_size == 3
    cohort = draws(sampler)
    assert cohort.mask.all()
    assert cohort.ids.shape == (TRIALS, 3)
    subsets, counts = np.unique(np.sort(cohort.ids, 1), axis=0, return_counts=True)
    np.testing.assert_array_equal(subsets, list(combinations(range(6), 3)))
    assert_uniform(counts, TRIALS, 1 / 20)


def test_fixed_size_of_all():
    cohort = draws(fixed_size(4, 4), 10)
    np.testing.assert_array_equal(np.sort(cohort.ids, 1), [np.arange(4)] * 10)


def test_poisson_without_a_cut():
    population, rate, capacity = 7, 0.3, 20
    sampler = poisson(population, rate, capacity)
    # float32 uniforms lie on multiples of 2^-23: the accounting has the probability that is drawn
    drawn = math.ceil(rate * 2**23) / 2**23
    assert sampler.accounting == Poisson(population, drawn, capacity)
    assert not sampler.accounting.can_be_cut
    assert sampler.expected_size == pytest.approx(2.1, abs=1e-12)
    cohort = draws(sampler)
    assert cohort.ids.shape == (TRIALS, population)
    drawn = taking_part(cohort, population)
    np.testing.assert_array_equal(drawn.sum(1), cohort.mask.sum(1))
    np.testing.assert_array_equal(cohort.ids[~cohort.mask], population)
    # The 2^7 subsets have the probabilities of independent coins.
    subset = drawn @ (1 << np.arange(population))
    sizes = np.array([bin(s).count("1") for s in range(2**population)])
    expected = TRIALS * rate**sizes * (1 - rate) ** (population - sizes)
    likely = expected >= 5
    observed = np.bincount(subset, minlength=2**population)
    observed = np.append(observed[likely], observed[~likely].sum())
    expected = np.append(expected[likely], expected[~likely].sum())
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM


def test_poisson_cut_at_its_capacity():
    population, rate, capacity = 6, 0.5, 2
    sampler = poisson(population, rate, capacity)
    # float32 uniforms lie on multiples of 2^-23: the accounting has the probability that is drawn
    drawn = math.ceil(rate * 2**23) / 2**23
    assert sampler.accounting == Poisson(population, drawn, capacity)
    assert sampler.accounting.can_be_cut
    assert sampler.expected_size == 3  # before the cut: never the realised size
    cohort = draws(sampler)
    assert cohort.ids.shape == (TRIALS, capacity)
    size = cohort.mask.sum(1)
    coins = stats.binom(population, rate)
    assert_uniform(np.sum(size == 0), TRIALS, coins.pmf(0))
    assert_uniform(np.sum(size == 1), TRIALS, coins.pmf(1))
    full = cohort.ids[size == capacity]
    subsets, counts = np.unique(np.sort(full, 1), axis=0, return_counts=True)
    np.testing.assert_array_equal(subsets, list(combinations(range(population), capacity)))
    assert_uniform(counts, len(full), 1 / 15)  # a uniform subset of those who came


def test_poisson_takes_the_lowest_numbers_in_order_and_the_first_of_equals():
    """A million of 2^23 possible numbers: tens of thousands of ties among them."""
    population, slots = 1_000_000, 20_000
    key = jax.random.key(3)
    u = np.asarray(jax.random.uniform(key, (population,)))
    expected = np.argsort(u, kind="stable")[:slots]
    assert len(np.unique(u[expected])) < slots
    np.testing.assert_array_equal(poisson(population, 0.5, slots).draw(key).ids, expected)


def test_poisson_of_rate_one_takes_everyone():
    cohort = draws(poisson(5, 1.0, 5), 50)
    assert taking_part(cohort, 5).all()


def test_with_replacement_draws_by_size():
    """Counts of each client against the multinomial; the rate is the likeliest client's."""
    sizes, draws, rounds = np.array([1, 2, 3, 4]), 3, 20_000
    sampler = with_replacement(sizes, draws)
    cohorts = jax.vmap(sampler.draw)(jax.random.split(jax.random.key(0), rounds))
    ids = np.asarray(cohorts.ids)
    assert ids.shape == (rounds, draws)
    assert np.asarray(cohorts.mask).all()
    expected = rounds * draws * sizes / 10
    assert stats.chisquare(np.bincount(ids.ravel(), minlength=4), expected).pvalue > FALSE_ALARM
    taking_part = int((ids == 3).any(1).sum())
    rate = sampler.accounting.rate
    assert rate == pytest.approx(1 - 0.6**3)
    assert stats.binomtest(taking_part, rounds, rate).pvalue > FALSE_ALARM
    # Draws are independent of one another: pairs of slots by the product.
    pairs = np.bincount(4 * ids[:, 0] + ids[:, 1], minlength=16)
    outer = np.outer(sizes, sizes).ravel() / 100
    assert stats.chisquare(pairs, rounds * outer).pvalue > FALSE_ALARM


def test_probabilities_with_replacement_are_those_accounted_for():
    """Of a million clients, whose probabilities are few of the 2^31 numbers that are drawn."""
    sampler = with_replacement(np.ones(1_000_000), 5)
    assert 1e-6 <= sampler.accounting.largest <= 1e-6 * (1 + 1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fixed_size(5, 6), "size = 6: give at most the population, 5"),
        (lambda: fixed_size(5, 0), "size = 0: give an integer of at least 1"),
        (lambda: everyone(0), "population = 0: give an integer of at least 1"),
        (lambda: poisson(5, 0.0, 5), r"rate = 0\.0: give a probability"),
        (lambda: poisson(5, 1.1, 5), r"rate = 1\.1: give a probability"),
        (lambda: poisson(5, float("nan"), 5), "rate = nan: give a probability"),
        (lambda: poisson(5, 0.5, 0), "capacity = 0: give an integer of at least 1"),
        (lambda: with_replacement([1, 0], 2), "sizes: not a list of positive numbers"),
        (lambda: with_replacement([], 2), "sizes: not a list of positive numbers"),
        (lambda: with_replacement([1, 2], 0), "size = 0: give an integer of at least 1"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_poisson_cohort_hardly_ever_exceeds_its_capacity():
    for size, population in ((30, 120), (20, 1000)):
        rate = size / population
        for deviations, most in ((6.0, 1e-7), (4.0, 1e-3)):
            capacity = capacity_for(size, rate, deviations)
            assert size < capacity
            assert stats.binom.sf(capacity, population, rate) < most
    assert capacity_for(7, 1.0) == 7
