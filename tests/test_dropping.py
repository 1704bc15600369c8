"""Members who vanish after they were drawn: who stays, what is left of the noise, and what is refused."""

from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_identical,
    assert_normal,
    assert_uniform,
    heavy_ball,
    members,
    one_round,
    records,
    refused,
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.attacks.server_views import server_view
from fedpriv.testing.measurements import check_sampler

pytestmark = pytest.mark.usefixtures("quick_to_compile")

TRIALS, RATE = 20_000, 0.3125  # a multiple of 2^-32, as what is drawn by
CLIENTS, SIZE = 6, 4
FEDERATION = regression([3] * CLIENTS)
KEY = jax.random.key(2)
FIXED = fp.fixed_size(CLIENTS, SIZE)
WHOLE, LOST = fp.dropping(FIXED, RATE), fp.dropping(FIXED, RATE, "lost")
PLAIN = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
STILL = {"optimizer": lambda t: optax.sgd(0.0), "batches": fp.full_batch()}  # noise alone moves it


def draws(sampler, trials=TRIALS):
    keys = jax.random.split(jax.random.key(0), trials)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(sampler.draw))(keys))


def after(algorithm, key=KEY, federation=FEDERATION, state=None):
    state = algorithm.init(start(), federation) if state is None else state
    return one_round(algorithm)(key, state, federation)


def moved(algorithm, key):
    return vector(after(algorithm, key)[0].params) - vector(start())


def noisy(sampler, **more):
    return fp.dp_fed_avg(
        squared, sampler=sampler, clip_norm=1.0, noise_multiplier=2.0, **STILL, **more
    )


def key_where(sampler, stay):
    """The first key of a round in which so many stay."""
    keys = (jax.random.fold_in(KEY, i) for i in range(2000))
    return next(key for key in keys if len(members(sampler, key)) == stay)


@pytest.mark.parametrize("sampler", [fp.everyone(3), FIXED, fp.poisson(9, 0.4, 5)])
@pytest.mark.parametrize("noise", ["whole", "lost"])
def test_at_rate_0_it_is_the_sampler(sampler, noise):
    assert fp.dropping(sampler, 0, noise) is sampler


@pytest.mark.parametrize("rate", [0.3, 1e-9, 1 - 1e-12])
def test_what_is_drawn_by_is_what_is_accounted_for(rate):
    """A multiple of 2^-32, in words the rate that was asked for."""
    dropout = fp.dropping(FIXED, rate).accounting.vanish
    assert dropout * 2**32 == round(dropout * 2**32) < 2**32
    assert dropout == pytest.approx(rate, abs=2**-32)
    assert "dropout=0.3," in repr(fp.dropping(FIXED, 0.3).accounting)
    assert fp.dropping(FIXED, 2**-34) is FIXED


@pytest.mark.slow
@tiers.every("noise", ["whole", "lost"])
def test_each_subset_stays_as_often_as_it_should(noise):
    """A fifth of the probability of pairs for 6 pairs, and so on; a false alarm once in 3e5."""
    sampler = fp.dropping(fp.fixed_size(4, 2), RATE, noise)
    assert sampler.expected_size == pytest.approx(2 * (1 - RATE))
    drawn = draws(sampler)
    assert np.array_equal(drawn.ids == 4, ~drawn.mask)
    there = (drawn.ids[..., None] == np.arange(4)).sum(1)
    assert there.max() == 1
    stayed = there @ 2 ** np.arange(4)
    for k, chance in ((0, RATE**2), (1, 2 * RATE * (1 - RATE) / 4), (2, (1 - RATE) ** 2 / 6)):
        subsets = [sum(2**i for i in members) for members in combinations(range(4), k)]
        assert_uniform([np.sum(stayed == s) for s in subsets], TRIALS, chance)


@pytest.mark.parametrize("sampler", [fp.everyone(4), fp.fixed_size(5, 4)])
def test_those_who_stay_are_of_those_who_would_be_drawn(sampler):
    drawn, whole = draws(fp.dropping(sampler, RATE), 50), draws(sampler, 50)
    np.testing.assert_array_equal(drawn.ids[drawn.mask], whole.ids[drawn.mask])
    assert 0 < drawn.mask.mean() < 1


def test_a_poisson_cohort_is_one_of_a_lower_rate():
    sampler, lower = fp.dropping(fp.poisson(9, 0.4, 5), RATE), fp.poisson(9, 0.4 * (1 - RATE), 5)
    assert sampler.accounting == lower.accounting
    assert sampler.expected_size == lower.expected_size
    assert_identical(draws(sampler, 100), draws(lower, 100))
    assert fp.dropping(sampler, 0.5).accounting.rate == pytest.approx(0.4 * (1 - RATE) * 0.5)


@pytest.mark.slow
def test_training_is_numpys_on_the_messages_that_arrive():
    """Of several rounds, with cohorts of different sizes."""
    algorithm = fp.fed_avg(squared, sampler=WHOLE, **PLAIN)
    state, theta, sizes = algorithm.init(start(), FEDERATION), vector(start()), []
    for t in range(6):
        key = jax.random.fold_in(KEY, t)
        state, metrics = after(algorithm, key, state=state)
        stay = members(WHOLE, key, t)
        trained = [
            heavy_ball(theta, *records(FEDERATION, i), steps=1, rate=0.1, momentum=0) for i in stay
        ]
        theta = theta - sum((theta - own for own in trained), 0 * theta) / (SIZE * (1 - RATE))
        assert metrics["cohort_size"] == len(stay)
        sizes.append(len(stay))
    assert_close(vector(state.params), theta)
    assert min(sizes) < max(sizes) <= SIZE


