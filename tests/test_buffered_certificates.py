"""Certificates of asynchronous rounds, against pairs that are computed on their own, and audits."""

import math
from typing import ClassVar

import dp_accounting as dp
import jax
import numpy as np
import pytest
import tiers
from buffered_runs import DELTA, GAUSSIAN, LATE, TRAINING, K, fed_buff, old
from correlated_runs import (
    FEDERATION,
    ROUNDS,
    SIGMA,
    N,
    by_all_patterns,
    correlated,
    gaussian_epsilon,
    matrix_of,
    run,
)
from scipy import integrate, optimize, stats
from small import refused, squared, start, table_of, traced, vector

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.privacy import certify_seen


def certified(algorithm, rounds=ROUNDS, **options):
    return fp.trace_round(algorithm, start(), FEDERATION).certify(rounds, DELTA, **options)


def patterns(delays, rounds):
    """Every way in which a client may answer: [(step, delay), ..], one answer out at a time."""

    def from_step(free):
        yield []
        for d in delays:
            for t in range(free + (d if free else 0), rounds):
                for later in from_step(t + 1):
                    yield [(t, d), *later]

    yield from from_step(0)


class TestKnownTurns:
    """Who answers when is known: the unit's contributions become zero."""

    @pytest.mark.parametrize(
        ("law", "rounds"), [(fp.delays.constant(2), 8), (fp.delays.DelayLaw([[0, 0.5, 0.5]]), 7)]
    )
    @pytest.mark.parametrize("view", ["third_party", "server_secagg"])
    def test_of_all_patterns_the_worst(self, law, rounds, view):
        """The pair of a pattern is Gaussian noise moved by each answer's weight, over the largest."""
        (delays,) = law.possible.values()
        largest = max(map(old, delays))
        moved = [
            math.sqrt(sum((old(d) / largest) ** 2 for _, d in pattern))
            for pattern in patterns(delays, rounds)
        ]
        told = gaussian_epsilon(max(moved) / SIGMA, DELTA)
        algorithm = fed_buff(delay=law, staleness=old)
        assert certified(algorithm, rounds, view=view).epsilon == pytest.approx(told, rel=1e-3)

    def test_towards_a_server_that_sees_each_answer(self):
        """A client's own share, of K, is its noise; it answers four times in nine steps, at most."""
        told = gaussian_epsilon(math.sqrt(3 * K) / SIGMA, DELTA)
        algorithm = fed_buff(delay=fp.delays.constant(2))
        assert certified(algorithm, view="server").epsilon == pytest.approx(told, rel=1e-3)

    @pytest.mark.parametrize("mechanism", [GAUSSIAN, correlated(matrix_of("blt"))])
    def test_of_each_speed_class(self, mechanism):
        """Its own patterns; in all, those of the fastest."""
        laws = {"slow": fp.delays.constant(3), "fast": fp.delays.constant(1)}
        law = fp.delays.by_class(["slow"] * 3 + ["fast"] * (N - 3), laws)
        algorithm = fed_buff(delay=law, mechanism=mechanism)
        found = certified(algorithm)
        strategy = np.eye(ROUNDS)
        if mechanism is not GAUSSIAN:
            strategy = mechanism.correlation.factorization.strategy(ROUNDS)
        for name, apart in (("slow", 4), ("fast", 2)):
            told = gaussian_epsilon(by_all_patterns(strategy, apart) / SIGMA, DELTA)
            assert found.of_groups[name].epsilon == pytest.approx(told, rel=1e-3)
        assert found.epsilon == found.of_groups["fast"].epsilon
        assert found.basis == "constructed"

    def test_correlated_noise(self):
        """By C on every set of steps that is so far apart."""
        noise = correlated(matrix_of("blt"))
        algorithm = fed_buff(delay=fp.delays.constant(1), mechanism=noise, staleness=old)
        strategy = noise.correlation.factorization.strategy(ROUNDS)
        moved = by_all_patterns(strategy, 2) / SIGMA
        told = gaussian_epsilon(moved, DELTA)
        assert certified(algorithm).epsilon == pytest.approx(told, rel=1e-3)

    @pytest.mark.slow
    @pytest.mark.usefixtures("quick_to_compile")
    def test_correlated_noise_trains(self):
        algorithm = fed_buff(delay=fp.delays.constant(1), mechanism=correlated(matrix_of("blt")))
        fp.check_algorithm(algorithm, start(), FEDERATION, rounds=ROUNDS)
        assert np.isfinite(vector(jax.tree.map(lambda x: x[0], run(algorithm).state.params))).all()


