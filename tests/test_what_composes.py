"""What composes as pairs do: each against explicit neighbours, or the exact law of what is seen."""

import math
from dataclasses import replace
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats
from small import squared, start

import fedpriv as fp
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import Dropping, Everyone, FixedSize, Poisson, certify_seen, declared

N, PER, ROUNDS, DELTA = 6, 4, 3, 1e-3
X = np.arange(N * PER * 3, dtype=np.float32).reshape(-1, 3)


def federation(person=None, of=N):
    rows = np.split(np.arange(of * PER), of)
    return fp.Federation.from_arrays(
        {"x": X[: of * PER], "y": X[: of * PER, 0]}, rows, person=person
    )


def hockey_stick(separation, epsilon):
    """Of N(separation, 1) against N(0, 1)."""
    if separation == 0:
        return 0.0
    above = stats.norm.cdf(separation / 2 - epsilon / separation)
    return above - math.exp(epsilon) * stats.norm.cdf(-separation / 2 - epsilon / separation)


def told_epsilon(law, delta=DELTA):
    """The epsilon at which a mixture of separations, {squared: chance}, of which the view is told, costs delta."""

    def excess(epsilon):
        each = (p * hockey_stick(math.sqrt(squared), epsilon) for squared, p in law.items())
        return math.fsum(each) - delta

    return optimize.brentq(excess, 0.0, 200.0, xtol=1e-12)


def times(law, n):
    """Of n independent rounds."""
    total = {0.0: 1.0}
    for _ in range(n):
        rounds = {}
        for (a, p), (b, q) in product(total.items(), law.items()):
            rounds[a + b] = rounds.get(a + b, 0.0) + p * q
        total = rounds
    return total


def test_two_kinds_of_private_means_of_sampled_clients():
    """All records are in every mean: a record is seen in both where its client takes part, and in none where not."""
    one, other, rate = fp.gaussian(0.5, 2.0), fp.gaussian(0.5, 5.0), 0.3
    gradients = fp.per_example(squared)

    def round(key, state, cohort):
        def client(key, shard):
            every = {"records": fp.everyone(PER)}
            first = shard.private_mean(gradients, state.params, mechanism=one, **every)
            return first, shard.private_mean(gradients, state.params, mechanism=other, **every)

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
        params = jax.tree.map(lambda p, a, b: p - a - b, state.params, *total)
        return fp.ModelState(params, state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, round, fp.poisson(N, rate, N), "record")
    certificate = fp.trace_round(algorithm, start(), federation()).certify(ROUNDS, DELTA)
    law = times({1 / 4 + 1 / 25: rate, 0.0: 1 - rate}, ROUNDS)
    assert certificate.epsilon == pytest.approx(told_epsilon(law), rel=1e-6)
    assert certificate.basis == "constructed"


def test_steps_that_lose_the_same_shares():
    """K steps of one draw: k of s members stay in all of them, and each step has k / s of the noise."""
    size, population, stays, steps, sigma = 4, 8, 0.75, 3, 2.0
    k = np.arange(size + 1)
    chances, law = stats.binom(size, stays).pmf(k), {0.0: 0.0}
    for left, p in zip(k.tolist(), chances.tolist(), strict=True):
        law[0.0] += p * (1 - left / population)
        if left:
            law[steps * size / left / sigma**2] = p * left / population
    drawn = Dropping(population, size, 1 - stays, True)
    more = {"local_steps": steps, "participation": drawn}
    seen = declared("server_secagg", "client", sigma, Everyone(population), 2, **more)
    certificate = certify_seen([seen], DELTA, "server_secagg")
    assert certificate.epsilon == pytest.approx(told_epsilon(times(law, 2)), rel=1e-6)


def integer_sums(*dimensions):
    """A round of two sums of integers of the same members."""
    noise = fp.skellam(0.5, 2.0, bits=18)

    def round(key, state, cohort):
        total = 0.0
        for d in dimensions:
            client = lambda key, shard, d=d: jnp.zeros(d)  # noqa: E731
            part, metrics, _ = cohort.sum(client, key, mechanism=noise)
            total += jnp.sum(part)
        params = jax.tree.map(lambda p: p + total, state.params)
        return fp.ModelState(params, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, fp.poisson(N, 0.4, N))


def test_several_sums_of_integers_of_one_cohort():
    """Nearly as one real noise of both: sums that share a draw are farther apart than one, and than each by itself."""
    both = fp.trace_round(integer_sums(3, 5), start(), federation())
    one = fp.trace_round(integer_sums(8), start(), federation())
    found = both.certify(ROUNDS, DELTA)
    real = [declared("third_party", "client", 2.0 / math.sqrt(2), Poisson(N, 0.4), ROUNDS)]
    told = certify_seen(real, DELTA, "third_party").epsilons["RDP"]
    assert told * (1 - 1e-3) < found.epsilon < 1.02 * told  # rounded messages are a little longer
    assert found.epsilon > 1.2 * one.certify(ROUNDS, DELTA).epsilon


