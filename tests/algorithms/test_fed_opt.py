"""The server's optimiser: NumPy's trajectories, SGD with rate 1, and the same certificates in every algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import (
    assert_close,
    assert_identical,
    gradient,
    one_round,
    records,
    regression,
    sgd,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.attacks.server_views import server_view
from fedpriv.core.trees import scatter
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.rounds.cohort import Cohort

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, PER_CLIENT, D = 6, 3, 4
FEDERATION, PARAMS = regression([PER_CLIENT] * CLIENTS, public=2), start()
FIXED = fp.fixed_size(CLIENTS, 3)
COMMON = {"sampler": FIXED, "optimizer": sgd, "batches": fp.full_batch()}
PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 1.2}
RAND_K = fp.select_rand_k(0.5)
LOCAL = fp.dp_scaffold_steps(
    fp.per_example(squared), fp.fixed_size(PER_CLIENT, 2), 2, 0.1, **PRIVATE
)
HAAR = fp.mechanism(fp.clipping.flat(), haar_noise(D), **PRIVATE)
ALGORITHMS = {
    "fed_sgd": lambda **s: fp.fed_sgd(squared, sampler=FIXED, learning_rate=0.1, **s),
    "dp_fed_avg": lambda **s: fp.dp_fed_avg(squared, **COMMON, **PRIVATE, **s),
    "qsgd": lambda **s: fp.dp_fed_avg(squared, **COMMON, **PRIVATE, codec=fp.qsgd(8), **s),
    "fed_smp": lambda **s: fp.fed_smp(squared, **COMMON, **PRIVATE, sparsifier=RAND_K, **s),
    "adaptive": lambda **s: fp.adaptive_fed_avg(
        squared, **COMMON, **PRIVATE, quantile=0.5, count_noise=1.0, **s
    ),
    "dynamic": lambda **s: fp.fed_avg(
        squared, **COMMON, mechanism=fp.dynamic(fp.gaussian(0.5, 1.2), rounds=9, clip_decay=2), **s
    ),
    "wavelet": lambda **s: fp.dp_fed_avg_wav(
        squared, d=D, **COMMON, **PRIVATE, bounded="update", **s
    ),
    "ldp": lambda **s: fp.ldp_fed_avg(squared, **COMMON, mechanism=fp.laplace(0.5, 1.2), **s),
    "jopeq": lambda **s: fp.jopeq(squared, **COMMON, bits=8, bound=0.1, epsilon=2.0, **s),
    "dp_sgd_wav": lambda **s: fp.dp_sgd_wav(LOCAL._replace(mechanism=HAAR), sampler=FIXED, **s),
    "record_fed_avg": lambda **s: fp.record_fed_avg(LOCAL, sampler=FIXED, **s),
    "dp_scaffold": lambda **s: fp.dp_scaffold(LOCAL, sampler=FIXED, warm_start=1, **s),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_post_processing(name):
    """What is released, to whom, and whether that is constructed, is as without it; the round passes the leak check."""
    plain, server = ALGORITHMS[name](), fp.fed_opt.yogi(optax.cosine_decay_schedule(0.1, 9))
    algorithm = ALGORITHMS[name](server=server)
    traced, without = (fp.trace_round(made, PARAMS, FEDERATION) for made in (algorithm, plain))
    assert jax.tree.leaves(traced.before.server)
    assert traced.releases(5) == without.releases(5)
    assert traced.basis == without.basis == "constructed"
    assert algorithm.claim(5, 1e-3) == plain.claim(5, 1e-3)


def test_an_optimiser_that_knows_the_records_is_refused():
    def update(gradient, state, params=None):
        return jax.tree.map(lambda g: g - FEDERATION.examples["y"].mean(), gradient), state

    server = optax.chain(optax.GradientTransformation(lambda params: (), update), optax.sgd(1.0))
    with pytest.raises(fp.LeakError, match="closes over federation"):
        fp.certify(ALGORITHMS["dp_fed_avg"](server=server), PARAMS, FEDERATION, 5, 1e-3)


class Heard(Cohort):
    """Remembers the total of its call."""

    def sum(self, *given, **how):
        summed = super().sum(*given, **how)
        self.total = summed.total
        return summed


def moved_by(sign):
    """The model moved by the mean update, as every round did it by itself."""
    return lambda theta, total, kept: optax.apply_updates(
        theta, jax.tree.map(lambda s: sign * s / FIXED.expected_size, total)
    )


def moved_where_kept(theta, total, kept):
    step = scatter(total / FIXED.expected_size, kept, theta)
    return jax.tree.map(jnp.subtract, theta, step)


BY_HAND = {
    "dp_fed_avg": moved_by(-1.0),
    "fed_smp": moved_where_kept,
    "record_fed_avg": moved_by(1.0),
}


@pytest.mark.parametrize(
    ("name", "server"),
    [*((name, {}) for name in BY_HAND), ("dp_fed_avg", {"server": optax.sgd(1.0)})],
)
def test_sgd_of_rate_1_moves_the_model_by_the_mean_update_to_the_bit(name, server):
    """By default, too."""
    algorithm = ALGORITHMS[name](**server)

    def both(key, state):
        cohort = Heard(state.round, FEDERATION, FIXED.draw(key), FIXED)
        after, _ = algorithm.round(key, state, cohort)
        kept = RAND_K.select(jax.random.split(key)[0], state.params)
        return after.params, BY_HAND[name](state.params, cohort.total, kept)

    before = algorithm.init(PARAMS, FEDERATION)
    assert_identical(*jax.jit(both)(jax.random.key(1), before))


def fed_avg_m(x, delta, m, v, rate):
    m = 0.9 * m + delta
    return x + rate * m, m, v


def adaptive(second, b1):
    """Algorithm 2, with tau = 0.01."""

    def step(x, delta, m, v, rate):
        m = b1 * m + (1 - b1) * delta
        v = second(v, delta**2)
        return x + rate * m / (np.sqrt(v) + 0.01), m, v

    return step


TAU = {"adaptivity": 0.01}
SERVERS = {
    "FedAvgM": (lambda rate: optax.sgd(rate, momentum=0.9), fed_avg_m),
    "FedAdagrad": (
        lambda rate: fp.fed_opt.adagrad(rate, momentum=0.3, **TAU),
        adaptive(lambda v, d2: v + d2, 0.3),
    ),
    "FedAdam": (
        lambda rate: fp.fed_opt.adam(rate, **TAU),
        adaptive(lambda v, d2: 0.99 * v + 0.01 * d2, 0.9),
    ),
    "FedYogi": (
        lambda rate: fp.fed_opt.yogi(rate, second_momentum=0.8, **TAU),
        adaptive(lambda v, d2: v - 0.2 * d2 * np.sign(v - d2), 0.9),
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_rounds_are_numpys(name):
    """Five rounds of everyone's one step on all records, the server's rate falling by a schedule."""
    make, step = SERVERS[name]
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(0.3),
        batches=fp.full_batch(),
        server=make(optax.exponential_decay(0.4, 1, 0.7)),
    )
    state, run = algorithm.init(PARAMS, FEDERATION), one_round(algorithm)
    x, m, v = vector(PARAMS), np.zeros(D), np.full(D, 0.01**2)
    for t in range(5):
        state, _ = run(jax.random.key(t), state, FEDERATION)
        delta = -0.3 * np.mean([gradient(x, *records(FEDERATION, i)) for i in range(CLIENTS)], 0)
        x, m, v = step(x, delta, m, v, 0.4 * 0.7**t)
        assert_close(vector(state.params), x, 1e-6)


def test_momentum_moves_coordinates_that_were_not_kept():
    private = {**COMMON, "clip_norm": 0.5, "noise_multiplier": 0}
    momentum = optax.sgd(1.0, momentum=0.9)
    smp = fp.fed_smp(squared, **private, sparsifier=RAND_K, server=momentum)
    state, moves = smp.init(PARAMS, FEDERATION), []
    for t in range(2):
        before = vector(state.params)
        state, _ = one_round(smp)(jax.random.key(t), state, FEDERATION)
        moves.append(vector(state.params) - before != 0)
    assert moves[0].sum() == 2
    assert np.all(moves[1] >= moves[0])


def test_a_warm_start_leaves_model_and_optimiser_alone():
    """So that a schedule begins with the first round that moves the model."""
    server = fp.fed_opt.adam(optax.exponential_decay(0.1, 1, 0.5))
    algorithm = ALGORITHMS["dp_scaffold"](server=server)
    first, run = algorithm.init(PARAMS, FEDERATION), one_round(algorithm)
    warm, _ = run(jax.random.key(0), first, FEDERATION)
    assert_identical((warm.params, warm.server), (first.params, first.server))
    moved, _ = run(jax.random.key(1), warm, FEDERATION)
    assert [int(s.server[1].count) for s in (first, warm, moved)] == [0, 0, 1]
    assert np.all(vector(moved.params) != vector(first.params))


def test_a_model_of_16_bits_has_an_optimiser_of_32():
    algorithm = ALGORITHMS["dp_fed_avg"](server=fp.fed_opt.adam(0.1))
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), PARAMS)
    state = algorithm.init(half, FEDERATION)
    after, _ = jax.eval_shape(fp.one_round(algorithm), jax.random.key(0), state, FEDERATION)
    assert {leaf.dtype for leaf in jax.tree.leaves(after.params)} == {jnp.bfloat16.dtype}
    assert {leaf.dtype for leaf in jax.tree.leaves(after.server)} == {jnp.float32.dtype}


def test_a_server_s_view_is_asked_of_the_mean_alone():
    algorithm = ALGORITHMS["dp_fed_avg"](server=fp.fed_opt.adam(0.1))
    state = algorithm.init(PARAMS, FEDERATION)
    with pytest.raises(ValueError, match="server: its optimiser moves the model by more than"):
        server_view(algorithm, jax.random.key(0), state, FEDERATION)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ALGORITHMS["dp_fed_avg"](server=optax.adam), "server: the function adam"),
        (lambda: ALGORITHMS["dp_scaffold"](server=0.5), "server: 0.5; give such as optax"),
        (lambda: ALGORITHMS["fed_smp"](server=lambda t: optax.sgd(1.0)), "server: the"),
        (lambda: fp.fed_opt.adam(0.1, adaptivity=0), "adaptivity: 0; give"),
        (lambda: fp.fed_opt.yogi(0.1, second_momentum=1), r"second_momentum: 1; give"),
    ],
)
def test_what_is_no_optimiser_is_refused_in_a_line(made, said):
    with pytest.raises(ValueError, match=said) as error:
        made()
    assert "\n" not in str(error.value)
