"""Samplers draw what their accounting says."""

from itertools import combinations, permutations

import jax
import numpy as np
import pytest
import tiers
from scipy import stats
from small import FALSE_ALARM, assert_identical, assert_uniform

from fedpriv import capacity_for, everyone, fixed_size, poisson, with_replacement
from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.rounds.samplers import _sizes
from fedpriv.rounds.subset_sampling import _first_by_sorting, _first_by_table

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


@tiers.every("size", [4, 3])
def test_fixed_size_is_uniform_over_ordered_subsets(size):
    sampler = fixed_size(6, size)
    assert sampler.accounting == FixedSize(6, size)
    assert sampler.expected_size == size
    cohort = draws(sampler)
    assert cohort.mask.all()
    assert cohort.ids.shape == (TRIALS, size)
    subsets, counts = np.unique(cohort.ids, axis=0, return_counts=True)
    np.testing.assert_array_equal(subsets, list(permutations(range(6), size)))
    assert_uniform(counts, TRIALS, 1 / len(subsets))


def test_poisson_without_a_cut():
    population, rate, capacity = 7, 0.3, 20
    sampler = poisson(population, rate, capacity)
    assert sampler.accounting == Poisson(population, rate, capacity)
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


@pytest.mark.slow
def test_poisson_cut_at_its_capacity():
    population, rate, capacity = 6, 0.5, 2
    sampler = poisson(population, rate, capacity)
    assert sampler.accounting == Poisson(population, rate, capacity)
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


@pytest.mark.parametrize(
    ("population", "rate", "slots"),
    [(7, 0.3, 7), (120, 0.25, 60), (6000, 1 / 60, 161), (10**8, 1e-6, 160), (10**6, 0.5, 20)],
)
def test_sizes_are_binomial(population, rate, slots):
    """P[size <= k], against SciPy's law."""
    high, low = (np.asarray(part, np.uint64) for part in _sizes(population, rate, slots))
    reached = np.ldexp(high.astype(float), -32) + np.ldexp(low.astype(float), -64)
    expected = stats.binom(population, rate).cdf(np.arange(slots))
    np.testing.assert_allclose(reached, expected, rtol=1e-9, atol=2.0**-62)