@pytest.mark.parametrize("kind", ["skellam", "discrete_gaussian"])
def test_integers_of_two_sums_on_explicit_neighbours(kind):
    """A Poisson draw moves two small sums at once: the joint masses, added up."""
    shares, variance, rate = 3, 2.0, 0.4
    each = [IntegerNoise(kind, shares, variance, square, 1) for square in (1, 4)]
    noise = IntegerNoise.together(each)
    x = np.arange(-60, 61)
    masses = [np.exp(n.law.log_mass(np.abs(x))) for n in each]
    without = np.outer(*masses)
    moved = np.outer(np.roll(masses[0], 1), np.roll(masses[1], 2))
    there = (1 - rate) * without + rate * moved
    more = {"noise": kind, "integers": noise}
    seen = declared("third_party", "client", noise.multiplier, Poisson(9, rate), 1, **more)
    profile = certify_seen([seen], DELTA, "third_party").profile()
    for epsilon in (0.2, 0.5, 1.0):
        ways = ((there, without), (without, there))
        explicit = max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ways)
        assert explicit <= profile.delta(epsilon)


def test_two_sums_do_not_stand_beside_others():
    """A file that says so would count one of them as nothing."""
    one = IntegerNoise("skellam", 3, 2.0, 1, 1)
    with pytest.raises(ValueError, match="beside"):
        replace(one, beside=(replace(one, beside=(one,)),))


def of_records(records, **more):
    local = fp.LocalSteps(
        fp.per_example(squared), records, 1, lambda t: optax.sgd(0.1), fp.gaussian(0.5, 2.0)
    )
    return fp.dp_sgd(local, **more)


@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_a_record_that_is_replaced_in_its_place(rate):
    """Public sizes: all other records stay, so the noise is moved one way or the other way, or not at all."""
    algorithm = of_records(fp.PublicSizes((PER,) * N, rate=rate), sampler=fp.everyone(N))
    traced = fp.trace_round(algorithm, start(), federation())
    profile = traced.certify(1, DELTA).profile()
    z, sigma = np.linspace(-30, 30, 600_001), 2.0
    law = [stats.norm.pdf(z, way / sigma) for way in (0, 1, -1)]
    there, other = ((1 - rate) * law[0] + rate * law[way] for way in (1, 2))
    for epsilon in (0.1, 0.3, 0.5):
        explicit = np.maximum(there - math.exp(epsilon) * other, 0).sum() * (z[1] - z[0])
        assert profile.delta(epsilon) == pytest.approx(explicit, rel=2e-3)
        assert profile.delta(epsilon) >= explicit * (1 - 1e-6)


@pytest.mark.parametrize("view", ["third_party", "server_secagg", "server"])
def test_a_person_with_records_at_two_clients_moves_one_total(view):
    """Who sees the total alone sees the noise of all members; a server that sees each mean sees two of them."""
    person = np.arange(2 * PER)
    person[PER] = 0  # a record at either client
    whole = {"sampler": fp.everyone(2), "together": True}
    algorithm = of_records(fp.everyone(PER), **whole)
    traced = fp.trace_round(algorithm, start(), federation(person, of=2))
    squared_separation = (2 / 2.0) ** 2 / 2 if view != "server" else 2 * (1 / 2.0) ** 2
    told = told_epsilon({ROUNDS * squared_separation: 1.0})
    found = traced.certify(ROUNDS, DELTA, view=view)
    assert found.epsilon == pytest.approx(told, rel=1e-6)
    assert found.unit == "person"


def test_a_late_class_counts_by_its_own_largest_weight():
    """Answers of the slow are weighted by 1 / 4 of those of the fast."""
    laws = {"slow": fp.delays.constant(3), "fast": fp.delays.constant(0)}
    law = fp.delays.by_class(["slow", "fast", "fast"] * 4, laws)
    sampler = fp.FreeClients(12, buffer=2)

    def message(key, params, shard):
        return fp.mean_grad(squared)(params, shard.examples, shard.mask)

    def server(state, total):
        params = jax.tree.map(jnp.subtract, state.params, total)
        return fp.ModelState(params, state.round + 1)

    algorithm = fp.buffered(
        message,
        server,
        sampler=sampler,
        delay=law,
        mechanism=fp.gaussian(0.5, 2.0),
        staleness=lambda d: 1 / (1 + d),
    )
    rows = np.split(np.arange(12), 12)
    clients = fp.Federation.from_arrays({"x": X[:12], "y": X[:12, 0]}, rows)
    found = fp.trace_round(algorithm, start(), clients).certify(8, DELTA).of_groups
    for name, answers, weight in (("slow", 2, 1 / 4), ("fast", 8, 1.0)):
        told = told_epsilon({answers * (weight / 2.0) ** 2: 1.0})
        assert found[name].epsilon == pytest.approx(told, rel=1e-6)


