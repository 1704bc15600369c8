"""Clients who check in at random and rest: their bounds, their draws, and what the engine remembers of them."""

from itertools import chain, pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from correlated_runs import (
    CLIP,
    FEDERATION,
    SIGMA,
    SIZE,
    N,
    certificate,
    cohorts,
    correlated,
    descent,
    matrix_of,
    run,
)
from recorded_runs import STREAMED, recording
from scipy import stats
from small import one_round, refused, start

import fedpriv as fp
from fedpriv.attacks.server_views import server_view
from fedpriv.privacy import MinimumSeparation
from fedpriv.proof.stream import schedule_key
from fedpriv.rounds.scheduled_samplers import has_full_cohorts
from fedpriv.testing.measurements import check_schedule

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SELDOM = fp.random_availability(N, 3, 2, 0.6, participations=2)


class TestBounds:
    """They hold in every run, whoever is available: `test_every_sampler.py` has the law."""

    @pytest.mark.slow
    def test_are_reached(self):
        """So that a bound one lower would fail."""
        drawn = cohorts(fp.random_availability(20, 4, 3, 0.9, 7), 200)
        turns = [[t for t, cohort in enumerate(drawn) if i in cohort] for i in range(20)]
        assert min(b - a for each in turns for a, b in pairwise(each)) == 3
        assert {len(each) for each in turns} == {7}


class TestDraws:
    def test_as_numpy_draws(self):
        """From the same random bits, client by client."""
        n, size, b, p, k, rounds = 30, 5, 4, 0.4, 3, 60
        key = jax.random.key(3)
        last, times, told = {}, dict.fromkeys(range(n), 0), []
        for t in range(rounds):
            bits = np.asarray(jax.random.bits(jax.random.fold_in(key, t), (2, n), jnp.uint32))
            may = [
                i
                for i in range(n)
                if bits[0, i] / 2**32 < p and t >= last.get(i, -b) + b and times[i] < k
            ]
            told.append(sorted(may, key=lambda i: bits[1, i])[:size])
            for i in told[-1]:
                last[i], times[i] = t, times[i] + 1
        assert cohorts(fp.random_availability(n, size, b, p, k), rounds, seed=3) == told

    def test_everyone_available_and_just_enough_is_a_fixed_order(self):
        """Of cohorts that are full, and come again in the order of the first block."""
        sampler = fp.random_availability(12, 4, 3, 1.0)
        drawn = [*map(sorted, cohorts(sampler, 9))]
        assert sorted(chain(*drawn[:3])) == list(range(12))
        assert drawn[:3] * 3 == drawn
        assert sampler.expected_size == 4

    def test_no_promise_of_full_cohorts(self):
        assert not has_full_cohorts(fp.random_availability(12, 4, 3, 1.0))


class TestCertificates:
    @tiers.every("k", [2, None], lambda k: "any")
    @tiers.every("noise", ["correlated", "independent"])
    def test_are_those_of_shuffled_blocks(self, noise, k):
        """By theorem: both count any participations that are b apart, at most k."""
        mechanism = fp.gaussian(CLIP, SIGMA)
        if noise == "correlated":
            mechanism = correlated(matrix_of("blt"))
        samplers = fp.shuffled_blocks(N, SIZE, k), fp.random_availability(N, SIZE, 3, 0.4, k)
        by_turns, at_random = (certificate(descent(mechanism, each)) for each in samplers)
        assert by_turns.epsilon == at_random.epsilon
        assert at_random.basis == "constructed"
        assert str(by_turns) == str(at_random)


class TestMemory:
    """`test_sampled_runs.py` has the laws of runs."""

    @pytest.mark.slow
    def test_blocks_of_an_opening_and_after_it_share_no_draw(self):
        """As certificates count on it, whatever their lengths; false alarm 1e-6 by Fisher's exact test."""
        opening = fp.Opening(fp.random_allocation(N, 2, N), 2, fp.random_allocation(N, 4, N))
        ended = run(recording(opening), seeds=range(8), every=3)
        table = np.asarray(ended.state.table)[:, :, :4].astype(bool)
        assert (table[:, :, :2].sum(2) == 1).all()
        later = table[:, :, 2:].any(2)
        early, late = table[later][:, 0], table[later][:, 2]
        counts = np.array([[np.sum((early == a) & (late == b)) for a in (0, 1)] for b in (0, 1)])
        assert counts.sum() > 30
        assert stats.fisher_exact(counts).pvalue > 1e-6

    @pytest.mark.slow
    def test_a_round_by_itself_begins_anew(self):
        algorithm, key = recording(SELDOM), jax.random.key(0)
        state = algorithm.init(start(), FEDERATION)
        _, metrics = one_round(algorithm)(key, state._replace(round=jnp.int32(5)), FEDERATION)
        drawn, _ = jax.jit(SELDOM.draw)(schedule_key(key, 0), jnp.int32(5), SELDOM.init())
        assert metrics["cohort_size"] == drawn.mask.sum()
        view = jax.jit(lambda: server_view(algorithm, key, state, FEDERATION))()
        assert view.update.shape == (SELDOM.slots, 4)


def every_other(key, t, memory):
    """A sampler by hand: the half of the clients that did not take part last time."""
    ids = 2 * jnp.arange(N // 2, dtype=jnp.int32) + memory
    return fp.types.Draw(ids, jnp.ones(N // 2, bool)), 1 - memory


BY_HAND = fp.types.ScheduledSampler(
    every_other, N // 2, N / 2, MinimumSeparation(N, N // 2, 2), lambda: jnp.int32(0)
)


class TestByHand:
    @pytest.mark.slow
    def test_with_a_memory_of_its_own(self):
        algorithm = recording(BY_HAND, correlated(matrix_of("blt")))
        fp.check_algorithm(algorithm, start(), FEDERATION)
        assert certificate(algorithm).basis == "declared"
        table = np.asarray(run(algorithm, every=4, federation=STREAMED).state.table[0])
        for t, there in enumerate(table.T):
            assert np.flatnonzero(there).tolist() == [*range(t % 2, N, 2)]

    @pytest.mark.slow
    def test_that_keeps_less_than_it_says(self):
        """Measured over as many rounds as it takes."""
        keeps = fp.random_availability(N, SIZE, 2, 1.0, 25)
        check_schedule(keeps._replace(seal=()), 1)
        for told in MinimumSeparation(N, SIZE, 3, 25), MinimumSeparation(N, SIZE, 2, 24):
            with refused("a client takes part sooner, or more often"):
                check_schedule(keeps._replace(accounting=told), 1)
