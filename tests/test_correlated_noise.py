"""Noise that is correlated over rounds: what a run adds, and how the engine remembers it."""

from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import combinations
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from algorithm_exceptions import varied
from correlated_runs import (
    CLIP,
    FEDERATION,
    ROUNDS,
    SIGMA,
    SIZE,
    N,
    certificate,
    correlated,
    descent,
    matrix_of,
    models,
    of_parts,
    run,
    silent,
)
from every_algorithm import CLIENTS, NOISY, PARAMS
from every_algorithm import FEDERATION as ALL_SMALL
from every_algorithm import MAKERS as ALGORITHMS
from scipy import stats
from small import (
    FALSE_ALARM,
    assert_close,
    refused,
    sgd,
    squared,
    start,
)

import fedpriv as fp
from fedpriv.devices.layout import default
from fedpriv.rounds.one_round import Carried, round_in_run


@cache
def with_fresh_noise():
    """The models of a run in which nobody says anything."""
    return models(descent(fp.gaussian(CLIP, SIGMA), fp.fixed_order(N, SIZE), silent))


@pytest.mark.usefixtures("quick_to_compile")
class TestNoise:
    @tiers.every("name", ["tree", "identity"])
    def test_a_run_adds_the_matrix_times_fresh_noise(self, name):
        """Against the run whose noise is fresh: the same keys, so the same z; to the bit, where it is the same.

        Tests below have other matrices, and `test_noise_matrices.py` the streams of all.
        """
        matrix = fp.noise_matrices.identity() if name == "identity" else matrix_of(name)
        with_memory = models(descent(correlated(matrix), fp.fixed_order(N, SIZE), silent))
        z, noise = np.diff(with_fresh_noise(), axis=0), np.diff(with_memory, axis=0)
        np.testing.assert_allclose(noise, matrix.noising(ROUNDS) @ z, atol=2e-6)
        assert name != "identity" or np.array_equal(noise, z)

    @pytest.mark.slow
    def test_messages_are_as_without(self):
        """With so little noise that the sums show."""
        sampler = fp.fixed_order(N, SIZE)
        mechanisms = correlated(matrix_of("blt"), sigma=1e-6), fp.gaussian(CLIP, 0)
        quiet, bare = (vectors(run(descent(used, sampler), every=ROUNDS)) for used in mechanisms)
        np.testing.assert_allclose(quiet, bare, atol=1e-5)

    def test_noise_follows_a_clip_norm_that_changes(self):
        """In units of the clip norm: doubled in round 4, so is all of that round's noise."""
        matrix, sampler = matrix_of("banded_inverse"), fp.fixed_order(N, SIZE)
        base = correlated(matrix)

        def round(key, state, cohort):
            bound = jnp.where(state.round < 4, CLIP, 2 * CLIP)
            total, metrics, _ = cohort.sum(silent, key, mechanism=base.at(bound, SIGMA))
            params = jax.tree.map(jnp.add, state.params, total)
            return fp.ModelState(params, state.round + 1), metrics

        changing = np.diff(models(fp.Algorithm(fp.start, round, sampler)), axis=0)
        fresh = -SIZE * np.diff(with_fresh_noise(), axis=0)
        louder = np.where(np.arange(9) < 4, 1, 2)[:, None]
        np.testing.assert_allclose(changing, louder * (matrix.noising(ROUNDS) @ fresh), atol=5e-6)

    @pytest.mark.slow
    def test_two_calls_remember_apart(self):
        sampler = fp.fixed_order(N, SIZE)
        one, other = (correlated(matrix_of(name)) for name in ("blt", "tree"))

        def round(key, state, cohort):
            a, metrics, _ = cohort.sum(silent, key, mechanism=one)
            b, _, _ = cohort.sum(lambda key, shard: jnp.zeros(4), key, mechanism=other)
            params = jax.tree.map(jnp.add, state.params, a)
            return state._replace(
                params=params, round=state.round + 1, other=state.other + b
            ), metrics

        both = fp.Algorithm(_with_another, round, sampler)
        alone = -SIZE * matrix_of("blt").noising(ROUNDS) @ np.diff(with_fresh_noise(), axis=0)
        np.testing.assert_allclose(np.diff(models(both), axis=0), alone, atol=1e-5)

    @pytest.mark.slow
    def test_a_part_of_a_joint_mechanism(self):
        sampler = fp.fixed_order(N, SIZE)
        used = fp.joint(correlated(matrix_of("banded")), fp.gaussian(1.0, 1.0))
        plain = fp.joint(fp.gaussian(CLIP, SIGMA), fp.gaussian(1.0, 1.0))
        both = [np.diff(models(of_parts(each, sampler)), axis=0) for each in (plain, used)]
        np.testing.assert_allclose(
            both[1], matrix_of("banded").noising(ROUNDS) @ both[0], atol=5e-6
        )


