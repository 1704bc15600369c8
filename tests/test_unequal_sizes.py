"""Records of clients that hold unequal numbers of them: sizes that are secret, and sizes that are public."""

import math
from dataclasses import replace
from itertools import combinations

import dp_accounting as dp
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats
from small import (
    FALSE_ALARM,
    assert_close,
    assert_identical,
    assert_normal,
    assert_uniform,
    one_round,
    refused,
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.privacy import curves
from fedpriv.privacy.sampling import Poisson
from fedpriv.privacy.truncation import draw_cases

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = (1, 2, 7, 40)
GRADIENTS = fp.per_example(squared)
CLIP, RATE, STEPS, ROUNDS = 0.8, 0.3, 3, 2
DRAWS = {
    "secret, all": fp.everyone(40),
    "secret, Poisson": fp.poisson(40, 1.0),
    "public, Poisson": fp.PublicSizes(SIZES, rate=1.0),
    "public, batches": fp.PublicSizes(SIZES, batch=5),
}


def alike(sizes=SIZES):
    """All records of a client are the same, so that it does not matter which of them a batch holds."""
    example = regression([1] * len(sizes)).examples
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return fp.Federation.from_arrays({n: np.asarray(v)[owner] for n, v in example.items()}, rows)


def steps(records, mechanism=None, count=STEPS, rate=RATE):
    used = mechanism or fp.gaussian(CLIP, 0.0)
    return fp.LocalSteps(GRADIENTS, records, count, lambda t: optax.sgd(rate), used)


def share_of(name, size):
    """A client's number of records in a batch over what their sum is divided by."""
    return size / 40 if name.startswith("secret") else 1.0


def clipped_gradients(theta, federation, clip=CLIP):
    """f64[clients, d]: of each client's record."""
    rows = np.asarray(federation.rows)[:, 0]
    x, y = (np.asarray(federation.examples[name], np.float64)[rows] for name in "xy")
    residual = x @ theta[1:] + theta[0] - y
    g = residual[:, None] * np.concatenate([np.ones((len(y), 1)), x], 1)
    return g * np.minimum(1, clip / np.linalg.norm(g, axis=1, keepdims=True))


def one(theta, federation, i):
    return clipped_gradients(theta, federation)[i]


def trained(algorithm, federation, rounds=ROUNDS):
    state = algorithm.init(start(), federation)
    for t in range(rounds):
        state, _ = one_round(algorithm)(jax.random.key(t), state, federation)
    return state


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("make", [fp.dp_sgd, fp.record_fed_avg])
def test_federated_averaging_is_numpys(make, name):
    federation, theta = alike(), vector(start())
    for _ in range(ROUNDS):
        local = []
        for i, size in enumerate(SIZES):
            y = theta
            for _ in range(STEPS):
                y = y - RATE * share_of(name, size) * one(y, federation, i)
            local.append(y)
        theta = np.mean(local, 0)
    state = trained(make(steps(DRAWS[name]), sampler=fp.everyone(4)), federation)
    assert_close(vector(state.params), theta, 1e-6)


@pytest.mark.parametrize("name", DRAWS)
def test_scaffold_is_numpys(name):
    federation, theta = alike(), vector(start())
    control, controls = np.zeros(4), np.zeros((4, 4))
    for _ in range(ROUNDS):
        local, means = [], []
        for i, size in enumerate(SIZES):
            y, total = theta, 0.0
            for _ in range(STEPS):
                h = share_of(name, size) * one(y, federation, i)
                y, total = y - RATE * (h + control - controls[i]), total + h
            local.append(y)
            means.append(total / STEPS)
        control = control + np.mean(np.array(means) - controls, 0)
        theta, controls = np.mean(local, 0), np.array(means)
    state = trained(fp.dp_scaffold(steps(DRAWS[name]), sampler=fp.everyone(4)), federation)
    assert_close(vector(state.params), theta, 1e-6)
    assert_close(state.control, control, 1e-6)
    assert_close(state.controls, controls, 1e-6)


@pytest.mark.parametrize("name", ["secret, Poisson", "public, batches"])
@pytest.mark.parametrize("kind", ["wavelet", "dynamic"])
def test_other_mechanisms_take_them(name, kind):
    """With next to no noise: the Haar mechanism clips alike, and a schedule's clip norm falls."""
    federation, theta = alike(), vector(start())
    shape = {"clip_norm": CLIP, "noise_multiplier": 1e-7}
    used, clips = fp.mechanism(flat(), haar_noise(4), **shape), [CLIP] * ROUNDS
    if kind == "dynamic":
        used = fp.dynamic(fp.gaussian(**shape), rounds=2, clip_decay=4.0, parts=2)
        clips = [CLIP, CLIP / 2]
    for clip in clips:
        share = np.array([share_of(name, size) for size in SIZES])[:, None]
        theta = theta - RATE * np.mean(share * clipped_gradients(theta, federation, clip), 0)
    make = fp.dp_sgd_wav if kind == "wavelet" else fp.dp_sgd
    state = trained(make(steps(DRAWS[name], used, 1), sampler=fp.everyone(4)), federation)
    assert_close(vector(state.params), theta, 1e-5)


@pytest.mark.parametrize("batch", [3, 8])
def test_equal_sizes_are_exact_subsets_to_the_bit(batch):
    federation = regression([8] * 4)
    noisy = fp.gaussian(CLIP, 1.3)
    draws = fp.fixed_size(8, batch), fp.PublicSizes([8] * 4, batch=batch)
    algorithms = [fp.dp_sgd(steps(each, noisy), sampler=fp.fixed_size(4, 2)) for each in draws]
    assert_identical(*(trained(each, federation) for each in algorithms))
    for view in fp.VIEWS:
        fixed, public = (
            fp.certify(each, start(), federation, 9, 1e-3, view=view) for each in algorithms
        )
        assert public.epsilon == pytest.approx(fixed.epsilon, rel=1e-9)
        assert public.relation == fixed.relation


def test_equal_sizes_drawn_by_poisson_are_the_same_whether_they_are_public():
    federation, noisy = regression([8] * 4), fp.gaussian(CLIP, 1.3)
    draws = fp.poisson(8, 0.4), fp.PublicSizes([8] * 4, rate=0.4)
    algorithms = [fp.dp_sgd(steps(each, noisy), sampler=fp.fixed_size(4, 2)) for each in draws]
    assert_identical(*(trained(each, federation) for each in algorithms))


@pytest.mark.parametrize("size", [3, 7, 40])
def test_batches_are_uniform_subsets_of_a_clients_own_records(size):
    """Every record, and every pair, as often as any other, by binomial bounds of 1e-6 for all of them."""
    draws, batch = 40_000, 5
    sampler = fp.PublicSizes((1, 3, 7, 40), batch=batch)
    keys = jax.random.split(jax.random.key(1), draws)
    ids, mask = jax.jit(jax.vmap(lambda key: sampler.draw(key, jnp.int32(size))))(keys)
    kept = min(size, batch)
    assert np.array_equal(np.asarray(mask), np.tile(np.arange(5) < kept, (draws, 1)))
    there = np.zeros((draws, 41), int)
    np.add.at(there, (np.arange(draws)[:, None], np.asarray(ids)), 1)
    there = there[:, :size]
    assert there.max() == 1
    assert np.all(there.sum(1) == kept)
    pairs = (there.T @ there)[np.triu_indices(size, 1)]
    if kept < size:
        assert_uniform(there.sum(0), draws, kept / size)
        assert_uniform(pairs, draws, kept * (kept - 1) / (size * (size - 1)))


@pytest.mark.parametrize("name", ["secret, Poisson", "public, Poisson", "public, batches"])
@pytest.mark.parametrize("size", SIZES)
def test_a_batch_is_drawn_among_a_clients_own_records(name, size):
    """Run through the engine: a mean over a batch of one-hot records shows which it held, and its divisor."""
    rate, batch, draws = 0.3, 5, 4000
    sampler = {
        "secret, Poisson": fp.poisson(40, rate),
        "public, Poisson": fp.PublicSizes(SIZES, rate=rate),
        "public, batches": fp.PublicSizes(SIZES, batch=batch),
    }[name]
    gradients = fp.per_example(lambda params, example: -params @ example["x"])
    local = fp.LocalSteps(gradients, sampler, 1, lambda t: optax.sgd(1.0), fp.gaussian(9.0, 0.0))
    shard = fp.Shard({"x": jnp.eye(40)}, jnp.int32(size))
    keys = jax.random.split(jax.random.key(2), draws)
    run = jax.jit(jax.vmap(lambda key: local.run(key, jnp.zeros(40), shard)[0]))
    moved = np.asarray(run(keys), np.float64)
    divisor = {"secret, Poisson": rate * 40, "public, Poisson": rate * size}.get(
        name, min(batch, size)
    )
    held = np.round(moved * divisor)
    np.testing.assert_allclose(moved * divisor, held, atol=1e-5)
    assert set(np.unique(held)) <= {0.0, 1.0}
    assert np.all(held[:, size:] == 0)
    each = rate if "Poisson" in name else min(batch, size) / size
    assert_uniform(held[:, :size].sum(0), draws, each)
    if "Poisson" in name and size > 1:  # a Poisson batch is no larger where another record is in it
        pairs = (held.T @ held)[np.triu_indices(size, 1)]
        assert_uniform(pairs, draws, rate**2)


@pytest.mark.parametrize("name", ["secret, Poisson", "public, Poisson", "public, batches"])
@pytest.mark.parametrize("size", SIZES)
def test_a_clients_noise_is_that_of_its_divisor(name, size):
    """Gradients are 0, so that a step is noise alone: sigma C over the divisor, by a chi-square and a KS test."""
    sampler = {
        "secret, Poisson": fp.poisson(40, 0.3),
        "public, Poisson": fp.PublicSizes(SIZES, rate=0.3),
        "public, batches": fp.PublicSizes(SIZES, batch=5),
    }[name]
    gradients = fp.per_example(lambda params, example: 0.0 * jnp.sum(params))
    used = fp.gaussian(CLIP, 1.7)
    local = fp.LocalSteps(gradients, sampler, 1, lambda t: optax.sgd(1.0), used)
    shard = fp.Shard({"x": jnp.eye(40)}, jnp.int32(size))
    keys = jax.random.split(jax.random.key(3), 200)
    moved = jax.jit(jax.vmap(lambda key: local.run(key, jnp.zeros(20), shard)[0]))(keys)
    divisor = {"secret, Poisson": 0.3 * 40, "public, Poisson": 0.3 * size}.get(name, min(5, size))
    assert_normal(np.asarray(moved), 1.7 * CLIP / divisor)


WALL = (25, 60, 90, 231, 100, 31, 177, 48)
LEAF = (5, 662, 40, 23, 100, 9, 77, 310)


def three_ways(sizes):
    rate = 0.1
    return {
        "secret": fp.poisson(max(sizes), rate),
        "public, Poisson": fp.PublicSizes(sizes, rate=rate),
        "public, batches": fp.PublicSizes(sizes, batch=10),
    }


def algorithm_of(make, records, multiplier, rounds=4):
    return make(steps(records, fp.gaussian(CLIP, multiplier), 2), sampler=fp.fixed_size(8, 4))


@pytest.mark.parametrize("sizes", [WALL, LEAF], ids=["25 to 231", "5 to 662"])
@pytest.mark.parametrize("make", [fp.dp_sgd, fp.dp_scaffold])
@pytest.mark.parametrize("way", ["secret", "public, Poisson", "public, batches"])
def test_unequal_clients_train_and_are_certified(sizes, make, way):
    federation = regression(sizes)
    algorithm = algorithm_of(make, three_ways(sizes)[way], 2.0)
    state = trained(algorithm, federation, 1)
    assert np.all(np.isfinite(vector(state.params)))
    relation = "add_or_remove" if way == "secret" else "replace_one"
    for view in fp.VIEWS:
        certificate = fp.certify(algorithm, start(), federation, 4, 1e-3, view=view)
        assert certificate.basis == "constructed"
        assert certificate.relation == relation
        assert 0 < certificate.epsilon < math.inf
    public = [a.startswith("how many records each client") for a in certificate.assumptions]
    secret = [a.startswith("no client holds more than") for a in certificate.assumptions]
    assert any(public) == (way != "secret")
    assert any(secret) == (way == "secret")


def epsilon_of(curve, steps, delta, step=2e-3, reach=40.0):
    """Of so many compositions of a pair with this curve delta(epsilon), by own convolutions on an own grid.

    The losses' distribution F under P is read off the curve: delta'(e) = -e^e Q[loss > e], P from Q by its loss.
    """
    grid = np.arange(-reach, reach + step / 2, step)
    above = -np.diff(curve(grid)) / np.diff(np.exp(grid))  # Q[loss > e]
    under_q = np.append(-np.diff(above), 0.0)
    losses = np.append(grid[1:-1], grid[-1])
    under_p = np.maximum(under_q, 0) * np.exp(losses)
    under_p /= under_p.sum()
    size = 1 << math.ceil(math.log2(len(under_p) * steps))
    composed = np.fft.irfft(np.fft.rfft(under_p, size) ** steps, size)
    total = losses[0] * steps + step * np.arange(size)
    kept = composed > 0

    def excess(epsilon):
        gain = np.maximum(0.0, -np.expm1(epsilon - total[kept]))
        return float(gain @ composed[kept]) - delta

    return optimize.brentq(excess, 0.0, 60.0)


def replaced_curve(rate, multiplier):
    """By hand: H of (1 - q) N(0) + q N(1) against N(0), at the distance 2 / multiplier, either way round."""
    mu = 2 / multiplier

    def once(e):
        return stats.norm.cdf(mu / 2 - e / mu) - np.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)

    def forward(e):
        return rate * once(np.log1p(np.expm1(e) / rate))

    def curve(epsilon):
        e = np.abs(epsilon)
        return np.where(epsilon >= 0, forward(e), -np.expm1(-e) + np.exp(-e) * forward(e))

    return curve


