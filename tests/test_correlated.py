"""Noise that is correlated over rounds: the engine remembers it, and a run is certified as a whole."""

from dataclasses import replace
from functools import cache, partial
from inspect import signature
from itertools import chain, combinations, pairwise
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_algorithm import CLIENTS, NOISY, PARAMS
from every_algorithm import FEDERATION as ALL_SMALL
from every_algorithm import MAKERS as ALGORITHMS
from scipy import optimize, stats
from small import (
    FALSE_ALARM,
    assert_close,
    assert_identical,
    refused,
    regression,
    sgd,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.canaries import with_canaries
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.attacks.server_views import server_view
from fedpriv.mechanisms.correlated import OF_RUNS
from fedpriv.mechanisms.noise_matrices import BufferedToeplitz
from fedpriv.rounds.one_round import Carried, round_in_run
from fedpriv.rounds.scheduled_samplers import has_full_cohorts

N, SIZE, ROUNDS, CLIP, SIGMA = 12, 4, 9, 0.5, 0.8
FEDERATION = regression([3] * N)
MATRICES = {
    "tree": lambda: fp.noise_matrices.tree(ROUNDS),
    "banded": lambda: fp.noise_matrices.banded(ROUNDS, 3),
    "banded_toeplitz": lambda: fp.noise_matrices.banded_toeplitz(ROUNDS, 3),
    "banded_inverse": lambda: fp.noise_matrices.banded_inverse(ROUNDS, 3),
    "blt": lambda: BufferedToeplitz(
        ROUNDS, (0.9, 0.5), (0.3, 0.2)
    ),  # not optimised: that takes long
}


@cache
def matrix_of(name):
    return MATRICES[name]()


def silent(key, shard):
    """A client that sends nothing, so that the noise alone moves the model."""
    return jax.tree.map(jnp.zeros_like, start())


def gradient_of(params, key, shard):
    return fp.mean_grad(squared)(params, shard.examples, shard.mask)


def descent(mechanism, sampler, client=None):
    """theta <- theta - (noisy sum) / (expected size): as short as an algorithm can be."""

    def round(key, state, cohort):
        send = client or partial(gradient_of, state.params)
        total, metrics, _ = cohort.sum(send, key, mechanism=mechanism)
        step = jax.tree.map(lambda s: s / cohort.expected_size, total)
        params = jax.tree.map(jnp.subtract, state.params, step)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler)


def correlated(matrix, clip=CLIP, sigma=SIGMA):
    return fp.correlated(fp.gaussian(clip, sigma), matrix)


def run(algorithm, **options):
    given = {"rounds": ROUNDS, "every": 1, "score": lambda p, e: {"loss": squared(p, e)}}
    test = jax.tree.map(lambda leaf: leaf[:5], FEDERATION.examples)
    federation = options.pop("federation", FEDERATION)
    return fp.simulate(algorithm, start(), federation, test, **given | options)


def models(algorithm, rounds=ROUNDS, **options):
    """f64[rounds + 1, d], after each round."""
    seen = [vector(start())]
    run(
        algorithm,
        measure=lambda state, _: {f"p{i}": x for i, x in enumerate(_flat(state.params))},
        on_evaluation=lambda e: seen.append(np.array([e.measures[f"p{i}"][0] for i in range(4)])),
        rounds=rounds,
        **options,
    )
    return np.array(seen, np.float64)


def _flat(params):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])


