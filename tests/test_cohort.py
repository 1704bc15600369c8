"""Sums over a cohort: who is in them, their keys, and what clients keep."""

import math
from functools import lru_cache
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
    keys_of,
    records,
    regression,
    with_capacity,
)

from fedpriv import (
    Algorithm,
    Opening,
    Sent,
    everyone,
    fixed_size,
    gaussian,
    one_round,
    poisson,
    unprotected,
)
from fedpriv.core.types import PyTree
from fedpriv.rounds.samplers import parts_of
from fedpriv.types import Draw, Wire

pytestmark = pytest.mark.usefixtures("quick_to_compile")

KEY = jax.random.key(7)
OPEN = unprotected()


class State(NamedTuple):
    """The model, and what clients keep."""

    params: PyTree
    round: jax.Array
    own: PyTree


@lru_cache
def compiled(round, sampler):
    """A round of a user's own, compiled once."""

    def step(key, state, cohort):
        params, metrics, own = round(key, cohort, state.own)
        return State(params, state.round + 1, own), metrics

    return jax.jit(one_round(Algorithm(lambda params, federation: None, step, sampler)))


def played(round, sampler, federation, key=KEY, own=(), t=0):
    """What such a round makes of zeros: (its total, metrics, state)."""
    run, t = compiled(round, sampler), jnp.int32(t)
    shapes, _ = jax.eval_shape(run, key, State((), t, own), federation)
    zeros = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes.params)
    after, metrics = run(key, State(zeros, t, own), federation)
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
    padded = with_capacity(federation, 6, poison=True)
    for ids, bound in (([4, 1, 5, 0, 5], 0.7), ([3, 2, 1, 0, 4], math.inf)):
        there = [i for i in ids if i < 5]
        round = summed(labels, mechanism=gaussian(bound, 0))
        total, metrics, _ = played(round, drawing(5, ids), padded)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_members_who_perturb_their_own_messages_have_noise_of_their_own():
    federation = regression([1] * 4)
    noisy = {"mechanism": gaussian(0.5, 2.0), "adder": "own"}
    total, _, _ = played(
        summed(lambda key, shard: jnp.zeros(4000), **noisy), fixed_size(4, 3), federation
    )
    assert_normal(total, math.sqrt(3))


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_is_not_secret():
    federation = regression([2, 1, 3], public=4)

    def round(key, cohort, own):
        public = cohort.public
        assert (cohort.num_clients, cohort.expected_size, public.capacity) == (3, 1.5, 4)
        return (public.examples["y"], public.size, cohort.round), {"uplink": Wire(1)}, own

    (y, size, t), _, _ = played(round, poisson(3, 0.5, 3), federation, t=7)
    np.testing.assert_array_equal(y, federation.examples["y"][federation.public])
    assert (int(size), int(t)) == (4, 7)


@pytest.mark.slow
def test_an_opening_draws_the_first_rounds():
    """Each part with its own slots and its own expected size."""
    sampler, federation = Opening(everyone(4), 2, fixed_size(4, 1)), regression([1] * 4)
    counted = summed(lambda key, shard, own: Sent(jnp.float32(1), own=own + 1))

    def round(key, cohort, own):
        total, metrics, own = counted(key, cohort, own)
        return total / cohort.expected_size, metrics, own

    own = jnp.zeros(4)
    for t, size in enumerate([4, 4, 1, 1]):
        mean, metrics, own = played(round, sampler, federation, jax.random.key(t), own, t)
        assert (mean, metrics["cohort_size"]) == (1, size)
    assert own.sum() == 10
    assert own.min() >= 2
    assert parts_of(sampler, 1) == ((1, sampler.first), (0, sampler.then))
    assert parts_of(sampler, 5) == ((2, sampler.first), (3, sampler.then))