class TestSecretAnswers:
    """Who answers is drawn afresh in every step: certified as without delays, however many answers a client has out."""

    WHO: ClassVar = {
        "poisson": fp.poisson(N, 0.25),
        "fixed size": fp.fixed_size(N, K),
        "allocation": fp.random_allocation(N, 4),
        "everyone": fp.everyone(N),
        "groups": fp.grouped([*"aabb"] * 3, {"a": fp.poisson(6, 0.25), "b": fp.poisson(6, 0.5)}),
    }

    @tiers.every("name", WHO, kind=lambda who: bool(who.accounting.group_names))
    def test_as_the_sampler(self, name):
        who = self.WHO[name]
        at_once = fp.fed_avg(squared, sampler=who, mechanism=GAUSSIAN, **TRAINING)
        rounds = [
            fp.trace_round(made, start(), FEDERATION)
            for made in (fed_buff(who, staleness=old), at_once)
        ]
        for view in fp.privacy.VIEWS:
            late, told = (traced.certify(ROUNDS, DELTA, view=view) for traced in rounds)
            assert late.epsilon == told.epsilon
            assert any("how late an answer comes" in text for text in late.assumptions)
            of_groups = [{g: c.epsilon for g, c in each.of_groups.items()} for each in (late, told)]
            assert of_groups[0] == of_groups[1]
            assert late.basis == "constructed"

    def test_poisson_as_dp_accounting_composes_it(self):
        event = dp.PoissonSampledDpEvent(0.25, dp.GaussianDpEvent(SIGMA))
        accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-3)
        accountant.compose(event, 6)
        algorithm = fed_buff(fp.poisson(N, 0.25, N))
        assert certified(algorithm, 6).epsilon == pytest.approx(
            accountant.get_epsilon(DELTA), rel=2e-3
        )

    def test_explicit_neighbours_of_one_step(self):
        """Delays known or not: the pair in which the unit moves the sum by its weight, at the rate."""
        rate, law = 0.25, fp.delays.constant(1)
        told = _epsilon_of_mixture(rate, {1.0: 1.0})
        algorithm = fed_buff(fp.poisson(N, rate, N), law, staleness=old)
        assert certified(algorithm, 1).epsilon == pytest.approx(told, rel=1e-3)

    @pytest.mark.slow
    def test_unequal_weights_cost_no_more(self):
        """Of explicit neighbours whose delay is hidden, or shown: below the certificate, which counts the largest."""
        rate, weights = 0.25, {old(d): p for d, p in enumerate(LATE.chances[0])}
        found = certified(fed_buff(fp.poisson(N, rate, N), staleness=old), 1).epsilon
        hidden = _epsilon_of_mixture(rate, weights)
        assert 0.8 * found < hidden < found


def _epsilon_of_mixture(rate, weights):
    """Of one step, by integration: the sum is moved by a weight, of such a law, at the rate, or not."""

    def with_unit(x):
        parts = sum(p * stats.norm.pdf(x, w, SIGMA) for w, p in weights.items())
        return (1 - rate) * without(x) + rate * parts

    def without(x):
        return stats.norm.pdf(x, 0, SIGMA)

    x = np.linspace(-12 * SIGMA, 1 + 12 * SIGMA, 40_001)

    def excess(epsilon):
        p, q = with_unit(x), without(x)
        both = [np.maximum(a - math.exp(epsilon) * b, 0) for a, b in ((p, q), (q, p))]
        return max(integrate.trapezoid(each, x) for each in both) - DELTA

    return optimize.brentq(excess, 0, 50)


AUDITED = {
    "free": (fed_buff(delay=fp.delays.constant(2), staleness=old), "third_party"),
    "known": (fed_buff(fp.fixed_size(N, K)), "server_secagg"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITED)
def test_audits_find_most_of_the_worst_clients_epsilon(name):
    """The mechanism's own code, on a client in its worst direction: a bound is wrong with probability 1e-6."""
    algorithm, view = AUDITED[name]
    seen, delta = fp.trace_round(algorithm, start(), FEDERATION).seen(4), 1e-3
    told = certify_seen(seen, delta, view).epsilon
    scores = draw_scores(seen, view, draws=100_000)
    assert 0.6 * told < lower_bounds(scores, delta).least
    assert lower_bounds(scores, delta, significance=1e-6).least <= told


class TestNoiseOfTheirOwn:
    """In other algorithms, with the sampler of a buffered one."""

    def test_weighted_it_is_refused(self):
        drawn = fed_buff(fp.fixed_size(N, K), staleness=old).sampler
        made = fp.papers.ldp_fed_avg(squared, sampler=drawn, mechanism=GAUSSIAN, **TRAINING)
        with refused(r"sampler: its draws weigh answers.*noise of its own \(.*; leave the weights"):
            certified(made)

    @pytest.mark.slow
    def test_of_records_the_noises_of_others_do_not_count(self):
        """Though they would without weights, in the cohort's single step."""

        def made(sampler):
            local = fp.LocalSteps(
                fp.per_example(squared, 1.0),
                fp.fixed_size(3, 2),
                1,
                TRAINING["optimizer"],
                fp.gaussian(0.5, 1.2),
            )
            return fp.dp_sgd(local, sampler=sampler, together=True)

        who = fp.fixed_size(N, K)
        alike, weighted = (
            table_of(traced(made(fed_buff(who, staleness=weights).sampler), 3), 3)["third_party"][0]
            for weights in (None, old)
        )
        assert (alike.adder, weighted.adder) == ("own_summed", "own")
        louder = math.sqrt(K) * weighted.noisy.multiplier
        assert alike.noisy.multiplier == pytest.approx(louder)