@pytest.mark.usefixtures("quick_to_compile")
class TestNoise:
    @pytest.mark.parametrize("name", MATRICES)
    def test_a_run_adds_the_matrix_times_fresh_noise(self, name):
        """Against the run whose noise is fresh: the same keys, so the same z."""
        sampler = fp.fixed_order(N, SIZE)
        plain = models(descent(fp.gaussian(CLIP, SIGMA), sampler, silent))
        with_memory = models(descent(correlated(matrix_of(name)), sampler, silent))
        z, noise = np.diff(plain, axis=0), np.diff(with_memory, axis=0)
        np.testing.assert_allclose(noise, matrix_of(name).noising(ROUNDS) @ z, atol=2e-6)

    def test_messages_are_as_without(self):
        """With so little noise that the sums show."""
        sampler = fp.fixed_order(N, SIZE)
        quiet = models(descent(correlated(matrix_of("blt"), sigma=1e-6), sampler))
        bare = models(descent(fp.gaussian(CLIP, 0), sampler))
        np.testing.assert_allclose(quiet, bare, atol=1e-5)

    def test_identity_is_plain_noise_to_the_bit(self):
        sampler = fp.shuffled_blocks(N, SIZE)
        plain = run(descent(fp.gaussian(CLIP, SIGMA), sampler)).params()
        same = run(descent(correlated(fp.noise_matrices.identity()), sampler)).params()
        assert all(map(np.array_equal, jax.tree.leaves(plain), jax.tree.leaves(same)))

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
        steady = -SIZE * np.diff(models(descent(base, sampler, silent)), axis=0)
        np.testing.assert_allclose(
            changing, steady * np.where(np.arange(9) < 4, 1, 2)[:, None], atol=5e-6
        )

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
        alone = models(descent(one, sampler, silent))
        together = models(both)
        np.testing.assert_allclose(
            together[1:] - together[0], -SIZE * (alone[1:] - alone[0]), atol=1e-5
        )

    def test_a_part_of_a_joint_mechanism(self):
        sampler = fp.fixed_order(N, SIZE)
        used = fp.joint(correlated(matrix_of("banded")), fp.gaussian(1.0, 1.0))
        plain = fp.joint(fp.gaussian(CLIP, SIGMA), fp.gaussian(1.0, 1.0))
        both = [np.diff(models(_of_parts(each, sampler)), axis=0) for each in (plain, used)]
        np.testing.assert_allclose(
            both[1], matrix_of("banded").noising(ROUNDS) @ both[0], atol=5e-6
        )

    def test_the_covariance_is_that_of_the_matrix(self):
        """Of the sum of all rounds, over 400 seeds; false alarm 1e-6 by the chi-square law of its variance."""
        matrix, seeds = matrix_of("banded_inverse"), range(400)
        ends = run(
            descent(correlated(matrix), fp.fixed_order(N, SIZE), silent), seeds=seeds, every=ROUNDS
        )
        moved = np.asarray(ends.state.params["w"]) - np.asarray(start()["w"])
        told = (matrix.noising(ROUNDS).sum(0) ** 2).sum() * (CLIP * SIGMA / SIZE) ** 2
        low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], moved.size)
        assert low < (moved**2).sum() / told < high


def _with_another(params, federation):
    return Two(params, jnp.int32(0), jnp.zeros(4))


class Two(NamedTuple):
    """With another sum of noise."""

    params: dict
    round: jax.Array
    other: jax.Array


def _of_parts(mechanism, sampler):
    def round(key, state, cohort):
        def send(key, shard):
            return silent(key, shard), jnp.zeros(2)

        (total, _), metrics, _ = cohort.sum(send, key, mechanism=mechanism)
        params = jax.tree.map(jnp.add, state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, sampler)


@pytest.mark.usefixtures("quick_to_compile")
class TestMemory:
    """Is carried to the bit through whatever a run goes through, and seen by nobody."""

    ALGORITHM = descent(correlated(matrix_of("blt")), fp.shuffled_blocks(N, SIZE))

    def test_stopped_and_resumed(self, tmp_path):
        options = {"seeds": (3, 8), "every": 2}
        whole = run(self.ALGORITHM, **options)
        checkpoints = fp.Checkpoints(tmp_path, rounds=1)

        def kill(e):
            if e.round == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(self.ALGORITHM, checkpoints=checkpoints, on_evaluation=kill, **options)
        resumed = run(self.ALGORITHM, checkpoints=checkpoints, **options)
        assert_identical(whole.state, resumed.state)

    def test_streamed_as_in_memory(self):
        examples = jax.tree.map(np.asarray, FEDERATION.examples)
        rows = list(np.asarray(FEDERATION.rows))
        streamed = fp.StreamedFederation.from_arrays(examples, rows)
        there = run(self.ALGORITHM, federation=streamed, seeds=(3, 8), every=2)
        assert_close(vectors(there), vectors(run(self.ALGORITHM, seeds=(3, 8), every=2)))

    def test_on_two_devices(self):
        from fedpriv.devices.layout import default

        split = run(self.ALGORITHM, strategy=default())
        one = run(self.ALGORITHM, strategy=fp.Strategy())
        assert_close(vectors(split), vectors(one))

    def test_no_state_holds_it(self):
        assert run(self.ALGORITHM).state._fields == ("params", "round")

    def test_a_chunk_longer_than_the_run(self):
        assert_identical(run(self.ALGORITHM, every=4).params(), run(self.ALGORITHM).params())


