"""Clients who check in at random and rest: their bounds, their draws, and what the engine remembers of them."""

from itertools import chain, combinations, pairwise
from typing import NamedTuple

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
    certificate,
    cohorts,
    correlated,
    descent,
    drawing,
    gradient_of,
    matrix_of,
    run,
)
from scipy import stats
from small import FALSE_ALARM, assert_close, assert_identical, one_round, refused, start

import fedpriv as fp
from fedpriv.attacks.server_views import server_view
from fedpriv.privacy import MinimumSeparation
from fedpriv.rounds.noise_stream import schedule_key
from fedpriv.rounds.scheduled_samplers import has_full_cohorts

pytestmark = pytest.mark.usefixtures("quick_to_compile")

OFTEN = fp.random_availability(N, SIZE, 3, 0.7)
SELDOM = fp.random_availability(N, 3, 2, 0.6, participations=2)
ROUNDS = 9


class TestBounds:
    """They hold in every run, whoever is available."""

    @pytest.mark.parametrize(
        ("n", "size", "b", "p", "k"),
        [(20, 4, 3, 0.5, None), (20, 4, 5, 1.0, 7), (20, 1, 20, 0.1, 2), (50, 10, 1, 0.3, 40)],
    )
    def test_rests_and_participations(self, n, size, b, p, k):
        """In each of five runs."""
        rounds = 400
        sampler = fp.random_availability(n, size, b, p, k)
        assert sampler.accounting == MinimumSeparation(n, size, b, k)
        taking_part = drawing(sampler, rounds)
        for seed in range(5):
            drawn = taking_part(jax.random.key(seed))
            assert max(map(len, drawn)) <= size
            for client in range(n):
                turns = [t for t, cohort in enumerate(drawn) if client in cohort]
                assert all(later - earlier >= b for earlier, later in pairwise(turns))
                assert len(turns) <= sampler.accounting.rounds_of_a_unit(rounds)

    def test_are_reached(self):
        """So that a bound one lower would fail."""
        drawn = cohorts(fp.random_availability(20, 4, 3, 0.9, 7), 200)
        turns = [[t for t, cohort in enumerate(drawn) if i in cohort] for i in range(20)]
        assert min(b - a for each in turns for a, b in pairwise(each)) == 3
        assert {len(each) for each in turns} == {7}