@pytest.mark.parametrize(("way", "size"), [("public, Poisson", 40), ("public, batches", 25)])
def test_public_sizes_have_the_epsilon_of_an_own_pair(way, size):
    records = three_ways(WALL)[way]
    algorithm = fp.dp_sgd(steps(records, fp.gaussian(CLIP, 2.0), 2), sampler=fp.everyone(8))
    certificate = fp.certify(algorithm, start(), regression(WALL), 5, 1e-3, view="server")
    rate = 0.1 if way == "public, Poisson" else 10 / size
    own = epsilon_of(replaced_curve(rate, 2.0), 10, 1e-3)
    assert certificate.epsilons["PLD"] == pytest.approx(own, rel=1e-3)


def test_secret_sizes_have_the_epsilon_of_dp_accounting():
    algorithm = fp.dp_sgd(
        steps(fp.poisson(231, 0.1, 231), fp.gaussian(CLIP, 1.0), 2), sampler=fp.everyone(8)
    )
    found = {
        fp.certify(algorithm, start(), regression(sizes), 5, 1e-5, view="server").epsilon
        for sizes in (WALL, [1] * 8)
    }
    event = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    own = accountant.compose(dp.SelfComposedDpEvent(event, 10)).get_epsilon(1e-5)
    assert len(found) == 1
    assert found.pop() == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("replaced", [False, True])