def _with_another(params, federation):
    return Two(params, jnp.int32(0), jnp.zeros(4))


class Two(NamedTuple):
    """With another sum of noise."""

    params: dict
    round: jax.Array
    other: jax.Array


@pytest.mark.usefixtures("quick_to_compile")
class TestMemory:
    """Is carried through whatever a run goes through, and seen by nobody; `test_more_rounds.py` has resumed runs."""

    @pytest.mark.slow
    def test_streamed_in_longer_chunks_and_on_two_devices(self):
        """As in memory, in chunks of one round, on one device."""
        there = run(remembering(), strategy=fp.Strategy())
        assert there.state._fields == ("params", "round")
        examples = jax.tree.map(np.asarray, FEDERATION.examples)
        streamed = fp.StreamedFederation.from_arrays(examples, list(np.asarray(FEDERATION.rows)))
        found = run(remembering(), federation=streamed, every=4, strategy=default())
        assert_close(vectors(found), vectors(there))


@cache
def remembering():
    return descent(correlated(matrix_of("blt")), fp.random_allocation(N, 3))


def vectors(history):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(history.state.params)])


@pytest.mark.usefixtures("quick_to_compile")
class TestResuming:
    """A run goes on with the schedule and the noise that it began with, or not at all."""

    @pytest.mark.slow
    def test_with_other_noise_of_the_same_certificate(self, tmp_path):
        """`test_sampled_runs.py` has other schedules."""
        matrix, fixed = matrix_of("banded_toeplitz"), fp.fixed_order(N, SIZE)
        first, second, third = matrix.rows[0]
        other = replace(matrix, rows=((first, third, second),))
        began, goes_on = (descent(correlated(each), fixed) for each in (matrix, other))
        checkpoints = fp.Checkpoints(tmp_path, rounds=1)
        assert certificate(began).epsilon == certificate(goes_on).epsilon
        run(began, checkpoints=checkpoints)
        with refused("of another run: noise"):
            run(goes_on, checkpoints=checkpoints)


