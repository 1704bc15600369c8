"""Correlated noise: a run is certified and audited as a whole, alone and beside other things."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from correlated_runs import (
    CLIP,
    FEDERATION,
    MATRICES,
    ROUNDS,
    SIGMA,
    SIZE,
    N,
    by_all_patterns,
    correlated,
    descent,
    gaussian_epsilon,
    matrix_of,
    of_parts,
    silent,
)
from own_algorithms import error_feedback
from small import (
    assert_close,
    refused,
    regression,
    sgd,
    squared,
    start,
)

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.attacks.server_views import server_view
from fedpriv.mechanisms.correlated import OF_RUNS
from fedpriv.privacy import Allocation, certify_seen
from fedpriv.privacy.strategy_sensitivity import block_sensitivity

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@cache
def traced(algorithm):
    return fp.trace_round(algorithm, start(), FEDERATION)


def certificate(algorithm, rounds=ROUNDS, **options):
    return traced(algorithm).certify(rounds, 1e-5, **options)


FIRST = sorted(MATRICES, key=lambda name: name == "banded")  # which is optimised for seconds


class TestCertificates:
    @tiers.every("name", FIRST, kind=lambda name: name.split("_")[0])
    @tiers.every("rounds", [ROUNDS, 1, 5])
    def test_a_run_is_one_gaussian(self, name, rounds):
        found = certificate(descent(correlated(matrix_of(name)), fp.fixed_order(N, SIZE)), rounds)
        least = by_all_patterns(matrix_of(name).strategy(rounds), 3)
        mu = matrix_of(name).sensitivity(rounds, 3) / SIGMA
        assert least * (1 - 1e-12) <= mu * SIGMA <= least * (1.02 if name == "tree" else 1 + 1e-12)
        assert_close(found.epsilon, gaussian_epsilon(mu, 1e-5), 1e-6)
        assert (found.relation, found.basis, found.unit) == ("zero_out", "constructed", "client")

    def test_every_round_is_a_clients(self):
        found = certificate(descent(correlated(matrix_of("blt")), fp.everyone(N)))
        mu = by_all_patterns(matrix_of("blt").strategy(ROUNDS), 1) / SIGMA
        assert_close(found.epsilon, gaussian_epsilon(mu, 1e-5), 1e-6)

    def test_fewer_participations_than_fit(self):
        sampler = fp.fixed_order(N, SIZE, participations=2)
        found = certificate(descent(correlated(matrix_of("tree")), sampler))
        mu = matrix_of("tree").sensitivity(ROUNDS, 3, 2) / SIGMA
        assert_close(found.epsilon, gaussian_epsilon(mu, 1e-5), 1e-6)

    def test_plain_noise_is_the_identity(self):
        """Three of nine rounds are a client's."""
        sampler = fp.shuffled_blocks(N, SIZE)
        plain = certificate(descent(fp.gaussian(CLIP, SIGMA), sampler))
        same = certificate(descent(correlated(fp.noise_matrices.identity()), sampler))
        assert_close(plain.epsilon, gaussian_epsilon(3**0.5 / SIGMA, 1e-5), 1e-6)
        assert_close(same.epsilon, plain.epsilon, 1e-9)

    @tiers.every("given", [(0.5, 2, 5), (2.0, None, 2), (0.5, None, ROUNDS)])
    def test_noise_that_changes_counts_in_a_clients_worst_rounds(self, given):
        decay, most, parts = given
        used = fp.dynamic(fp.gaussian(CLIP, SIGMA), rounds=ROUNDS, noise_decay=decay, parts=parts)
        each = np.concatenate([[m] * steps for steps, m in used.multipliers(ROUNDS)])
        least = by_all_patterns(np.diag(1 / each), 3, most)
        sampler = fp.fixed_order(N, SIZE, participations=most)
        found = certificate(descent(used, sampler))
        assert_close(found.epsilon, gaussian_epsilon(least, 1e-5), 1e-6)

    def test_plain_noise_towards_servers(self):
        """Its shares are those of the members: a server sees each of four."""
        plain = descent(fp.gaussian(CLIP, SIGMA), fp.fixed_order(N, SIZE))
        for view, share in {"server": 4, "server_secagg": 1}.items():
            told = gaussian_epsilon((3 * share) ** 0.5 / SIGMA, 1e-5)
            assert_close(certificate(plain, view=view).epsilon, told, 1e-6)

    def test_parts_add_up(self):
        used = fp.joint(correlated(matrix_of("banded_toeplitz")), fp.gaussian(1.0, 2.0))
        found = certificate(of_parts(used, fp.fixed_order(N, SIZE)))
        squared = (matrix_of("banded_toeplitz").sensitivity(ROUNDS, 3) / SIGMA) ** 2 + 3 / 2.0**2
        assert_close(found.epsilon, gaussian_epsilon(squared**0.5, 1e-5), 1e-6)

    def test_a_server_sees_what_it_adds_the_noise_to(self):
        algorithm = descent(correlated(matrix_of("tree")), fp.fixed_order(N, SIZE))
        for view in ("server", "server_secagg"):
            found = certificate(algorithm, view=view)
            assert found.epsilon == np.inf
            assert "the server adds the noise" in str(found)

    def test_an_enclave_is_assumed_where_it_is_declared(self):
        used = fp.correlated(fp.gaussian(CLIP, SIGMA), matrix_of("tree"), adder="enclave")
        algorithm = descent(used, fp.fixed_order(N, SIZE))
        known, third = (certificate(algorithm, view=v) for v in ("server_secagg", "third_party"))
        assert known.epsilon == third.epsilon < np.inf
        assert any("enclave" in text for text in known.assumptions)
        assert not any("enclave" in text for text in third.assumptions)
        assert certificate(algorithm, view="server").epsilon == np.inf

    def test_amplified_turns(self):
        """As the plain Poisson cohorts of one group, with noise over the norm of the longest column."""
        matrix, group = matrix_of("banded_toeplitz"), 4
        found = certificate(descent(correlated(matrix), fp.cyclic_poisson(N, 3, 0.25, group)))
        longest = np.linalg.norm(matrix.strategy(ROUNDS), axis=0).max()
        of_group = descent(fp.gaussian(CLIP, SIGMA / longest), fp.poisson(group, 0.25, group))
        of_four = fp.trace_round(of_group, start(), regression([3] * group))
        alone = of_four.certify(3, 1e-5)
        assert_close(found.epsilon, alone.epsilon, 1e-6)
        assert found.relation == alone.relation == "add_or_remove"
        known = certificate(descent(correlated(matrix), fp.fixed_order(N, SIZE)))
        assert found.epsilon < known.epsilon

    def test_turns_that_clients_remember_are_known_where_a_cut_tells_them(self):
        """An error that stays shows who was cut: what is certified is then that of cohorts in a fixed order."""
        mechanism = correlated(matrix_of("banded_toeplitz"))

        def kept(sampler):
            return certificate(error_feedback(squared, sampler, mechanism, fp.top_k(1)))

        known, often_cut = kept(fp.fixed_order(N, SIZE)), kept(fp.cyclic_poisson(N, 3, 0.6, 2))
        assert (often_cut.epsilon, often_cut.relation) == (known.epsilon, known.relation)
        assert kept(fp.cyclic_poisson(N, 3, 0.6)).epsilon < known.epsilon

    @tiers.every("rounds", [7, 4, ROUNDS])
    def test_allocated_rounds_of_fresh_noise(self, rounds):
        """A third party that does not know the round of a block; servers do."""
        plain, blocks = (
            descent(fp.gaussian(CLIP, SIGMA), fp.random_allocation(N, 3)),
            -(-rounds // 3),
        )
        third = certificate(plain, rounds)
        block = fp.privacy.declared("third_party", "client", SIGMA, Allocation(N, 3), blocks)
        alone = certify_seen([block], 1e-5, "third_party")
        assert_close(third.epsilon, alone.epsilon, 1e-9)
        assert (third.relation, third.basis) == ("add_or_remove", "constructed")
        assert any("draw their rounds independently" in text for text in third.assumptions)
        assert not any("may be known" in text for text in third.assumptions)
        known = gaussian_epsilon(blocks**0.5 / SIGMA, 1e-5)
        summed = certificate(plain, rounds, view="server_secagg")
        assert_close(summed.epsilon, known, 1e-6)
        assert third.epsilon < known
        assert any("one round of a client in each of" in text for text in summed.assumptions)
        told = certificate(plain, rounds, view="server")
        assert_close(told.epsilon, gaussian_epsilon((N * blocks) ** 0.5 / SIGMA, 1e-5), 1e-6)

    def test_allocated_rounds_of_correlated_noise_are_known(self):
        for matrix in (matrix_of("banded_toeplitz"), fp.noise_matrices.identity()):
            found = certificate(descent(correlated(matrix), fp.random_allocation(N, 3)))
            squared = block_sensitivity(matrix.strategy(ROUNDS), 3) ** 2
            assert_close(found.epsilon, gaussian_epsilon(squared**0.5 / SIGMA, 1e-5), 1e-6)
            assert found.relation == "zero_out"
        assert_close(squared, 3, 1e-12)

    def test_allocated_rounds_of_local_noise_are_known(self):
        algorithm = fp.papers.ldp_fed_avg(
            squared,
            sampler=fp.random_allocation(N, 3),
            optimizer=sgd,
            batches=fp.full_batch(),
            mechanism=fp.gaussian(CLIP, SIGMA),
        )
        assert {certificate(algorithm, view=view).relation for view in fp.privacy.VIEWS} == {
            "zero_out"
        }
        told = gaussian_epsilon(3**0.5 / SIGMA, 1e-5)
        assert_close(certificate(algorithm, view="server").epsilon, told, 1e-6)

    @tiers.every("given", [(3, [2, 1]), (2, [2, 1, 1])])
    def test_a_block_counts_with_its_least_noise(self, given):
        block, least = given
        changing = fp.dynamic(fp.gaussian(CLIP, SIGMA), rounds=6, noise_decay=4.0, parts=2)
        found = certificate(descent(changing, fp.random_allocation(N, block)), 6)
        drawn = Allocation(N, block)
        blocks = [
            fp.privacy.declared("third_party", "client", m * SIGMA / 2, drawn, 1) for m in least
        ]
        assert_close(found.epsilon, certify_seen(blocks, 1e-5, "third_party").epsilon, 1e-9)

    @pytest.mark.slow
    def test_allocated_rounds_for_a_target(self):
        sampler, target = fp.random_allocation(N, 3), {"epsilon": 2.0, "rounds": 6, "delta": 1e-5}
        sigma = fp.calibrate_noise(
            lambda s: descent(fp.gaussian(CLIP, s), sampler), start(), FEDERATION, **target
        )
        found = certificate(descent(fp.gaussian(CLIP, sigma), sampler), 6)
        assert_close(found.epsilon, 2.0, 1e-3)
        assert sigma < fp.calibrate_noise(
            lambda s: descent(fp.gaussian(CLIP, s), fp.fixed_order(N, SIZE)),
            *(start(), FEDERATION),
            **target,
        )

    def test_nothing_is_nothing(self):
        algorithm = descent(correlated(matrix_of("tree")), fp.fixed_order(N, SIZE))
        assert certificate(algorithm, 0).epsilon == 0

    def test_a_class_of_ones_own_is_declared(self):
        class Silent(type(matrix_of("banded_inverse"))):
            pass

        matrix = matrix_of("banded_inverse")
        fields = {name: getattr(matrix, name) for name in matrix.__dataclass_fields__}
        algorithm = descent(correlated(Silent(**fields)), fp.fixed_order(N, SIZE))
        assert certificate(algorithm).basis == "declared"

    @pytest.mark.slow
    def test_all_checks(self):
        algorithm = descent(correlated(matrix_of("blt")), fp.fixed_order(N, SIZE))
        fp.check_algorithm(algorithm, start(), FEDERATION)

    def test_noise_for_a_target(self):
        sigma = fp.calibrate_noise(
            lambda s: descent(correlated(matrix_of("blt"), sigma=s), fp.fixed_order(N, SIZE)),
            *(start(), FEDERATION),
            **{"epsilon": 2.0, "rounds": ROUNDS, "delta": 1e-5},
        )
        mu = matrix_of("blt").sensitivity(ROUNDS, 3) / sigma
        assert_close(gaussian_epsilon(mu, 1e-5), 2.0, 1e-3)


class TestAudits:
    """The engine's own noise of whole runs, in the worst rounds, projected as the best attack does."""

    @pytest.mark.slow
    def test_a_run_lies_below_its_certificate_and_near_it(self):
        used = correlated(matrix_of("tree"), sigma=3.0)
        traced = fp.trace_round(descent(used, fp.fixed_order(N, SIZE)), start(), FEDERATION)
        scores = draw_scores(traced.seen(ROUNDS), "third_party", draws=20_000)
        certified = traced.certify(ROUNDS, 1e-3).epsilon
        assert lower_bounds(scores, 1e-3, significance=1e-6).least <= certified
        assert lower_bounds(scores, 1e-3).gaussian > 0.6 * certified

    @pytest.mark.slow
    def test_a_run_of_blocks(self):
        """In the worst rounds found by blocks."""
        used, sampler = (
            correlated(matrix_of("banded_inverse"), sigma=3.0),
            fp.random_allocation(N, 3),
        )
        traced = fp.trace_round(descent(used, sampler), start(), FEDERATION)
        scores = draw_scores(traced.seen(ROUNDS), "third_party", draws=20_000)
        certified = traced.certify(ROUNDS, 1e-3).epsilon
        assert lower_bounds(scores, 1e-3, significance=1e-6).least <= certified
        assert lower_bounds(scores, 1e-3).gaussian > 0.6 * certified

    @pytest.mark.slow
    def test_too_little_noise_is_refuted(self):
        """A run of half the noise that is certified."""
        matrix, sampler = matrix_of("banded_inverse"), fp.fixed_order(N, SIZE)
        loud, quiet = (
            fp.trace_round(descent(correlated(matrix, sigma=s), sampler), start(), FEDERATION)
            for s in (2.0, 1.0)
        )
        scores = draw_scores(quiet.seen(ROUNDS), "third_party", draws=20_000)
        assert lower_bounds(scores, 1e-3, 1e-6).least > loud.certify(ROUNDS, 1e-3).epsilon


class TestBeside:
    """Correlated noise beside other things."""

    SAMPLER = fp.fixed_order(N, SIZE)

    @pytest.mark.parametrize(
        ("other", "why"),
        [
            (fp.laplace(1.0, 1.0), "laplace noise is not counted beside"),
            (
                fp.dynamic(fp.gaussian(1.0, 1.0), rounds=9, noise_decay=2.0),
                "noise that changes over the rounds is not counted",
            ),
            (fp.unprotected("nothing hides it"), "nothing hides it"),
        ],
    )
    def test_what_cannot_be_counted_is_infinite_and_says_why(self, other, why):
        used = correlated(matrix_of("tree"))

        def round(key, state, cohort):
            total, metrics, _ = cohort.sum(silent, key, mechanism=used)
            more, _, _ = cohort.sum(silent, key, mechanism=other)
            params = jax.tree.map(jnp.add, total, more)
            return fp.ModelState(params, state.round + 1), metrics

        found = certificate(fp.Algorithm(fp.start, round, self.SAMPLER))
        assert found.epsilon == np.inf
        assert [text for text in found.assumptions if why in text]
        assert not [text for text in found.assumptions if OF_RUNS in text]

    def test_an_enclave_adds_the_fresh_parts_too(self):
        inner = fp.gaussian(CLIP, SIGMA)
        hidden, shown = (
            fp.correlated(inner, matrix_of("tree"), adder=adder) for adder in ("enclave", "server")
        )
        known = [
            certificate(
                of_parts(fp.joint(used, fp.gaussian(1.0, 2.0)), self.SAMPLER), view="server_secagg"
            ).epsilon
            for used in (hidden, shown)
        ]
        assert known[0] < known[1] == np.inf

    def test_adaptive_clipping(self):
        """Each of a client's three rounds counts for its bit, the matrix's sensitivity for its updates (Theorem 1)."""
        matrix, z, count_noise = matrix_of("banded_inverse"), 0.8, 1.0
        algorithm = fp.adaptive_fed_avg(
            squared,
            sampler=self.SAMPLER,
            optimizer=sgd,
            batches=fp.full_batch(),
            quantile=0.5,
            clip_norm=CLIP,
            noise_multiplier=z,
            count_noise=count_noise,
            mechanism=correlated(matrix),
        )
        squares = z**-2 - (2 * count_noise) ** -2
        mu = (matrix.sensitivity(ROUNDS, 3) ** 2 * squares + 3 * (2 * count_noise) ** -2) ** 0.5
        assert_close(certificate(algorithm).epsilon, gaussian_epsilon(mu, 1e-5), 1e-6)

    def test_words_of_a_schedule_where_who_joins_is_secret(self):
        found = certificate(
            descent(correlated(matrix_of("banded_toeplitz")), fp.cyclic_poisson(N, 3, 0.25, 4))
        )
        assert [text for text in found.assumptions if "whose turn it is may be known" in text]

    @pytest.mark.slow
    def test_rounds_for_a_target_end_with_the_matrix(self):
        loud, quiet = (
            descent(correlated(matrix_of("tree"), sigma=s), self.SAMPLER) for s in (50.0, 5.0)
        )
        target = {"epsilon": 1.5, "delta": 1e-5}
        assert fp.calibrate_rounds(quiet, start(), FEDERATION, **target) == 3
        with refused("9 rounds, the most that its noise is made for, do not reach it"):
            fp.calibrate_rounds(loud, start(), FEDERATION, **target)

    @pytest.mark.slow
    def test_a_servers_view_is_of_bare_messages(self):
        """Whatever the noise."""
        state, key = fp.ModelState(start(), jnp.int32(0)), jax.random.key(3)

        def update(used):
            algorithm = descent(used, self.SAMPLER)
            return jax.jit(lambda k: server_view(algorithm, k, state, FEDERATION).update)(key)

        bare, seen = map(update, (fp.gaussian(CLIP, 0), correlated(matrix_of("blt"), sigma=9.0)))
        assert_close(np.asarray(seen), np.asarray(bare), 1e-6)