def test_the_cases_of_cut_places_bound_explicit_neighbours(capacity, replaced):
    """Four places, all subsets, records at -1 and 1: mixtures of normals, their divergences integrated by hand."""
    n, rate, sigma = 4, 0.4, 1.1
    x = np.linspace(-14, 14, 20_001)

    def density(contributions):
        total = 0.0
        for joined in range(2**n):
            who = [i for i in range(n) if joined >> i & 1]
            chance = rate ** len(who) * (1 - rate) ** (n - len(who))
            subsets = [who]
            if len(who) > capacity:
                subsets = list(map(list, combinations(who, capacity)))
            for kept in subsets:
                moved = sum(contributions[i] for i in kept)
                total = total + chance / len(subsets) * stats.norm.pdf(x, moved, sigma)
        return total

    drawn = Poisson(n, rate, capacity, "replaced" if replaced else "emptied")
    cases = draw_cases(drawn)
    assert sum(case.chance for case in cases) == pytest.approx(1, abs=1e-12)
    assert sum(case.chance * case.rate for case in cases) == pytest.approx(
        sum(stats.binom.pmf(k, n - 1, rate) * rate * min(1, capacity / (k + 1)) for k in range(n))
    )
    for others in ([-1, -1, -1], [1, -1, 1], [0, 0, 0], [1, 1, 1]):
        with_it = density([1, *others])
        without = density([-1 if replaced else 0, *others])
        for one, other, curve in (
            (with_it, without, curves.replace_delta if replaced else curves.remove_delta),
            (without, with_it, curves.replace_delta if replaced else curves.add_delta),
        ):
            for epsilon in (0.0, 0.2, 0.7, 1.5):
                true = np.trapezoid(np.maximum(0, one - math.exp(epsilon) * other), x)
                multiplier = sigma / 2 if replaced else sigma
                bound = sum(
                    case.chance * float(curve(epsilon, multiplier / case.distance, case.rate))
                    for case in cases
                    if case.rate > 0
                )
                assert true <= bound + 1e-9