class TestDraws:
    @pytest.mark.parametrize("k", [None, 3])
    def test_as_numpy_draws(self, k):
        """From the same random bits, client by client."""
        n, size, b, p, rounds = 30, 5, 4, 0.4, 60
        key = jax.random.key(3)
        last, times, told = {}, dict.fromkeys(range(n), 0), []
        for t in range(rounds):
            bits = np.asarray(jax.random.bits(jax.random.fold_in(key, t), (2, n), jnp.uint32))
            may = [
                i
                for i in range(n)
                if bits[0, i] / 2**32 < p and t >= last.get(i, -b) + b and times[i] < (k or rounds)
            ]
            told.append(sorted(may, key=lambda i: bits[1, i])[:size])
            for i in told[-1]:
                last[i], times[i] = t, times[i] + 1
        assert cohorts(fp.random_availability(n, size, b, p, k), rounds, seed=3) == told

    def test_every_subset_of_those_who_may_is_equally_likely(self):
        """Of the five of seven who have rested, three; by the chi-square law, false alarm 1e-6."""
        sampler, draws = fp.random_availability(7, 3, 2, 1.0), 20_000
        memory = sampler.init()
        memory = memory._replace(last=memory.last.at[jnp.array([1, 4])].set(9))
        keys = jax.random.split(jax.random.key(0), draws)
        drawn = jax.jit(jax.vmap(lambda key: sampler.draw(key, jnp.int32(10), memory)[0]))(keys)
        assert np.asarray(drawn.mask).all()
        found = [tuple(sorted(ids)) for ids in np.asarray(drawn.ids).tolist()]
        subsets = [*combinations([0, 2, 3, 5, 6], 3)]
        counts = np.array([found.count(subset) for subset in subsets])
        assert counts.sum() == draws
        assert stats.chisquare(counts).pvalue > FALSE_ALARM

    def test_each_is_available_on_its_own(self):
        """Where there is room for all: the sizes are binomial, and so is how often each is there; false alarm 1e-6."""
        n, p, rounds = 8, 0.3, 20_000
        drawn = cohorts(fp.random_availability(n, n, 1, p), rounds)
        sizes = np.bincount([len(cohort) for cohort in drawn], minlength=n + 1)
        law = rounds * stats.binom.pmf(np.arange(n + 1), n, p)
        many = law > 5
        pooled = [np.append(each[many], each[~many].sum()) for each in (sizes, law)]
        assert stats.chisquare(*pooled).pvalue > FALSE_ALARM / 2
        joined = np.bincount([*chain(*drawn)], minlength=n)
        tail = FALSE_ALARM / 4 / n
        low, high = stats.binom.ppf([tail, 1 - tail], rounds, p)
        assert low <= joined.min() <= joined.max() <= high

    def test_everyone_available_and_just_enough_is_a_fixed_order(self):
        """Of cohorts that are full, and come again in the order of the first block."""
        sampler = fp.random_availability(12, 4, 3, 1.0)
        drawn = [*map(sorted, cohorts(sampler, 9))]
        assert sorted(chain(*drawn[:3])) == list(range(12))
        assert drawn[:3] * 3 == drawn
        assert sampler.expected_size == 4

    def test_everyone_available_and_enough_is_always_full(self):
        assert {len(cohort) for cohort in cohorts(fp.random_availability(14, 4, 3, 1.0), 60)} == {4}

    def test_one_client(self):
        assert cohorts(fp.random_availability(1, 1, 1, 1.0), 3) == [[0], [0], [0]]
        assert cohorts(fp.random_availability(1, 1, 1, 1.0, 2), 3) == [[0], [0], []]

    def test_hardly_anyone(self):
        assert cohorts(fp.random_availability(5, 2, 1, 1e-12), 20) == [[]] * 20

    def test_no_promise_of_full_cohorts(self):
        assert not has_full_cohorts(fp.random_availability(12, 4, 3, 1.0))

    def test_what_is_not_possible(self):
        with refused("separation: 4; cohorts of 4 from 12 clients are never full; give at most 3"):
            fp.random_availability(12, 4, 4, 0.5)
        with refused("give at most the population, 12"):
            fp.random_availability(12, 13, 1, 0.5)
        with refused("availability: 0"):
            fp.random_availability(12, 4, 3, 0)
        with refused("participations: 0"):
            fp.random_availability(12, 4, 3, 0.5, 0)
        with refused("sampler: an object of type ScheduledSampler; give one of fp.everyone"):
            fp.dropping(OFTEN, 0.1)


class TestCertificates:
    @pytest.mark.parametrize("k", [None, 2])
    @pytest.mark.parametrize("mechanism", [correlated(matrix_of("blt")), fp.gaussian(CLIP, SIGMA)])
    def test_are_those_of_shuffled_blocks(self, mechanism, k):
        """By theorem: both count any participations that are b apart, at most k."""
        samplers = fp.shuffled_blocks(N, SIZE, k), fp.random_availability(N, SIZE, 3, 0.4, k)
        by_turns, at_random = (certificate(descent(mechanism, each)) for each in samplers)
        assert by_turns.epsilon == at_random.epsilon
        assert at_random.basis == "constructed"
        assert str(by_turns) == str(at_random)


class Recorded(NamedTuple):
    """With a table of who took part when, which the clients keep."""

    params: dict
    round: jax.Array
    table: jax.Array


def recording(sampler, mechanism=None):
    """Descent whose clients each write down the rounds in which they take part."""
    mechanism = mechanism or correlated(matrix_of("blt"))

    def init(params, federation):
        return Recorded(params, jnp.int32(0), jnp.zeros((N, ROUNDS), bool))

    def round(key, state, cohort):
        def client(key, shard, mine):
            message = gradient_of(state.params, key, shard)
            return fp.Sent(message, own=mine.at[shard.round].set(True))

        total, metrics, table = cohort.sum(client, key, mechanism=mechanism, own=state.table)
        params = jax.tree.map(lambda p, s: p - s / cohort.expected_size, state.params, total)
        return Recorded(params, state.round + 1, table), metrics

    return fp.Algorithm(init, round, sampler)


def drawn_for(sampler, seeds):
    """bool[seeds, N, ROUNDS], by the draws alone."""
    tables = np.zeros((len(seeds), N, ROUNDS), bool)
    for table, seed in zip(tables, seeds, strict=True):
        for t, cohort in enumerate(
            cohorts(sampler, ROUNDS, key=schedule_key(jax.random.key(seed), 0))
        ):
            table[cohort, t] = True
    return tables