@tiers.every("stay", [1, 0])
def test_lost_shares_are_missing_from_the_noise(stay):
    """The same draw of the noise, times sqrt(k / s)."""
    key = key_where(LOST, stay)
    whole, lost = (moved(noisy(sampler), key) for sampler in (WHOLE, LOST))
    assert np.abs(whole).min() > 0
    assert_close(lost, np.sqrt(stay / SIZE) * whole)


@pytest.mark.slow
def test_the_noise_that_is_left_is_normal():
    sampler = fp.dropping(fp.fixed_size(CLIENTS, 2), RATE, "lost")
    keys = jax.random.split(KEY, 4000)
    run, algorithm = fp.one_round(noisy(sampler)), noisy(sampler)
    state = algorithm.init(start(), FEDERATION)
    states, metrics = jax.jit(jax.vmap(run, (0, None, None)))(keys, state, FEDERATION)
    noise = np.asarray(states.params["w"] - state.params["w"], np.float64)
    size = np.asarray(metrics["cohort_size"])
    for k in (1, 2):
        assert_normal(noise[size == k], 2.0 * np.sqrt(k / 2) / sampler.expected_size)
    assert np.all(noise[size == 0] == 0)


@pytest.mark.slow
def test_what_the_server_adds_is_whole():
    """To messages of a lossy codec, and after a division by the clients' weights."""
    key = key_where(LOST, 1)
    for part in ({"codec": fp.top_k(4)}, {"weighting": fp.ByExamples(3.0, estimator="clipped")}):
        whole, lost = (moved(noisy(sampler, **part), key) for sampler in (WHOLE, LOST))
        assert_close(lost, whole)


class Counted(NamedTuple):
    params: dict
    round: jax.Array
    times: jax.Array  # i32[clients]


def counting(sampler):
    """Each client keeps how often it stayed."""

    def init(params, federation):
        return Counted(params, jnp.int32(0), jnp.zeros(federation.num_clients, jnp.int32))

    def round(key, state, cohort):
        def client(key, shard, times):
            return fp.Sent(jnp.float32(times), own=times + 1)

        _, metrics, times = cohort.sum(
            client, key, mechanism=fp.gaussian(1.0, 1.0), own=state.times
        )
        return Counted(state.params, state.round + 1, times), metrics

    return fp.Algorithm(init, round, sampler)


@pytest.mark.slow
def test_what_a_vanished_member_keeps_stays_as_it_was():
    sampler = LOST
    algorithm, expected = counting(sampler), np.zeros(CLIENTS, int)
    state = algorithm.init(start(), FEDERATION)
    for t in range(5):
        key = jax.random.fold_in(KEY, t)
        state, _ = after(algorithm, key, state=state)
        np.add.at(expected, members(sampler, key, t), 1)
    np.testing.assert_array_equal(state.times, expected)
    assert 0 < expected.sum() < 5 * SIZE


@pytest.mark.slow
def test_how_many_stay_is_private():
    """It says something of who takes part, which the certificate counts on to be secret."""

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda key, shard: state.params, key, mechanism=fp.gaussian(1.0, 1.0)
        )
        params = jax.tree.map(lambda s: s / (1 + cohort.size), total)
        return fp.ModelState(params, state.round + 1), metrics

    for sampler in (WHOLE, LOST):
        with pytest.raises(fp.LeakError, match="who takes part"):
            fp.certify(fp.Algorithm(fp.start, round, sampler), start(), FEDERATION, 3, 1e-3)
    assert fp.certify(fp.Algorithm(fp.start, round, FIXED), start(), FEDERATION, 3, 1e-3)


def test_a_sampler_made_by_hand_is_refused():
    """What it draws could be measured, but not how seldom few stay."""
    with refused("sampler: made by hand, .*; use fp.dropping"):
        check_sampler(LOST._replace(draw=lambda key: LOST.draw(key)), 1)


@pytest.mark.slow
def test_a_server_sees_each_message_with_its_share_of_what_was_drawn():
    keys = jax.random.split(KEY, 500)
    algorithm = noisy(LOST)
    state = algorithm.init(start(), FEDERATION)
    view = jax.jit(jax.vmap(lambda key: server_view(algorithm, key, state, FEDERATION)))(keys)
    assert_normal(np.asarray(view.update)[np.asarray(view.cohort.mask)], 2.0 / np.sqrt(SIZE))


def run(algorithm, federation=FEDERATION, **more):
    test = jax.tree.map(lambda leaf: leaf[:5], FEDERATION.examples)
    score = lambda params, example: {"accuracy": 0.0, "loss": squared(params, example)}  # noqa: E731
    options = {"score": score, "rounds": 4, "every": 2} | more
    return fp.simulate(algorithm, start(), federation, test, **options)


@pytest.mark.slow
def test_streamed_and_on_several_devices():
    """As in memory, on one device, also of what is left of the noise."""
    algorithm = noisy(LOST)
    examples = jax.tree.map(np.asarray, FEDERATION.examples)
    rows = [np.asarray(own) for own in FEDERATION.rows]
    streamed = fp.StreamedFederation.from_arrays(examples, rows)
    expected, found = run(algorithm), run(algorithm, streamed, strategy=fp.Strategy(2, 2))
    assert_close(found.state.params, expected.state.params)
    np.testing.assert_array_equal(found.uplink_mb, expected.uplink_mb)
