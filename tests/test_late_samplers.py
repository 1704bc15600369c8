"""How late answers are, and who is free to give one: laws, draws, and what is refused."""

from collections import Counter
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from drawn_rounds import draws_of
from scipy import stats
from small import FALSE_ALARM

import fedpriv as fp
from fedpriv.core.provenance import constructed
from fedpriv.rounds.late_samplers import late

pytestmark = pytest.mark.usefixtures("quick_to_compile")

N, K = 40, 4
UNEVEN = fp.delays.by_class(
    ["phone"] * 10 + ["plugged in"] * 30,
    {"phone": fp.delays.geometric(3.0, 6), "plugged in": fp.delays.constant(1)},
)
LAWS = {
    "constant": fp.delays.constant(3),
    "geometric": fp.delays.geometric(1.5, 5),
    "by class": UNEVEN,
}


law_of = fp.delays.constant


def answering(sampler, rounds):
    """seed -> (ids, delays, weights or None) of each buffer, by the draws alone; compiled once for all seeds."""
    draws = draws_of(sampler, rounds)

    def of_seed(seed):
        drawn = draws(jax.random.key(seed))
        assert np.asarray(drawn.mask).all()
        weight = drawn.answer.weight
        weights = [None] * rounds if weight is None else np.asarray(weight)
        return list(
            zip(np.asarray(drawn.ids), np.asarray(drawn.answer.delay), weights, strict=True)
        )

    return of_seed


def answers(sampler, rounds):
    """Of one run."""
    return answering(sampler, rounds)(0)


class TestLaws:
    def test_a_geometric_law_is_cut(self):
        law = fp.delays.geometric(1.5, 4)
        whole = stats.geom(1 / 2.5, loc=-1)
        np.testing.assert_allclose(law.chances[0], whole.pmf(range(5)) / whole.cdf(4), rtol=1e-12)
        assert (law.possible, law.most_late) == ({"0": [0, 1, 2, 3, 4]}, 4)

    @pytest.mark.slow
    def test_bounds_are_of_what_is_drawn(self):
        """Chances below 2^-32 are none."""
        law = fp.delays.DelayLaw([[1e-12, 0.5, 0.5 - 1e-12], [1.0]], [0, 0])
        assert law.possible == {"0": [1, 2]}
        drawn = law.draw(jax.random.key(0), jnp.zeros(10_000, jnp.int32))
        assert {*np.asarray(drawn).tolist()} == {1, 2}

    @tiers.every("name", ["by class", "constant", "geometric"])
    def test_delays_are_drawn_by_them(self, name):
        """By the chi-square law, for each class; a false alarm has probability 1e-6."""
        law, draws = LAWS[name], 4000
        ids = jnp.tile(jnp.arange(N, dtype=jnp.int32), draws)
        drawn = np.asarray(law.draw(jax.random.key(1), ids)).reshape(draws, N)
        groups = [range(N)] if law.classes is None else [range(10), range(10, N)]
        for chances, clients in zip(law.chances, groups, strict=True):
            found = np.bincount(drawn[:, clients].ravel(), minlength=len(chances))
            told = np.array(chances) * draws * len(clients)
            assert len(found) == len(told)
            assert not found[told == 0].any()
            if (told > 0).sum() > 1:
                law_of = told[told > 0]
                assert stats.chisquare(found[told > 0], law_of).pvalue > FALSE_ALARM / 2