@pytest.mark.usefixtures("quick_to_compile")
class TestSparse:
    """Noise goes by the place among the two of four coordinates that are kept; they move after a period."""

    SEEDS = 500
    PERIODS = (1, 2, 4, None)
    MATRIX = matrix_of("banded_inverse")

    @pytest.mark.slow
    def test_noise_of_different_periods_adds_up(self):
        """The squared norm of the run's noise; z-test by the deviation over the seeds, false alarm 1e-6."""
        period = 2
        ends = run(self.sparse(period), seeds=range(self.SEEDS), every=ROUNDS).state.params
        moved = jax.tree.map(lambda end, begin: np.asarray(end - begin), ends, start())
        squares = sum((x.reshape(self.SEEDS, -1) ** 2).sum(1) for x in jax.tree.leaves(moved))
        told = self.told(period, self.MATRIX.noising(ROUNDS)) * (CLIP * SIGMA / SIZE) ** 2
        z = (squares.mean() - told) / (squares.std(ddof=1) / self.SEEDS**0.5)
        assert abs(z) < stats.norm.isf(FALSE_ALARM / 2)

    def test_at_equal_epsilon_a_mask_that_moves_every_round_is_worse_than_fresh_noise(self):
        fresh = self.told(None, np.eye(ROUNDS)) * 3  # three participations
        share = [
            self.told(period, self.MATRIX.noising(ROUNDS))
            * self.MATRIX.sensitivity(ROUNDS, 3) ** 2
            / fresh
            for period in self.PERIODS
        ]
        assert share == sorted(share, reverse=True)
        assert share[0] > 1.5
        assert share[-1] < 0.6

    def test_the_certificate_does_not_depend_on_it(self):
        found = [certificate(self.sparse(period)) for period in (2, None)]
        assert all(each == found[0] for each in found)
        whole = fp.fed_avg(squared, **self.OPTIONS)
        assert found[0].epsilon == certificate(whole).epsilon < np.inf

    OPTIONS: ClassVar = {
        "sampler": fp.fixed_order(N, SIZE),
        "optimizer": sgd,
        "batches": fp.full_batch(),
        "mechanism": correlated(MATRIX),
    }

    def sparse(self, period):
        sparsifier = fp.papers.select_rand_k(0.5, unbiased=False, period=period)
        silence = lambda params, example: 0.0 * squared(params, example)  # noqa: E731
        return fp.papers.fed_avg_sparse(silence, sparsifier=sparsifier, **self.OPTIONS)

    def told(self, period, noising):
        """E of the squared norm over all pairs of masks, for fresh noise of variance 1 in every place."""
        length = period or ROUNDS
        each = np.array([noising[t : t + length].sum(0) for t in range(0, ROUNDS, length)])
        gram = each @ each.T
        masks = list(combinations(range(4), 2))
        same = np.mean([np.equal(a, b).sum() for a in masks for b in masks])
        within = np.trace(gram)
        return 2 * within + same * (gram.sum() - within)


class TestAlgorithms:
    """Whatever sums clients by a mechanism, sums them by a correlated one."""

    TAKES_ONE: ClassVar = varied(
        [
            name
            for name, make in ALGORITHMS.items()
            if "mechanism" in signature(make.func).parameters and name != "ldp_fed_avg"
        ],
        lambda entry: (entry.kind, entry.keeps),
    )

    @tiers.every("name", TAKES_ONE)
    def test_is_certified_and_keeps_the_shapes_of_its_memory(self, name):
        matrix = matrix_of("banded_inverse")
        algorithm = ALGORITHMS[name](
            sampler=fp.fixed_order(CLIENTS, 2), mechanism=fp.correlated(NOISY, matrix)
        )
        traced = fp.trace_round(algorithm, PARAMS, ALL_SMALL)
        found = traced.certify(4, 1e-5)
        assert (found.basis, found.epsilon < np.inf) == ("constructed", True)
        key, t = jax.random.key(0), jnp.int32(0)
        carried = Carried(algorithm.init(PARAMS, ALL_SMALL), traced.first_memory(4), ((),))
        assert jax.tree.leaves(carried.memory)
        after, _ = jax.eval_shape(round_in_run(algorithm), key, carried, ALL_SMALL, t)
        assert jax.tree.map(_kind, after.memory) == jax.tree.map(_kind, carried.memory)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name", ["dp_fed_avg", "fed_smp rand_k", "dp_fed_avg_wav", "dp_scaffold"]
    )
    def test_papers_claim_nothing_of_schedules(self, name):
        for sampler in (fp.shuffled_blocks(CLIENTS, 2), fp.cyclic_poisson(CLIENTS, 3, 0.5)):
            assert ALGORITHMS[name](sampler=sampler).claim(2, 1e-5) is None
        assert ALGORITHMS[name]().claim(2, 1e-5) is not None

    @pytest.mark.slow
    def test_a_protocol_has_no_empty_slots(self):
        for sampler in (
            fp.cyclic_poisson(CLIENTS, 3, 0.5),
            fp.fixed_order(CLIENTS, 2, 2),
            fp.random_allocation(CLIENTS, 3),
        ):
            with refused("sampler: "):
                ALGORITHMS["msp_fl"](sampler=sampler)


def _kind(leaf):
    return leaf.dtype, leaf.shape