STREAMED = fp.StreamedFederation.from_arrays(
    jax.tree.map(np.asarray, FEDERATION.examples), list(np.asarray(FEDERATION.rows))
)
SEEDS = (3, 8)


class TestMemory:
    """Cohorts of every run are those of the draws alone, to the bit."""

    @pytest.mark.parametrize("federation", [FEDERATION, STREAMED], ids=["in_memory", "streamed"])
    @pytest.mark.parametrize("every", [1, 4])
    def test_in_chunks_of_any_length(self, every, federation):
        ended = run(recording(SELDOM), seeds=SEEDS, every=every, federation=federation).state
        assert np.array_equal(ended.table, drawn_for(SELDOM, SEEDS))

    def test_streamed_cohorts_have_their_own_records(self):
        streamed, whole = (
            run(recording(SELDOM), seeds=SEEDS, every=2, federation=each).state.params
            for each in (STREAMED, FEDERATION)
        )
        jax.tree.map(assert_close, streamed, whole)

    def test_one_seed_is_that_of_several(self):
        ended = run(recording(SELDOM), seeds=(8,)).state
        assert np.array_equal(ended.table, drawn_for(SELDOM, SEEDS)[1:])

    def test_on_two_devices(self):
        from fedpriv.devices.layout import default

        ended = run(recording(SELDOM), seeds=SEEDS, strategy=default()).state
        assert np.array_equal(ended.table, drawn_for(SELDOM, SEEDS))

    @pytest.mark.parametrize("federation", [FEDERATION, STREAMED], ids=["in_memory", "streamed"])
    def test_stopped_and_resumed(self, federation, tmp_path):
        options = {"seeds": SEEDS, "every": 2, "federation": federation}
        algorithm, checkpoints = recording(SELDOM), fp.Checkpoints(tmp_path, rounds=1)
        whole = run(algorithm, **options)

        def kill(e):
            if e.round == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(algorithm, checkpoints=checkpoints, on_evaluation=kill, **options)
        resumed = run(algorithm, checkpoints=checkpoints, **options)
        assert_identical(whole.state, resumed.state)

    def test_after_an_opening(self):
        """Which has no part in the memory: all have rested in the first round after it."""
        opening = fp.Opening(fp.everyone(N), 2, SELDOM)
        algorithm = recording(opening, fp.gaussian(CLIP, SIGMA))
        tables = [
            run(algorithm, seeds=SEEDS, every=2, federation=each).state.table
            for each in (FEDERATION, STREAMED)
        ]
        assert np.array_equal(*tables)
        assert np.asarray(tables[0])[:, :, :2].all()
        for seed, table in zip(SEEDS, np.asarray(tables[0]), strict=True):
            key = schedule_key(jax.random.key(seed), 1)
            memory, draw = SELDOM.init(), jax.jit(SELDOM.draw)
            for t in range(2, ROUNDS):
                drawn, memory = draw(key, jnp.int32(t), memory)
                ids = np.asarray(drawn.ids)[np.asarray(drawn.mask)]
                assert sorted(ids) == np.flatnonzero(table[:, t]).tolist()

    @pytest.mark.parametrize("federation", [FEDERATION, STREAMED], ids=["in_memory", "streamed"])
    def test_blocks_of_an_opening_and_after_it_share_no_draw(self, federation):
        """As certificates count on it, whatever their lengths; false alarm 1e-6 by Fisher's exact test."""
        opening = fp.Opening(fp.random_allocation(N, 2, N), 2, fp.random_allocation(N, 4, N))
        algorithm = recording(opening, fp.gaussian(CLIP, SIGMA))
        seeds = range(8)
        ended = run(algorithm, seeds=seeds, every=3, federation=federation)
        table = np.asarray(ended.state.table)[:, :, :4].astype(bool)
        assert (table[:, :, :2].sum(2) == 1).all()
        later = table[:, :, 2:].any(2)
        early, late = table[later][:, 0], table[later][:, 2]
        counts = np.array([[np.sum((early == a) & (late == b)) for a in (0, 1)] for b in (0, 1)])
        assert counts.sum() > 30
        assert stats.fisher_exact(counts).pvalue > 1e-6

    def test_no_state_holds_it(self):
        assert run(descent(fp.gaussian(CLIP, SIGMA), SELDOM)).state._fields == ("params", "round")

    def test_a_round_by_itself_begins_anew(self):
        algorithm, key = recording(SELDOM, fp.gaussian(CLIP, SIGMA)), jax.random.key(0)
        state = algorithm.init(start(), FEDERATION)
        _, metrics = one_round(algorithm)(key, state._replace(round=jnp.int32(5)), FEDERATION)
        drawn, _ = jax.jit(SELDOM.draw)(schedule_key(key, 0), jnp.int32(5), SELDOM.init())
        assert metrics["cohort_size"] == drawn.mask.sum()
        view = jax.jit(lambda: server_view(algorithm, key, state, FEDERATION))()
        assert view.update.shape == (SELDOM.slots, 4)