@pytest.mark.parametrize("sizes", [WALL, LEAF], ids=["25 to 231", "5 to 662"])
@pytest.mark.parametrize("way", ["secret", "public, Poisson", "public, batches"])
def test_the_audit_of_the_worst_client_is_below_its_certificate_and_near_it(sizes, way):
    """A bound above a true epsilon has probability 1e-6; 60 % of the certificate are found at 95 % confidence."""
    delta = 1e-2
    sigma, rounds = {"secret": (1.0, 5), "public, Poisson": (6.0, 100)}.get(way, (8.0, 30))
    local = steps(three_ways(sizes)[way], fp.gaussian(CLIP, sigma), 2)
    traced = fp.trace_round(fp.dp_sgd(local, sampler=fp.everyone(8)), start(), regression(sizes))
    certificate = traced.certify(rounds, delta, view="server")
    scores = draw_scores(traced.releases(rounds), "server", draws=20_000)
    assert lower_bounds(scores, delta, FALSE_ALARM).least <= certificate.epsilon
    assert lower_bounds(scores, delta).least > 0.6 * certificate.epsilon


def test_the_certificate_is_the_largest_of_the_clients():
    algorithm = algorithm_of(fp.dp_sgd, three_ways(WALL)["public, batches"], 2.0)
    federation = regression(WALL)
    each = fp.certify_each_client(algorithm, start(), federation, 4, 1e-3, view="server")
    worst = fp.certify(algorithm, start(), federation, 4, 1e-3, view="server")
    epsilons = [certificate.epsilon for certificate in each]
    assert len(each) == 8
    assert max(epsilons) == worst.epsilon
    order = np.argsort(WALL)
    assert np.all(np.diff(np.array(epsilons)[order]) <= 0)
    alone = algorithm_of(fp.dp_sgd, fp.fixed_size(90, 10), 2.0)
    of_ninety = fp.certify(alone, start(), regression([90] * 8), 4, 1e-3, view="server")
    assert epsilons[WALL.index(90)] == pytest.approx(of_ninety.epsilon, rel=1e-9)