@pytest.mark.parametrize("variance", [3.0, pytest.param(2.5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lossy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_small_shares_cost_little_more_than_real_noise(variance, lossy):
    """Discrete Gaussian shares of 60 members, at the noise of real ones."""
    drawn = Dropping(120, 60, 0.25, True) if lossy else FixedSize(120, 60)
    noise = IntegerNoise("discrete_gaussian", 60, variance, 4, 768)
    more = {"noise": "discrete_gaussian", "integers": noise}
    given = ("third_party", "client", noise.multiplier, drawn, 30)
    of_integers, real = declared(*given, **more), declared(*given)
    costs = [certify_seen([s], 1e-5, "third_party").epsilons["PLD"] for s in (of_integers, real)]
    assert costs[1] < costs[0] < 1.012 * costs[1]


@pytest.mark.parametrize("records", [(1, 1), (2, 1, 1)])
def test_a_persons_records_at_clients_of_a_uniform_subset(records):
    """Two of six clients take part, and the view knows which: of the person's none, one, or both."""
    person = np.arange(N * PER)
    for client, held in enumerate(records):
        person[client * PER : client * PER + held] = 0
    algorithm = of_records(fp.everyone(PER), sampler=fp.fixed_size(N, 2))
    traced = fp.trace_round(algorithm, start(), federation(person))
    moved = [*records, *[0] * (N - len(records))]
    law = {}
    for pair in combinations(moved, 2):
        squared_separation = sum((n / 2.0) ** 2 for n in pair)
        law[squared_separation] = law.get(squared_separation, 0.0) + 1 / 15
    found = traced.certify(ROUNDS, DELTA)
    assert found.epsilon == pytest.approx(told_epsilon(times(law, ROUNDS)), rel=1e-6)


def of_clients(sampler, mechanism=None):
    plain = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
    return fp.dp_fed_avg(squared, sampler=sampler, clip_norm=1.0, noise_multiplier=2.0, **plain)


def moved_epsilon(law, rounds, delta=DELTA):
    """By dp-accounting's losses of a mixture: noise of multiplier 2, secretly moved by d with probability p."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    event = dp.dp_event.MixtureOfGaussiansDpEvent(2.0, list(law), list(law.values()))
    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 2e-3)
    return accountant.compose(event, rounds).get_epsilon(delta)


def test_a_person_with_clients_in_two_groups():
    """Two clients of the one and one of the other, which counts half, move one sum."""
    labels, person = ["a", "a", "a", "b", "b", "b"], np.array([0, 0, 1, 0, 2, 3])
    drawn = {"a": fp.poisson(3, 0.5, 3), "b": fp.poisson(3, 0.2, 3)}
    sampler = fp.grouped(labels, drawn, weights={"a": 1.0, "b": 0.5})
    traced = fp.trace_round(of_clients(sampler), start(), federation(np.repeat(person, PER)))
    law = {}
    for n, m in product(range(3), range(2)):
        p = stats.binom(2, 0.5).pmf(n) * stats.binom(1, 0.2).pmf(m)
        law[n + m / 2] = law.get(n + m / 2, 0.0) + float(p)
    found = traced.certify(ROUNDS, DELTA)
    assert found.epsilon == pytest.approx(moved_epsilon(law, ROUNDS), rel=2e-3)
    told = {d**2 / 4: p for d, p in law.items()}
    behind = traced.certify(ROUNDS, DELTA, view="server_secagg")
    assert behind.epsilon == pytest.approx(told_epsilon(times(told, ROUNDS)), rel=1e-6)


def test_a_person_whose_clients_take_turns():
    """Two clients of one turn, and one of another, in rounds of their own."""
    person = np.array([0, 0, 1, 2, 0, 3])  # turns 0, 1, 0, 1, 0, 1 of clients 0 to 5
    sampler = fp.cyclic_poisson(N, 2, 0.5, 3)
    traced = fp.trace_round(of_clients(sampler), start(), federation(np.repeat(person, PER)))
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 2e-3)
    for units in (2, 1):
        law = {n: float(p) for n, p in enumerate(stats.binom(units, 0.5).pmf(range(units + 1)))}
        event = dp.dp_event.MixtureOfGaussiansDpEvent(2.0, list(law), list(law.values()))
        accountant.compose(event, 2)  # turns of four rounds
    found = traced.certify(4, DELTA)
    assert found.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)


def test_turns_do_not_keep_correlated_noise_apart():
    """What clients of two turns change overlaps in it: refused, as it is secret who joins."""
    person = np.array([0, 0, 1, 2, 0, 3])
    noise = fp.correlated(fp.gaussian(1.0, 2.0), fp.noise_matrices.banded_toeplitz(4, 2))

    def round(key, state, cohort):
        client = lambda key, shard: jax.tree.map(jnp.zeros_like, state.params)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=noise)
        params = jax.tree.map(jnp.subtract, state.params, total)
        return fp.ModelState(params, state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, round, fp.cyclic_poisson(N, 2, 0.5, 3))
    traced = fp.trace_round(algorithm, start(), federation(np.repeat(person, PER)))
    with pytest.raises(ValueError, match="by turns are not certified"):
        traced.certify(4, DELTA)