@tiers.every("name", ["poisson", "fixed"])
def test_of_a_hundred_million_everybody_is_equally_likely(name):
    """Uniform over a thousand parts of the population; a cohort's members are different, and independent as pairs."""
    population, trials, parts = 10**8, 2000, 1000
    made = {
        "poisson": poisson(population, 40 / population, 70),
        "fixed": fixed_size(population, 40),
    }
    cohort = draws(made[name], trials)
    for ids, mask in zip(cohort.ids, cohort.mask, strict=True):
        assert len(np.unique(ids[mask])) == mask.sum()
    np.testing.assert_array_equal(cohort.ids[~cohort.mask], population)
    taken = cohort.ids[cohort.mask]
    assert_uniform(np.bincount(taken // (population // parts)), len(taken), 1 / parts)
    both = cohort.mask[:, 0] & cohort.mask[:, 1]
    first, second = (cohort.ids[both, slot] // (population // 10) for slot in (0, 1))
    assert_uniform(np.bincount(10 * first + second, minlength=100), both.sum(), 1 / 100)


def test_members_found_by_sorting_and_by_a_table_are_the_same():
    rng = np.random.default_rng(0)
    ids, valid = rng.integers(0, 30, 50), rng.random(50) < 0.8
    seen = [valid[i] and ids[i] not in ids[:i][valid[:i]] for i in range(50)]
    for first_of in (_first_by_table, _first_by_sorting):
        found = jax.jit(first_of, static_argnums=2)(ids.astype(np.int32), valid, 30)
        np.testing.assert_array_equal(found & valid, seen)


SIZES = [(7, 6), (2**31 - 2, 50), (1, 1), (5, 5), (1000, 999)]


@tiers.every("sizes", SIZES, lambda sizes: sizes[0] > 2**20)
def test_exactly_as_many_different_ones_as_asked_for(sizes):
    population, size = sizes
    cohort = draws(fixed_size(population, size), 50)
    assert cohort.ids.shape == (50, size)
    assert all(len(np.unique(ids)) == size for ids in cohort.ids)
    assert cohort.ids.min() >= 0
    assert cohort.ids.max() < population


@pytest.mark.slow
def test_rejected_draws_leave_everybody_equally_likely():
    """Of three quarters of 2^31 a quarter of the 32-bit numbers is rejected; no remainder is likelier for that."""
    population = 3 * 2**29
    cohort = draws(fixed_size(population, 12))
    parts = np.bincount(cohort.ids.ravel() // (population // 48), minlength=48)
    assert_uniform(parts, cohort.ids.size, 1 / 48)


@pytest.mark.slow
def test_draws_of_different_keys_are_independent():
    """Consecutive draws overlap as two independent ones do: hypergeometric."""
    taken = taking_part(draws(fixed_size(40, 10), 8_000), 40)
    overlap = (taken[::2] & taken[1::2]).sum(1)
    law = stats.hypergeom(40, 10, 10)
    expected = 4000 * law.pmf(np.arange(7))
    counts = np.array([np.sum(overlap == k) for k in range(7)])
    rest = 4000 - counts.sum(), 4000 - expected.sum()
    counts, expected = np.append(counts, rest[0]), np.append(expected, rest[1])
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


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
    rate = sampler.accounting.inclusion
    assert rate == pytest.approx(1 - 0.6**3)
    assert stats.binomtest(taking_part, rounds, rate).pvalue > FALSE_ALARM
    # Draws are independent of one another: pairs of slots by the product.
    pairs = np.bincount(4 * ids[:, 0] + ids[:, 1], minlength=16)
    outer = np.outer(sizes, sizes).ravel() / 100
    assert stats.chisquare(pairs, rounds * outer).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_probabilities_with_replacement_are_those_accounted_for():
    """Whole shares of the 2^31 numbers that are drawn."""
    sampler = with_replacement(np.ones(100_000), 5)
    assert 1e-5 <= sampler.accounting.largest <= 1e-5 + 2 * 2**-31


def test_a_poisson_cohort_hardly_ever_exceeds_its_capacity():
    for size, population in ((30, 120), (20, 1000)):
        rate = size / population
        for deviations, most in ((6.0, 1e-7), (4.0, 1e-3)):
            capacity = capacity_for(size, rate, deviations)
            assert size < capacity
            assert stats.binom.sf(capacity, population, rate) < most
    assert capacity_for(7, 1.0) == 7


@pytest.mark.parametrize(("population", "rate"), [(30, 0.5), (1000, 0.01), (7, 1.0)])
def test_a_poisson_cohort_has_room_by_default(population, rate):
    """No less than `capacity_for` says, and for nobody who does not exist."""
    room = min(population, capacity_for(population * rate, rate))
    assert poisson(population, rate).accounting == poisson(population, rate, room).accounting


@pytest.mark.parametrize(("capacity", "expected"), [(None, 10.22), (12, 8.71), (120, 8.71)])
def test_where_the_default_room_costs_epsilon(capacity, expected):
    """As `capacity_for` says: few clients, little noise, many rounds."""
    sampling = poisson(120, 0.01, capacity).accounting
    seen = declared("third_party", "client", 0.6, sampling, 1000)
    assert certify_seen([seen], 1e-6, "third_party").epsilon == pytest.approx(expected, abs=0.005)


MAKERS = {
    "cut": lambda: poisson(6, 0.5, capacity=2),
    "fixed, of many": lambda: fixed_size(300, 3),
    "with replacement": lambda: with_replacement([1, 2, 3], 4),
}


@pytest.mark.slow
@tiers.every("name", MAKERS)
def test_a_sampler_made_in_a_traced_round_is_the_same(name):
    """A certificate reads its tables when the trace has ended."""
    make, made = MAKERS[name], []
    jax.jit(lambda: made.append(make()))()
    assert_identical(draws(made[0], 20), draws(make(), 20))