class TestFreeClients:
    @tiers.every("of", [("by class", 3), ("constant", 1), ("geometric", 3)])
    def test_a_client_has_one_answer_out(self, of):
        """It was given its model after its last answer was in; the separation is kept. In each of two runs."""
        (name, separation), rounds = of, 300
        law = LAWS[name]
        sampler, largest = late(fp.FreeClients(N, K, separation), law)
        apart = {c: max(min(delays) + 1, separation) for c, delays in law.possible.items()}
        told = {c: sampler.accounting.of_group(c)[0].turns.apart for c in apart}
        assert (told, largest) == (apart, 1.0)
        assert sampler.accounting.group_names == (tuple(apart) if len(apart) > 1 else ())
        of_seed = answering(sampler, rounds)
        for seed in range(2):
            turns = {i: [] for i in range(N)}
            for t, (ids, delays, _) in enumerate(of_seed(seed)):
                assert len({*ids.tolist()}) == K
                for i, d in zip(ids.tolist(), delays.tolist(), strict=True):
                    turns[i].append((t, d))
            for i, each in turns.items():
                own = law.labels[i] if law.labels else "0"
                assert all(d in law.possible[own] for _, d in each)
                assert all(t - d > before for (before, _), (t, d) in pairwise(each))
                assert all(t - before >= apart[own] for (before, _), (t, _) in pairwise(each))

    @pytest.mark.slow
    def test_separations_are_reached(self):
        """By someone: a bound one longer would fail."""
        sampler, _ = late(fp.FreeClients(12, 4), fp.delays.constant(2))
        cohorts = [{*ids.tolist()} for ids, *_ in answers(sampler, 30)]
        assert all(a == b for a, b in zip(cohorts, cohorts[3:], strict=False))

    @pytest.mark.slow
    def test_answers_are_as_late_as_the_law_says(self):
        """Though the slow come later: delays of a client's answers are independent; chi-square, false alarm 1e-6."""
        law = LAWS["geometric"]
        sampler, _ = late(fp.FreeClients(N, K), law)
        drawn = [delays for _, delays, _ in answers(sampler, 1000)]
        found = np.bincount(np.concatenate(drawn), minlength=6)
        told = np.array(law.chances[0]) * found.sum()
        assert stats.chisquare(found, told).pvalue > FALSE_ALARM

    @pytest.mark.slow
    def test_the_free_are_drawn_uniformly(self):
        """Four of whom two are out: pairs of the others; chi-square, false alarm 1e-6."""
        sampler, _ = late(fp.FreeClients(6, 2), fp.delays.constant(1))
        memory = sampler.init()
        memory = memory._replace(free=memory.free.at[jnp.array([1, 4])].set(9))
        keys = jax.random.split(jax.random.key(0), 12_000)
        drawn = jax.jit(jax.vmap(lambda key: sampler.draw(key, jnp.int32(8), memory)[0]))(keys)
        found = Counter(tuple(sorted(ids)) for ids in np.asarray(drawn.ids).tolist())
        assert {i for pair in found for i in pair} == {0, 2, 3, 5}
        assert stats.chisquare([*found.values()]).pvalue > FALSE_ALARM

    @pytest.mark.slow
    def test_buffers_are_full(self):
        """Of 6 slow clients and 14 fast ones at most 6 + 4 are out."""
        law = fp.delays.by_class(
            [0] * 6 + [1] * 14, {0: fp.delays.constant(5), 1: fp.delays.constant(1)}
        )
        sampler, _ = late(fp.FreeClients(20, 4), law)
        assert len(answers(sampler, 200)) == 200


class TestBeside:
    """Delays beside the draws of another sampler."""

    @tiers.every("of", [("by class", "poisson"), ("constant", "fixed"), ("geometric", "poisson")])
    def test_who_answers_is_drawn_as_without_them(self, of):
        name, drawn = of
        weights = [1 / (1 + d) for d in range(LAWS[name].most_late + 1)]
        who = fp.poisson(N, 0.1) if drawn == "poisson" else fp.fixed_size(N, K)
        sampler, largest = late(who, LAWS[name], lambda d: 1 / (1 + d))
        one, other = jax.jit(lambda k: (sampler.draw(k), who.draw(k)))(jax.random.key(3))
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.mask, other.mask)
        assert sampler.accounting is who.accounting
        assert constructed(sampler)
        told = np.array(weights)[one.answer.delay] / largest
        given = 1.0 if one.answer.weight is None else one.answer.weight
        np.testing.assert_allclose(given, told, rtol=1e-6)

    @pytest.mark.slow
    def test_delays_are_independent_of_who_answers_and_of_other_steps(self):
        """Chi-square on the table of (member or not, delay), and of delays one step after another; 1e-6 together."""
        who = fp.shuffled_blocks(20, 5)
        sampler, _ = late(who, fp.delays.geometric(1.0, 2))
        drawn = answers(sampler, 2000)
        first, second = (np.array([d[place] for _, d, _ in drawn]) for place in (0, 1))
        for one, other in ((first, second), (first[:-1], first[1:])):
            table = np.zeros((3, 3))
            np.add.at(table, (one, other), 1)
            assert stats.chi2_contingency(table).pvalue > FALSE_ALARM / 2

    def test_turns_stay(self):
        who = fp.shuffled_blocks(20, 5)
        sampler, _ = late(who, fp.delays.constant(2))
        both = jax.jit(lambda *given: [each.draw(*given)[0] for each in (sampler, who)])
        for t in range(6):
            one, other = both(jax.random.key(1), jnp.int32(t), ())
            np.testing.assert_array_equal(one.ids, other.ids)
        assert sampler.accounting is who.accounting

    def test_what_is_made_by_hand_stays_so(self):
        sampler, _ = late(fp.fixed_size(N, K)._replace(seal=()), fp.delays.constant(1))
        assert not constructed(sampler)


class TestStaleness:
    @pytest.mark.slow
    def test_weights_are_over_the_largest_that_is_possible(self):
        sampler, largest = late(
            fp.fixed_size(N, K), fp.delays.DelayLaw([[0.0, 0.5, 0.5]]), [9.0, 4.0, 1.0]
        )
        drawn = jax.jit(sampler.draw)(jax.random.key(0))
        assert largest == 4.0
        told = np.where(np.asarray(drawn.answer.delay) == 1, 1.0, 0.25)
        np.testing.assert_array_equal(drawn.answer.weight, told)

    def test_all_alike_are_none(self):
        sampler, largest = late(
            fp.fixed_size(N, K), fp.delays.constant(3), lambda d: (1 + d) ** -0.5
        )
        answer = jax.eval_shape(sampler.draw, jax.random.key(0)).answer
        assert (answer.weight, largest) == (None, 0.5)