def test_secret_sizes_cost_every_client_the_same():
    algorithm = algorithm_of(fp.dp_sgd, three_ways(WALL)["secret"], 2.0)
    each = fp.certify_each_client(algorithm, start(), regression(WALL), 4, 1e-3)
    assert len(each) == 8
    assert len({certificate.epsilon for certificate in each}) == 1


def test_the_noise_of_others_counts_only_where_all_divide_by_one_number():
    """One step on fixed cohorts: a third party sees the sum. Divisors that differ leave a record its own noise."""
    federation = regression(WALL)

    def multiplier(records):
        algorithm = fp.dp_sgd(
            steps(records, fp.gaussian(CLIP, 2.0), 1), sampler=fp.fixed_size(8, 4)
        )
        releases = fp.trace_round(algorithm, start(), federation).releases(1)
        return {release.view: release.multiplier for release in releases}

    ways = three_ways(WALL)
    assert multiplier(ways["secret"])["third_party"] == pytest.approx(2 * math.sqrt(4))
    for name in ("public, Poisson", "public, batches"):
        assert set(multiplier(ways[name]).values()) == {2.0}


def test_whole_clients_count_the_largest_batch():
    records = three_ways(LEAF)["public, batches"]
    local = steps(records, fp.gaussian(CLIP, 50.0))._replace(unit="client")
    algorithm = fp.dp_sgd(local, sampler=fp.everyone(8))
    (first, *_) = fp.trace_round(algorithm, start(), regression(LEAF)).releases(1)
    assert first.multiplier == pytest.approx(50 / 10)


