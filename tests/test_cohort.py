"""Samplers draw what their accounting says; sums over a cohort, their keys, and what clients keep."""

import math
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from small import (
    FALSE_ALARM,
    assert_close,
    assert_identical,
    assert_normal,
    assert_uniform,
    keys_of,
    records,
    regression,
    with_capacity,
)

from fedpriv import (
    Algorithm,
    Draw,
    Opening,
    Sent,
    Wire,
    capacity_for,
    everyone,
    fixed_size,
    gaussian,
    one_round,
    poisson,
    unprotected,
    with_replacement,
)
from fedpriv.core.types import PyTree
from fedpriv.privacy import Everyone, FixedSize, Poisson

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TRIALS = 20_000
KEY = jax.random.key(7)
OPEN = unprotected()


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


def played(round, sampler, federation, key=KEY, own=(), t=0):
    """What a round of a user's own makes of zeros: (its total, metrics, state)."""

    class State(NamedTuple):
        params: PyTree
        round: jax.Array
        own: PyTree

    def step(key, state, cohort):
        params, metrics, own = round(key, cohort, state.own)
        return State(params, state.round + 1, own), metrics

    algorithm = Algorithm(lambda params, federation: None, step, sampler)
    shapes = jax.eval_shape(one_round(algorithm), key, State((), jnp.int32(0), own), federation)[0]
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.params)
    state = State(zeros, jnp.int32(t), own)
    after, metrics = jax.jit(one_round(algorithm))(key, state, federation)
    return after.params, metrics, after.own


def drawing(population, ids):
    """A sampler of these slots, with `population` where nobody is."""
    ids = jnp.array(ids, jnp.int32)
    drawn = Draw(ids, ids < population)
    size = int(drawn.mask.sum())
    return fixed_size(population, size)._replace(draw=lambda key: drawn, slots=len(ids))


def summed(client, **options):
    """A round that is one sum."""

    def round(key, cohort, own):
        total, metrics, own = cohort.sum(client, key, own=own, **{"mechanism": OPEN} | options)
        return total, metrics, own

    return round


def labels(key, shard):
    return {"sum": jnp.sum(jnp.where(shard.mask, shard.examples["y"], 0.0))}


def test_a_sum_over_a_cohort_is_numpy_s():
    """Of clipped messages, of those who take part alone; padding of records and of slots counts nowhere."""
    federation = regression([2, 1, 3, 2, 4], seed=3)
    y = [records(federation, i)[1].sum() for i in range(5)]
    for ids in ([4, 1, 5, 0], [5, 5, 2], [3, 2, 1, 0, 4]):
        there = [i for i in ids if i < 5]
        for bound in (math.inf, 0.7):
            round = summed(labels, mechanism=gaussian(bound, 0))
            total, metrics, _ = played(round, drawing(5, ids), with_capacity(federation, 6, True))
            expected = sum(np.sign(y[i]) * min(abs(y[i]), bound) for i in there)
            np.testing.assert_allclose(total["sum"], expected, rtol=1e-5)
            assert metrics["cohort_size"] == len(there)
            assert metrics["uplink"].bits() == 32
            norms = np.mean([abs(y[i]) for i in there])
            np.testing.assert_allclose(metrics["diagnostics"]["mean_update_norm"], norms, rtol=1e-5)


def test_each_client_gets_its_records_its_key_and_what_it_kept():
    """Whatever the slot; those who are absent, and empty slots, keep what they have."""
    federation = with_capacity(regression([2, 1, 3]), 4, poison=True)
    store = {"n": jnp.array([10.0, 20.0, 30.0]), "k": jnp.zeros((3, 2), jnp.uint32)}

    def client(key, shard, own):
        y = jnp.sum(jnp.where(shard.mask, shard.examples["y"], 0.0))
        kept = {"n": own["n"] + y, "k": jax.random.key_data(key)}
        return Sent(own["n"], {"size": jnp.float32(shard.size)}, kept)

    total, metrics, own = played(summed(client), drawing(3, [2, 3, 0]), federation, own=store)
    assert total == 40
    assert metrics["diagnostics"]["size"] == (3 + 2) / 2
    expected = [10 + records(federation, 0)[1].sum(), 20, 30 + records(federation, 2)[1].sum()]
    np.testing.assert_allclose(own["n"], expected, rtol=1e-6)
    for i in (0, 2):
        key = jax.random.key_data(jax.random.fold_in(keys_of(KEY).clients, i))
        np.testing.assert_array_equal(own["k"][i], key)
    np.testing.assert_array_equal(own["k"][1], 0)