@pytest.mark.parametrize(
    "goes_on",
    [
        fp.random_availability(N, SIZE, 3, 0.3),
        fp.random_availability(N, SIZE, 2, 0.7),
        fp.shuffled_blocks(N, SIZE),
    ],
    ids=["availability", "separation", "shuffled"],
)
def test_a_run_does_not_go_on_with_other_cohorts(goes_on, tmp_path):
    checkpoints = fp.Checkpoints(tmp_path, rounds=1)
    run(descent(fp.gaussian(CLIP, SIGMA), OFTEN), checkpoints=checkpoints)
    with refused("of another run: .*schedule"):
        run(descent(fp.gaussian(CLIP, SIGMA), goes_on), checkpoints=checkpoints)


def every_other(key, t, memory):
    """A sampler by hand: the half of the clients that did not take part last time."""
    ids = 2 * jnp.arange(N // 2, dtype=jnp.int32) + memory
    return fp.types.Draw(ids, jnp.ones(N // 2, bool)), 1 - memory


BY_HAND = fp.types.ScheduledSampler(
    every_other, N // 2, N / 2, MinimumSeparation(N, N // 2, 2), lambda: jnp.int32(0)
)


class TestByHand:
    def test_with_a_memory_of_its_own(self):
        algorithm = recording(BY_HAND)
        fp.check_algorithm(algorithm, start(), FEDERATION)
        assert certificate(algorithm).basis == "declared"
        for federation in (FEDERATION, STREAMED):
            table = np.asarray(run(algorithm, every=4, federation=federation).state.table[0])
            for t, there in enumerate(table.T):
                assert np.flatnonzero(there).tolist() == [*range(t % 2, N, 2)]

    @pytest.mark.parametrize(
        "told", [MinimumSeparation(N, SIZE, 3, 25), MinimumSeparation(N, SIZE, 2, 24)]
    )
    def test_that_keeps_less_than_it_says(self, told):
        """Measured over as many rounds as it takes."""
        keeps = fp.random_availability(N, SIZE, 2, 1.0, 25)
        fp.check_algorithm(recording(keeps._replace(seal=())), start(), FEDERATION)
        algorithm = recording(keeps._replace(accounting=told))
        with refused("a client takes part sooner, or more often"):
            fp.check_algorithm(algorithm, start(), FEDERATION)

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"draw": lambda key, t: None}, r"draw: it takes \(key, t\).*; give a function of"),
            (
                {"draw": lambda key, t, memory: every_other(key, t, memory)[0]},
                r"draw: .* came back.*; return \(fp.types.Draw\(ids, mask\), memory\)",
            ),
            (
                {"draw": lambda key, t, memory: (every_other(key, t, memory)[0], t + 0.5)},
                r"draw: memory: float32\[\] came back.*; return it with the structure",
            ),
            (
                {"draw": lambda key, t, memory: (every_other(key, t, memory)[0], (memory,))},
                "draw: memory: 1 values came back.*; return it with the structure",
            ),
            (
                {
                    "draw": lambda key, t, memory: (
                        fp.types.Draw(jnp.zeros(2), jnp.zeros(2)),
                        memory,
                    )
                },
                "draw: .* came back.*, each of 6 slots",
            ),
            ({"init": lambda key: jnp.int32(0)}, r"init: it takes \(key\).*; give a function of"),
            ({"init": lambda: "none"}, "init: memory: 'none'; give arrays"),
        ],
        ids=["arguments", "no pair", "type", "structure", "slots", "init", "text"],
    )
    def test_what_is_no_sampler(self, changed, said):
        with refused(said):
            run(descent(fp.gaussian(CLIP, SIGMA), BY_HAND._replace(**changed)))

    def test_python_numbers_will_do(self):
        """And are arrays from the first round on."""
        sampler = BY_HAND._replace(init=lambda: 0)
        one, other = (
            run(recording(each), every=4, seeds=SEEDS).state for each in (sampler, BY_HAND)
        )
        assert_identical(one, other)