@pytest.mark.parametrize("way", ["secret", "public, batches"])
def test_a_size_reaches_nothing_but_its_private_mean(way):
    records = three_ways(WALL)[way]

    def sending_its_size(key, state, cohort):
        def client(key, shard):
            mean = shard.private_mean(
                key, GRADIENTS, state.params, records=records, mechanism=fp.gaussian(1.0, 1.0)
            )
            return fp.Sent(jax.tree.map(lambda leaf: leaf * shard.size, mean))

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
        params = jax.tree.map(jnp.add, state.params, total)
        return state._replace(params=params, round=state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, sending_its_size, fp.everyone(8), "record")
    with refused("client's data", fp.LeakError):
        fp.certify(algorithm, start(), regression(WALL), 1, 1e-3)


def sending(of_client, unit="record", **how):
    """An algorithm whose clients send what `of_client` makes of (key, params, shard)."""

    def one(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda key, shard: of_client(key, state.params, shard),
            key,
            mechanism=fp.ALREADY_PRIVATE,
            **how,
        )
        params = jax.tree.map(jnp.add, state.params, total)
        return state._replace(params=params, round=state.round + 1), metrics

    return fp.Algorithm(fp.start, one, fp.everyone(8), unit)


def mean_of(key, params, shard, records=None):
    records = records or fp.poisson(231, 0.1)
    return shard.private_mean(
        key, GRADIENTS, params, records=records, mechanism=fp.gaussian(1.0, 4.0)
    )


def plus_capacity(key, params, shard):
    return jax.tree.map(lambda leaf: leaf + shard.capacity, mean_of(key, params, shard))


class FirstRecords(fp.PublicSizes):
    """Draws the same records again and again."""

    def draw(self, key, size):
        return fp.Draw(jnp.zeros(self.most, jnp.int32), jnp.ones(self.most, bool))