def test_an_empty_cohort_changes_nothing_but_gets_its_noise():
    store = jnp.arange(5.0)

    def client(key, shard, own):
        return Sent(jnp.ones(4), {"one": jnp.float32(1)}, own - 9)

    nobody = fixed_size(5, 3)._replace(draw=lambda key: Draw(jnp.full(3, 5), jnp.zeros(3, bool)))
    federation = regression([1] * 5)
    round = summed(client, mechanism=gaussian(0.5, 1.2))
    total, metrics, own = played(round, nobody, federation, own=store)
    assert_identical(own, store)
    assert metrics["cohort_size"] == metrics["diagnostics"]["one"] == 0
    assert_close(total, 0.6 * jax.random.normal(keys_of(KEY).noise, (4,)), 1e-6)


def test_two_sums_of_a_round_share_neither_noise_nor_the_clients_keys():
    """Nor those of another round, nor what the round itself draws from the key that it gives."""
    federation = regression([1] * 3)

    def round(key, cohort, own):
        def client(key, shard):
            return jax.random.normal(key, (2000,))

        one, metrics, _ = cohort.sum(client, key, mechanism=OPEN)
        two, _, _ = cohort.sum(client, key, mechanism=OPEN)
        still = lambda key, shard: jnp.zeros(2000)  # noqa: E731
        noise = [cohort.sum(still, key, mechanism=gaussian(0.5, 2.0))[0] for _ in range(2)]
        mine = jax.random.normal(jax.random.split(key)[1], (2000,))
        return jnp.stack([one / 3**0.5, two / 3**0.5, *noise, mine]), metrics, own

    drawn = [played(round, everyone(3), federation, key=jax.random.key(t))[0] for t in range(2)]
    each = np.concatenate(drawn)
    for sample in each:
        assert_normal(sample, 1.0)
    # Correlations of independent samples are normal, of deviation n^-1/2; Bonferroni over the pairs.
    pairs = np.corrcoef(each)[np.triu_indices(len(each), 1)]
    assert np.abs(pairs).max() < stats.norm.isf(FALSE_ALARM / 2 / len(pairs)) / math.sqrt(2000)


def test_members_who_perturb_their_own_messages_have_noise_of_their_own():
    federation = regression([1] * 4)
    noisy = {"mechanism": gaussian(0.5, 2.0), "local": True}
    total, _, _ = played(
        summed(lambda key, shard: jnp.zeros(4000), **noisy), fixed_size(4, 3), federation
    )
    assert_normal(total, math.sqrt(3))


def test_messages_as_they_are():
    """The protocol gets those of the members, in their slots, and says what comes of them."""
    federation = regression([2, 1, 3])
    y = [records(federation, i)[1].sum() for i in range(3)]

    def round(key, cohort, own):
        def protocol(key, messages):
            assert messages["sum"].shape == (3,)
            return messages["sum"], ()

        return cohort.unprotected(labels, key, protocol, reason="a test")

    found, metrics, _ = played(round, drawing(3, [2, 3, 0]), federation)
    np.testing.assert_allclose(found, [y[2], 0, y[0]], rtol=1e-6)
    assert metrics["uplink"].bits() == 32
    assert metrics["cohort_size"] == 2


def test_what_is_not_secret():
    federation = regression([2, 1, 3], public=4)

    def round(key, cohort, own):
        public = cohort.public
        assert (cohort.num_clients, cohort.expected_size, public.capacity) == (3, 1.5, 4)
        return (public.examples["y"], public.size, cohort.round), {"uplink": Wire(1)}, own

    (y, size, t), _, _ = played(round, poisson(3, 0.5, 3), federation, t=7)
    np.testing.assert_array_equal(y, federation.examples["y"][federation.public])
    assert (int(size), int(t)) == (4, 7)


def test_an_opening_draws_the_first_rounds():
    """Each with its own slots and its own expected size."""
    federation = regression([1] * 4)
    sampler = Opening(everyone(4), 2, fixed_size(4, 1))

    def round(key, cohort, own):
        round = summed(lambda key, shard, own: Sent(jnp.float32(1), own=own + 1))
        total, metrics, own = round(key, cohort, own)
        return total / cohort.expected_size, metrics, own

    own, sizes = jnp.zeros(4), []
    for t in range(4):
        mean, metrics, own = played(round, sampler, federation, jax.random.key(t), own, t)
        assert mean == 1
        sizes.append(int(metrics["cohort_size"]))
    assert sizes == [4, 4, 1, 1]
    assert own.sum() == 10
    assert own.min() >= 2
    assert sampler.stages(1) == ((1, sampler.first), (0, sampler.then))
    assert sampler.stages(5) == ((2, sampler.first), (3, sampler.then))


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
