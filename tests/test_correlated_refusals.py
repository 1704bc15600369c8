"""Correlated noise that cannot be counted is refused, and what is made by hand is measured."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from correlated_runs import (
    CLIP,
    FEDERATION,
    SIGMA,
    SIZE,
    N,
    correlated,
    descent,
    matrix_of,
    run,
    silent,
)
from small import (
    refused,
    sgd,
    squared,
    start,
)

import fedpriv as fp
from fedpriv.mechanisms.noise_matrices.banded import Banded

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def certificate(algorithm, rounds=9):
    return fp.trace_round(algorithm, start(), FEDERATION).certify(rounds, 1e-5)


class TestRefusals:
    USED = correlated(matrix_of("banded_inverse"))
    SAMPLER = fp.fixed_order(N, SIZE)

    @pytest.mark.parametrize("sampler", [fp.poisson(N, 0.3), fp.fixed_size(N, SIZE)])
    def test_cohorts_without_a_schedule(self, sampler):
        with refused("noise is correlated over rounds .*give a sampler with a schedule"):
            certificate(descent(self.USED, sampler))

    def test_an_opening(self):
        opening = fp.Opening(fp.everyone(N), 1, fp.everyone(N))
        with refused("sampler: an fp.Opening"):
            run(descent(self.USED, opening))

    def test_more_rounds_than_the_matrix_has(self):
        with refused("rounds: 10; .* is for at most 9"):
            certificate(descent(self.USED, self.SAMPLER), 10)
        with refused("rounds: 10; .* is for at most 9"):
            run(descent(self.USED, self.SAMPLER), rounds=10)

    def test_more_bands_than_groups(self):
        with refused("has 3 bands, but a client's turn comes every 2 rounds"):
            used = correlated(Banded("by hand", 9, ((0.8, 0.5, 0.3),)))
            certificate(descent(used, fp.cyclic_poisson(N, 2, 0.5)))
        with refused("has no bands"):
            certificate(descent(self.USED, fp.cyclic_poisson(N, 2, 0.5)))

    def test_where_nothing_can_be_remembered(self):
        def round(wrap):
            def run(key, state, cohort):
                def once(key):
                    return cohort.sum(silent, key, mechanism=self.USED)

                total, metrics, _ = wrap(once, key)
                return fp.ModelState(total, state.round + 1), metrics

            return fp.Algorithm(fp.start, run, self.SAMPLER)

        for wrap in (
            lambda once, key: jax.jit(once)(key),
            lambda once, key: jax.lax.cond(True, once, once, key),
            lambda once, key: jax.lax.map(once, key[None]),
        ):
            with refused("in a loop, a branch or a transformed function"):
                certificate(round(wrap))

    def test_a_clients_own_noise(self):
        def round(key, state, cohort):
            total, metrics, _ = cohort.sum(silent, key, mechanism=self.USED, adder="own")
            return fp.ModelState(total, state.round + 1), metrics

        with refused("adder: 'own'; leave it out"):
            certificate(fp.Algorithm(fp.start, round, self.SAMPLER))

    def test_a_round_alone(self):
        run_alone = fp.one_round(descent(self.USED, self.SAMPLER))
        state = fp.ModelState(start(), jnp.int32(0))
        with refused("this round stands alone; train with fp.simulate"):
            jax.eval_shape(run_alone, jax.random.key(0), state, FEDERATION)

    def test_mechanisms_that_cannot_be(self):
        plain = fp.gaussian(1.0, 1.0)
        for wrong in (fp.laplace(1.0, 1.0), fp.unprotected(), fp.joint(plain, plain), self.USED):
            with refused("mechanism: .*give one with Gaussian noise"):
                fp.correlated(wrong, matrix_of("tree"))
        with refused("factorization: .*give one such as fp.noise_matrices"):
            fp.correlated(plain, np.eye(3))
        with refused("start: it has no Gaussian noise to change"):
            fp.dynamic(self.USED, rounds=9, noise_decay=2.0)

    def test_records_means(self):
        local = fp.LocalSteps(
            fp.per_example(squared), fp.poisson(3, 0.5), 2, sgd, mechanism=self.USED
        )
        with refused("mechanism: .*correlated over rounds, .*; give fp.gaussian"):
            certificate(fp.dp_sgd(local, sampler=self.SAMPLER))


class TestMadeByHand:
    """What is somebody's word is measured by `check_algorithm`."""

    SAMPLER = fp.fixed_order(N, SIZE)
    MATRIX = matrix_of("banded_inverse")
    FIELDS: ClassVar = vars(MATRIX)

    def check(self, mechanism):
        fp.check_algorithm(descent(mechanism, self.SAMPLER), start(), FEDERATION)

    @pytest.mark.slow
    def test_a_quiet_mechanism(self):
        quiet = fp.gaussian(CLIP, 1e-3)._replace(certified_multiplier=SIGMA)
        by_hand = fp.gaussian(CLIP, SIGMA)._replace(at=lambda bound, sigma: quiet.at(bound, 1e-3))
        with refused("declares a multiplier of 0.8, but its noise was measured as at most"):
            self.check(fp.correlated(by_hand, self.MATRIX))

    @pytest.mark.slow
    def test_a_clip_that_does_not(self):
        used = correlated(self.MATRIX)._replace(clip=fp.gaussian(10 * CLIP, 1.0).clip)
        with refused("declares a multiplier of 0.8, but its noise was measured as at most"):
            self.check(used)

    def test_a_quiet_matrix(self):
        class Quiet(type(self.MATRIX)):
            def _next(self, memory, z, t):
                noise, memory = super()._next(memory, z, t)
                return noise / 2, memory

        with refused("declares a sensitivity of 1.228, but its noise over 9 rounds has 2.45"):
            self.check(correlated(Quiet(**self.FIELDS)))

    @pytest.mark.slow
    def test_fewer_bands_than_there_are(self):
        class Short(type(self.MATRIX)):
            bands = 2

        with refused("declares 2 bands, but"):
            self.check(correlated(Short(**self.FIELDS)))

    @pytest.mark.slow
    def test_what_keeps_its_word(self):
        class Same(type(self.MATRIX)):
            pass

        by_hand = fp.gaussian(CLIP, SIGMA)._replace(seal=())
        self.check(fp.correlated(by_hand, Same(**self.FIELDS)))

    def test_a_subclass_is_no_mechanism_to_correlate(self):
        class Own(fp.Mechanism):
            pass

        with refused("mechanism: .*give one with Gaussian noise"):
            fp.correlated(Own(*fp.gaussian(CLIP, SIGMA)), self.MATRIX)

    def test_a_subclass_is_not_run(self):
        class Own(fp.Mechanism):
            pass

        with refused("mechanism: an object of type Own; give one such as fp.gaussian"):
            run(descent(Own(*correlated(self.MATRIX)), self.SAMPLER))