HOLES = {
    "a size": (
        lambda k, p, s: mean_of(k, p, replace(s, size=jnp.minimum(s.size, 3))),
        "shard: its size was changed",
    ),
    "a round": (
        lambda k, p, s: mean_of(k, p, replace(s, round=s.round + 9)),
        "shard: its round was changed",
    ),
    "a subclass": (
        lambda k, p, s: mean_of(k, p, s, FirstRecords(WALL, batch=10)),
        "records: .*; give such as fp.poisson",
    ),
    "the room for records": (plus_capacity, "shard.capacity: 231 .* is secret"),
    "two adjacencies": (
        lambda k, p, s: jax.tree.map(
            jnp.add, mean_of(k, p, s), mean_of(k, p, s, fp.PublicSizes(WALL, rate=0.1))
        ),
        "certified for add-or-remove and replace-one adjacency",
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_what_would_get_past_the_accounting_is_refused(name):
    of_client, said = HOLES[name]
    places = regression([*WALL[:3], 230, *WALL[4:]] if name == "the room for records" else WALL)
    said = said.replace("231", "230") if name == "the room for records" else said
    with refused(said):
        fp.certify(sending(of_client), start(), places, 1, 1e-3)


def test_public_weights_are_for_private_means_of_records():
    weighting = fp.ByPublicSizes(WALL)
    for algorithm in (
        sending(mean_of, weighting=weighting),
        sending(lambda k, p, s: jax.tree.map(jnp.ones_like, p), weighting=weighting),
        sending(
            lambda k, p, s: mean_of(k, p, s, fp.PublicSizes(WALL, rate=0.1)),
            unit="client",
            weighting=weighting,
        ),
    ):
        with refused("weighting: by public sizes, of messages that are not private means"):
            fp.certify(algorithm, start(), regression(WALL), 1, 1e-3)


def test_secret_and_public_sizes_do_not_compose():
    secret, public = (
        algorithm_of(fp.dp_sgd, three_ways(WALL)[way], 2.0) for way in ("secret", "public, Poisson")
    )
    with refused("certified for add-or-remove and replace-one adjacency"):
        fp.certify_together([(secret, 2), (public, 2)], start(), regression(WALL), 1e-3)


def test_a_client_smaller_than_a_batch_costs_no_less_at_any_renyi_order():
    """Batches of 5 of clients of 5, 6, 9 records."""
    sizes = (5, 6, 9, 9, 9, 9, 9, 9)
    local = steps(fp.PublicSizes(sizes, batch=5), fp.gaussian(CLIP, 6.0), 2)
    algorithm = fp.dp_sgd(local, sampler=fp.fixed_size(8, 4))
    each = fp.certify_each_client(algorithm, start(), regression(sizes), 5, 1e-3)
    by_rdp = [certificate.epsilons["RDP"] for certificate in each]
    assert by_rdp[0] >= by_rdp[1] >= by_rdp[2]


def test_two_samplers_of_public_sizes_are_two_kinds_for_every_client():
    def of_two(k, p, s):
        means = [mean_of(k, p, s, fp.PublicSizes(WALL, batch=b)) for b in (30, 40)]
        return jax.tree.map(jnp.add, *means)

    algorithm = sending(of_two)
    each = fp.certify_each_client(algorithm, start(), regression(WALL), 1, 1e-3)
    worst = fp.certify(algorithm, start(), regression(WALL), 1, 1e-3)
    assert max(certificate.epsilon for certificate in each) == worst.epsilon


def test_scaffold_without_privacy_takes_them_and_c_is_the_mean_of_all():
    federation = regression(LEAF)
    records = fp.PublicSizes(federation.size, batch=10)
    local = fp.dp_scaffold_steps(GRADIENTS, records, 2, 0.1)
    state = trained(fp.dp_scaffold(local, sampler=fp.everyone(8)), federation, 3)
    assert_close(state.control, np.mean(np.asarray(state.controls, np.float64), 0), 1e-5)
    assert np.all(np.isfinite(vector(state.params)))


def test_clients_count_by_their_public_sizes():
    federation, theta = alike(), vector(start())
    weights = np.array(SIZES) / np.mean(SIZES)
    moved = [clipped_gradients(theta, federation)[i] * -RATE * w for i, w in enumerate(weights)]
    algorithm = fp.dp_sgd(
        steps(DRAWS["public, batches"], count=1),
        sampler=fp.everyone(4),
        weighting=fp.ByPublicSizes(federation.size),
    )
    state = trained(algorithm, federation, 1)
    assert_close(vector(state.params), theta + np.mean(moved, 0), 1e-6)


def test_public_weights_change_no_certificate_and_want_public_sizes():
    federation, noisy = regression(WALL), fp.gaussian(CLIP, 2.0)

    def epsilon(way, **weighting):
        local = steps(three_ways(WALL)[way], noisy, 1)
        algorithm = fp.dp_sgd(local, sampler=fp.fixed_size(8, 4), **weighting)
        return fp.certify(algorithm, start(), federation, 4, 1e-3).epsilon

    weighting = {"weighting": fp.ByPublicSizes(WALL)}
    plain = epsilon("public, batches")
    assert epsilon("public, batches", **weighting) == plain
    with refused(r"sizes\[0\]: 5, but the client holds 25"):
        epsilon("public, batches", weighting=fp.ByPublicSizes(LEAF))
    with refused("weighting: messages carry their noise already"):
        epsilon("public, batches", weighting=fp.ByExamples(cap=20))


def test_a_streamed_federation_trains_the_same():
    federation = regression(WALL)
    algorithm = algorithm_of(fp.dp_sgd, three_ways(WALL)["public, batches"], 2.0)
    examples = jax.tree.map(np.asarray, federation.examples)
    rows = [np.asarray(r)[:n] for r, n in zip(federation.rows, WALL, strict=True)]
    streamed = fp.StreamedFederation.from_arrays(examples, rows)
    test = jax.tree.map(lambda leaf: leaf[:4], examples)

    def score(params, example):
        return {"loss": squared(params, example)}

    runs = [
        fp.simulate(algorithm, start(), each, test, score=score, rounds=2, every=2)
        for each in (federation, streamed)
    ]
    assert_close(*(flatten(run.state.params) for run in runs), 1e-5)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (fp.fixed_size(231, 10), "records: drawn among 231 of client 0, but it holds 25; where"),
        (fp.poisson(100, 0.1), "records: drawn among 100 of client 3, but it holds 231; where"),
        (fp.everyone(100), "records: drawn among 100 of client 3, but it holds 231; where"),
        (fp.with_replacement([1] * 231, 3), "records: drawn among 231 of client 0"),
        (
            fp.PublicSizes(LEAF, batch=3),
            r"sizes\[0\]: 5, but the client holds 25; give federation.size",
        ),
        (fp.PublicSizes(WALL[:-1], batch=3), "sizes: 7; give 8, one a client"),
    ],
)
def test_sizes_that_do_not_fit_the_sampler_are_refused(records, said):
    algorithm = algorithm_of(fp.dp_sgd, records, 1.0)
    with refused(said):
        fp.certify(algorithm, start(), regression(WALL), 1, 1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "batch: None; give one of the two"),
        ({"batch": 3, "rate": 0.1}, "batch: 3; give one of the two"),
        ({"batch": 3, "capacity": 4}, "capacity: 4; leave it out"),
        ({"batch": 0}, "batch: 0; give"),
        ({"rate": 1.5}, "rate: 1.5; give"),
        ({"sizes": [], "batch": 3}, r"sizes: \(\); give the number of records of each client"),
        ({"sizes": [3, 0], "batch": 3}, r"sizes\[1\]: 0; give"),
        ({"sizes": 7, "batch": 3}, "sizes: 7; give"),
    ],
)
def test_public_sizes_say_what_they_want(options, said):
    with refused(said):
        fp.PublicSizes(**{"sizes": WALL} | options)