def vectors(history):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(history.state.params)])


class TestSchedules:
    """Draws against the schedule that they declare."""

    def cohorts(self, sampler, rounds, seed=0):
        draws = jax.vmap(sampler.draw, (None, 0))(jax.random.key(seed), jnp.arange(rounds))
        each = zip(np.asarray(draws.ids), np.asarray(draws.mask), strict=True)
        return [ids[mask].tolist() for ids, mask in each]

    @pytest.mark.parametrize("make", [fp.fixed_order, fp.shuffled_blocks])
    @pytest.mark.parametrize(("n", "size"), [(12, 4), (13, 4), (5, 5), (7, 1)])
    def test_everyone_once_in_a_block(self, make, n, size):
        sampler = make(n, size)
        block = sampler.accounting.separation
        cohorts = self.cohorts(sampler, 3 * block)
        assert block == -(-n // size)
        assert sampler.expected_size == n / block
        for begin in range(0, 3 * block, block):
            assert sorted(chain(*cohorts[begin : begin + block])) == list(range(n))
        assert cohorts[:block] * 3 == cohorts
        assert {len(cohort) for cohort in cohorts} <= {sampler.slots, sampler.slots - 1}

    def test_after_its_last_participation_a_client_rests(self):
        cohorts = self.cohorts(fp.fixed_order(12, 4, participations=2), 9)
        assert [len(cohort) for cohort in cohorts] == [4] * 6 + [0] * 3

    def test_the_order_is_the_runs_own(self):
        sampler = fp.shuffled_blocks(30, 10)
        assert self.cohorts(sampler, 3, seed=1) != self.cohorts(sampler, 3, seed=2)

    def test_groups_take_turns(self):
        """And each member joins at the rate; false alarm 1e-6 by the binomial law."""
        n, groups, rate, rounds = 12, 3, 0.3, 3000
        cohorts = self.cohorts(fp.cyclic_poisson(n, groups, rate, 4), rounds)
        assert all(i % groups == t % groups for t, cohort in enumerate(cohorts) for i in cohort)
        joined = np.bincount([*chain(*cohorts)], minlength=n)
        bounds = stats.binom.ppf([1e-6 / n / 2, 1 - 1e-6 / n / 2], rounds // groups, rate)
        assert bounds[0] <= joined.min() <= joined.max() <= bounds[1]

    def test_a_group_of_one_that_always_joins_is_a_fixed_order(self):
        cyclic = self.cohorts(fp.cyclic_poisson(6, 3, 1.0), 9)
        assert [*map(sorted, cyclic)] == [[t % 3, t % 3 + 3] for t in range(9)]

    def test_what_is_not_possible(self):
        with refused("size: 13; give at most the population, 12"):
            fp.fixed_order(12, 13)
        with refused("groups: 5; give a number that divides"):
            fp.cyclic_poisson(12, 5, 0.3)

    def test_a_schedule_made_by_hand_is_checked(self):
        sooner = fp.fixed_order(N, SIZE)
        sooner = sooner._replace(draw=lambda key, t: fp.fixed_order(N, SIZE).draw(key, t // 2))
        algorithm = descent(fp.gaussian(CLIP, SIGMA), sooner)
        with refused("some client takes part sooner"):
            fp.check_algorithm(algorithm, start(), FEDERATION)


def gaussian_epsilon(mu, delta):
    """Of N(0, 1) against N(mu, 1), by the exact curve (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon):
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return stats.norm.cdf(a) - np.exp(epsilon) * stats.norm.cdf(b) - delta

    return optimize.brentq(excess, 0, 200)


def by_all_patterns(c, separation):
    """The largest sum of |C^T C| over every set of rounds that are so far apart."""
    gram, rounds = np.abs(c.T @ c), range(c.shape[1])
    some = (p for k in rounds for p in combinations(rounds, k + 1))
    apart = (p for p in some if all(b - a >= separation for a, b in pairwise(p)))
    return max(gram[np.ix_(p, p)].sum() for p in apart) ** 0.5


def certificate(algorithm, rounds=ROUNDS, **options):
    return fp.certify(algorithm, start(), FEDERATION, rounds, 1e-5, **options)


class TestCertificates:
    @pytest.mark.parametrize("name", MATRICES)
    @pytest.mark.parametrize("rounds", [1, 5, ROUNDS])
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

    def test_plain_noise_towards_servers(self):
        """Its shares are those of the members: a server sees each of four."""
        plain = descent(fp.gaussian(CLIP, SIGMA), fp.fixed_order(N, SIZE))
        for view, share in {"server": 4, "server_secagg": 1}.items():
            told = gaussian_epsilon((3 * share) ** 0.5 / SIGMA, 1e-5)
            assert_close(certificate(plain, view=view).epsilon, told, 1e-6)

    def test_parts_add_up(self):
        used = fp.joint(correlated(matrix_of("banded")), fp.gaussian(1.0, 2.0))
        found = certificate(_of_parts(used, fp.fixed_order(N, SIZE)))
        squared = (matrix_of("banded").sensitivity(ROUNDS, 3) / SIGMA) ** 2 + 3 / 2.0**2
        assert_close(found.epsilon, gaussian_epsilon(squared**0.5, 1e-5), 1e-6)

    def test_a_server_sees_what_it_adds_the_noise_to(self):
        algorithm = descent(correlated(matrix_of("tree")), fp.fixed_order(N, SIZE))
        for view in ("server", "server_secagg"):
            found = certificate(algorithm, view=view)
            assert found.epsilon == np.inf
            assert "the server adds the noise" in str(found)

    def test_an_enclave_is_assumed_where_it_is_declared(self):
        used = fp.correlated(fp.gaussian(CLIP, SIGMA), matrix_of("tree"), enclave=True)
        algorithm = descent(used, fp.fixed_order(N, SIZE))
        known, third = (certificate(algorithm, view=v) for v in ("server_secagg", "third_party"))
        assert known.epsilon == third.epsilon < np.inf
        assert any("enclave" in text for text in known.assumptions)
        assert not any("enclave" in text for text in third.assumptions)
        assert certificate(algorithm, view="server").epsilon == np.inf

    def test_amplified_turns(self):
        """As the plain Poisson cohorts of one group, with noise over the norm of the longest column."""
        matrix, group = matrix_of("banded"), 4
        found = certificate(descent(correlated(matrix), fp.cyclic_poisson(N, 3, 0.25, group)))
        longest = np.linalg.norm(matrix.strategy(ROUNDS), axis=0).max()
        of_group = descent(fp.gaussian(CLIP, SIGMA / longest), fp.poisson(group, 0.25, group))
        alone = fp.certify(of_group, start(), regression([3] * group), 3, 1e-5)
        assert_close(found.epsilon, alone.epsilon, 1e-6)
        assert found.relation == alone.relation == "add_or_remove"
        known = certificate(descent(correlated(matrix), fp.fixed_order(N, SIZE)))
        assert found.epsilon < known.epsilon

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

    @pytest.mark.parametrize("name", ["banded_inverse", "tree"])
    def test_a_run_lies_below_its_certificate_and_near_it(self, name):
        used = correlated(matrix_of(name), sigma=3.0)
        traced = fp.trace_round(descent(used, fp.fixed_order(N, SIZE)), start(), FEDERATION)
        scores = draw_scores(traced.releases(ROUNDS), "third_party", draws=20_000)
        certified = traced.certify(ROUNDS, 1e-3).epsilon
        assert lower_bounds(scores, 1e-3, significance=1e-6).least <= certified
        assert lower_bounds(scores, 1e-3).gaussian > 0.6 * certified

    def test_too_little_noise_is_refuted(self):
        """A run of half the noise that is certified."""
        matrix, sampler = matrix_of("banded_inverse"), fp.fixed_order(N, SIZE)
        loud, quiet = (
            fp.trace_round(descent(correlated(matrix, sigma=s), sampler), start(), FEDERATION)
            for s in (2.0, 1.0)
        )
        scores = draw_scores(quiet.releases(ROUNDS), "third_party", draws=20_000)
        assert lower_bounds(scores, 1e-3, 1e-6).least > loud.certify(ROUNDS, 1e-3).epsilon


class TestRefusals:
    USED = correlated(matrix_of("banded_inverse"))
    SAMPLER = fp.fixed_order(N, SIZE)

    @pytest.mark.parametrize("sampler", [fp.poisson(N, 0.3), fp.fixed_size(N, SIZE)])
    def test_cohorts_without_a_schedule(self, sampler):
        with refused("noise is correlated over rounds .*give one with a schedule"):
            certificate(descent(self.USED, sampler))

    def test_an_opening(self):
        opening = fp.Opening(fp.everyone(N), 1, fp.everyone(N))
        with refused("sampler: an fp.Opening"):
            run(descent(self.USED, opening))

    def test_more_rounds_than_the_matrix_has(self):
        with refused("rounds: 10; .* is for 9 at most"):
            certificate(descent(self.USED, self.SAMPLER), 10)
        with refused("rounds: 10; .* is for 9 at most"):
            run(descent(self.USED, self.SAMPLER), rounds=10)

    def test_more_bands_than_groups(self):
        with refused("has 3 bands, but a client's turn comes every 2 rounds"):
            certificate(descent(correlated(matrix_of("banded")), fp.cyclic_poisson(N, 2, 0.5)))
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
            with refused("in a loop, a branch or a jitted function"):
                certificate(round(wrap))

    def test_a_clients_own_noise(self):
        def round(key, state, cohort):
            total, metrics, _ = cohort.sum(silent, key, mechanism=self.USED, local=True)
            return fp.ModelState(total, state.round + 1), metrics

        with refused("local: True; leave it out"):
            certificate(fp.Algorithm(fp.start, round, self.SAMPLER))

    def test_a_round_alone(self):
        run_alone = fp.one_round(descent(self.USED, self.SAMPLER))
        state = fp.ModelState(start(), jnp.int32(0))
        with refused("this round stands alone; train with fp.simulate"):
            run_alone(jax.random.key(0), state, FEDERATION)

    def test_mechanisms_that_cannot_be(self):
        plain = fp.gaussian(1.0, 1.0)
        for wrong in (fp.laplace(1.0, 1.0), fp.unprotected(), fp.joint(plain, plain), self.USED):
            with refused("mechanism: .*give one with Gaussian noise"):
                fp.correlated(wrong, matrix_of("tree"))
        with refused("factorization: .*give such as fp.noise_matrices"):
            fp.correlated(plain, np.eye(3))
        with refused("start: it has no Gaussian noise that could change"):
            fp.dynamic(self.USED, rounds=9, noise_decay=2.0)

    def test_records_means(self):
        local = fp.LocalSteps(
            fp.per_example(squared), fp.poisson(3, 0.5), 2, sgd, mechanism=self.USED
        )
        with refused("mechanism: .*correlated over rounds; give fp.gaussian"):
            certificate(fp.dp_sgd(local, sampler=self.SAMPLER))


@pytest.mark.usefixtures("quick_to_compile")
class TestResuming:
    """A run goes on with the schedule and the noise that it began with, or not at all."""

    ROWS = matrix_of("banded_toeplitz").rows[0]
    OTHER_ROWS = replace(matrix_of("banded_toeplitz"), rows=((ROWS[0], ROWS[2], ROWS[1]),))

    @pytest.mark.parametrize(
        ("began", "goes_on", "what"),
        [
            (
                descent(fp.gaussian(CLIP, SIGMA), fp.shuffled_blocks(N, SIZE)),
                descent(fp.gaussian(CLIP, SIGMA), fp.fixed_order(N, SIZE)),
                "schedule",
            ),
            (
                descent(correlated(matrix_of("banded_toeplitz")), fp.fixed_order(N, SIZE)),
                descent(correlated(OTHER_ROWS), fp.fixed_order(N, SIZE)),
                "noise",
            ),
        ],
        ids=["schedule", "matrix"],
    )
    def test_with_another_of_the_same_certificate(self, tmp_path, began, goes_on, what):
        checkpoints = fp.Checkpoints(tmp_path, rounds=1)
        assert certificate(began).epsilon == certificate(goes_on).epsilon
        run(began, checkpoints=checkpoints)
        with refused(f"of another run: {what}"):
            run(goes_on, checkpoints=checkpoints)


class TestMadeByHand:
    """What is somebody's word is measured by `check_algorithm`."""

    SAMPLER = fp.fixed_order(N, SIZE)
    MATRIX = matrix_of("banded_inverse")
    FIELDS: ClassVar = vars(MATRIX)

    def check(self, mechanism):
        fp.check_algorithm(descent(mechanism, self.SAMPLER), start(), FEDERATION)

    def test_a_quiet_mechanism(self):
        quiet = fp.gaussian(CLIP, 1e-3)._replace(certified_multiplier=SIGMA)
        by_hand = fp.gaussian(CLIP, SIGMA)._replace(at=lambda bound, sigma: quiet.at(bound, 1e-3))
        with refused("declares a multiplier of 0.8, but noise of at most"):
            self.check(fp.correlated(by_hand, self.MATRIX))

    def test_a_clip_that_does_not(self):
        used = correlated(self.MATRIX)._replace(clip=fp.gaussian(10 * CLIP, 1.0).clip)
        with refused("declares a multiplier of 0.8, but noise of at most"):
            self.check(used)

    def test_a_quiet_matrix(self):
        class Quiet(type(self.MATRIX)):
            def _next(self, memory, z, t):
                noise, memory = super()._next(memory, z, t)
                return noise / 2, memory

        with refused("declares a sensitivity of 1.228, but 2.45"):
            self.check(correlated(Quiet(**self.FIELDS)))

    def test_fewer_bands_than_there_are(self):
        class Short(type(self.MATRIX)):
            bands = 2

        with refused("declares 2 bands, but"):
            self.check(correlated(Short(**self.FIELDS)))

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
        with refused("not among those that were certified"):
            run(descent(Own(*correlated(self.MATRIX)), self.SAMPLER))


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
            fp.correlated(inner, matrix_of("tree"), enclave=enclave) for enclave in (True, False)
        )
        known = [
            certificate(
                _of_parts(fp.joint(used, fp.gaussian(1.0, 2.0)), self.SAMPLER), view="server_secagg"
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
            descent(correlated(matrix_of("banded")), fp.cyclic_poisson(N, 3, 0.25, 4))
        )
        assert [text for text in found.assumptions if "whose turn it is may be known" in text]

    def test_rounds_for_a_target_end_with_the_matrix(self):
        loud, quiet = (
            descent(correlated(matrix_of("tree"), sigma=s), self.SAMPLER) for s in (50.0, 5.0)
        )
        target = {"epsilon": 1.5, "delta": 1e-5}
        assert fp.calibrate_rounds(quiet, start(), FEDERATION, **target) == 3
        with refused("9 rounds do not reach it"):
            fp.calibrate_rounds(loud, start(), FEDERATION, **target)

    def test_a_servers_view_is_of_bare_messages(self):
        """Whatever the noise."""
        state, key = fp.ModelState(start(), jnp.int32(0)), jax.random.key(3)
        bare, seen = (
            server_view(descent(used, self.SAMPLER), key, state, FEDERATION).update
            for used in (fp.gaussian(CLIP, 0), correlated(matrix_of("blt"), sigma=9.0))
        )
        assert_close(np.asarray(seen), np.asarray(bare), 1e-6)

    def test_canaries_refuse(self):
        with refused("correlated over rounds, which canaries cannot follow"):
            run(with_canaries(descent(correlated(matrix_of("blt")), self.SAMPLER), 3))


@pytest.mark.usefixtures("quick_to_compile")
class TestSparse:
    """Noise goes by the place among the coordinates that are kept: it is taken back where these stay the same."""

    SEEDS = 400
    MATRIX = matrix_of("banded_inverse")
    AT_EQUAL_EPSILON = MATRIX.sensitivity(ROUNDS, 3) / 3**0.5

    def test_of_places_that_stay(self):
        """By the law of F, false alarm 1e-6."""
        told = (self.MATRIX.noising(ROUNDS).sum(0) ** 2).sum() / ROUNDS * self.AT_EQUAL_EPSILON**2
        low, high = stats.f.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], *[2 * self.SEEDS] * 2)
        assert low < self.over_fresh(moves=False) / told < high
        assert told < 0.6

    def test_of_places_that_move(self):
        """Then it is larger than fresh noise: 1.77 times, of 400 seeds, whose deviation is below 0.1."""
        assert self.over_fresh(moves=True) > 1.2

    def over_fresh(self, moves):
        noisy = correlated(self.MATRIX, sigma=SIGMA * self.AT_EQUAL_EPSILON)
        return self.squares(noisy, moves) / self.squares(fp.gaussian(CLIP, SIGMA), moves)

    def squares(self, mechanism, moves):
        sparsifier = fp.select_rand_k(0.5, unbiased=False)
        if not moves:
            sparsifier = sparsifier._replace(select=lambda key, theta, *_: jnp.arange(2))
        algorithm = fp.fed_avg_sparse(
            lambda params, example: 0.0 * squared(params, example),
            sampler=fp.fixed_order(N, SIZE),
            optimizer=sgd,
            batches=fp.full_batch(),
            sparsifier=sparsifier,
            mechanism=mechanism,
        )
        ends = run(algorithm, seeds=range(self.SEEDS), every=ROUNDS).state.params
        moved = jax.tree.map(lambda end, begin: end - begin, ends, start())
        return sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(moved))


class TestAlgorithms:
    """Whatever sums clients by a mechanism, sums them by a correlated one."""

    TAKES_ONE: ClassVar = [
        name
        for name, make in ALGORITHMS.items()
        if "mechanism" in signature(make.func).parameters and name != "ldp_fed_avg"
    ]

    @pytest.mark.parametrize("name", TAKES_ONE)
    def test_is_certified_and_keeps_the_shapes_of_its_memory(self, name):
        matrix = matrix_of("banded_inverse")
        algorithm = ALGORITHMS[name](
            sampler=fp.fixed_order(CLIENTS, 2), mechanism=fp.correlated(NOISY, matrix)
        )
        traced = fp.trace_round(algorithm, PARAMS, ALL_SMALL)
        found = traced.certify(4, 1e-5)
        assert (found.basis, found.epsilon < np.inf) == ("constructed", True)
        key, t = jax.random.key(0), jnp.int32(0)
        carried = Carried(algorithm.init(PARAMS, ALL_SMALL), traced.first_memory(4))
        assert jax.tree.leaves(carried.memory)
        after, _ = jax.eval_shape(round_in_run(algorithm), key, key, carried, ALL_SMALL, t)
        assert jax.tree.map(_kind, after.memory) == jax.tree.map(_kind, carried.memory)

    @pytest.mark.parametrize(
        "name", ["dp_fed_avg", "fed_smp rand_k", "dp_fed_avg_wav", "dp_scaffold"]
    )
    def test_papers_claim_nothing_of_schedules(self, name):
        for sampler in (fp.shuffled_blocks(CLIENTS, 2), fp.cyclic_poisson(CLIENTS, 3, 0.5)):
            assert ALGORITHMS[name](sampler=sampler).claim(2, 1e-5) is None
        assert ALGORITHMS[name]().claim(2, 1e-5) is not None

    @pytest.mark.parametrize(
        "sampler", [fp.cyclic_poisson(CLIENTS, 3, 0.5), fp.fixed_order(CLIENTS, 2, 2)]
    )
    def test_a_protocol_has_no_empty_slots(self, sampler):
        with refused("sampler: cohorts vary in size or have empty slots"):
            ALGORITHMS["msp_fl"](sampler=sampler)


def _kind(leaf):
    return leaf.dtype, leaf.shape


class TestFullCohorts:
    @pytest.mark.parametrize(
        ("sampler", "full"),
        [
            (fp.fixed_order(12, 4), True),
            (fp.fixed_order(13, 4), False),
            (fp.fixed_order(12, 4, participations=2), False),
            (fp.cyclic_poisson(12, 3, 0.5), False),
            (fp.poisson(12, 0.5), False),
            (fp.fixed_size(12, 4), True),
        ],
    )
    def test_are_those_without_an_empty_slot(self, sampler, full):
        assert has_full_cohorts(sampler) == full
