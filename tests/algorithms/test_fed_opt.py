"""The server's optimiser against NumPy, and a proximal term of the clients'."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from every_algorithm import CLIENTS, FEDERATION, FIXED, MAKERS, NOISY, PARAMS, PER_CLIENT, D
from small import (
    assert_close,
    assert_identical,
    gradient,
    one_round,
    records,
    squared,
    vector,
)

import fedpriv as fp
from fedpriv.attacks.server_views import server_view

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def test_an_optimiser_that_knows_the_records_is_refused():
    def update(gradient, state, params=None):
        return jax.tree.map(lambda g: g - FEDERATION.examples["y"].mean(), gradient), state

    server = optax.chain(optax.GradientTransformation(lambda params: (), update), optax.sgd(1.0))
    with pytest.raises(fp.LeakError, match="closes over federation"):
        fp.certify(MAKERS["dp_fed_avg"](server=server), PARAMS, FEDERATION, 5, 1e-3)


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


@tiers.every("name", SERVERS, lambda server: server[1].__qualname__)
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


@pytest.mark.slow
def test_momentum_moves_coordinates_that_were_not_kept():
    """Of what is not sent, the optimiser sees zeros: two rounds of sparse messages are NumPy's."""
    make = partial(MAKERS["fed_smp rand_k"], noise_multiplier=0.0)
    sparse, smp = make(), make(server=optax.sgd(0.4, momentum=0.9))
    state, velocity, moves = smp.init(PARAMS, FEDERATION), np.zeros(D), []
    for t in range(2):
        key, theta = jax.random.key(t), vector(state.params)
        alone = sparse.init(state.params, FEDERATION)._replace(round=state.round)
        mean = theta - vector(one_round(sparse)(key, alone, FEDERATION)[0].params)
        velocity = 0.9 * velocity + mean
        state, _ = one_round(smp)(key, state, FEDERATION)
        assert_close(vector(state.params), theta - 0.4 * velocity, 1e-6)
        moves.append(mean != 0)
    assert [kept.sum() for kept in moves] == [2, 2]
    assert (moves[0] & ~moves[1]).any()


@pytest.mark.slow
def test_a_warm_start_leaves_model_and_optimiser_alone():
    """So that a schedule begins with the first round that moves the model."""
    server = fp.fed_opt.adam(optax.exponential_decay(0.1, 1, 0.5))
    algorithm = MAKERS["dp_scaffold"](sampler=FIXED, server=server, warm_start=1)
    first, run = algorithm.init(PARAMS, FEDERATION), one_round(algorithm)
    warm, _ = run(jax.random.key(0), first, FEDERATION)
    assert_identical((warm.params, warm.server), (first.params, first.server))
    moved, _ = run(jax.random.key(1), warm, FEDERATION)
    assert [int(s.server[1].count) for s in (first, warm, moved)] == [0, 0, 1]
    assert np.all(vector(moved.params) != vector(first.params))


def test_a_model_of_16_bits_has_an_optimiser_of_32():
    algorithm = MAKERS["dp_fed_avg"](server=fp.fed_opt.adam(0.1))
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), PARAMS)
    state = algorithm.init(half, FEDERATION)
    after, _ = jax.eval_shape(fp.one_round(algorithm), jax.random.key(0), state, FEDERATION)
    assert {leaf.dtype for leaf in jax.tree.leaves(after.params)} == {jnp.bfloat16.dtype}
    assert {leaf.dtype for leaf in jax.tree.leaves(after.server)} == {jnp.float32.dtype}


def test_a_server_s_view_is_asked_of_the_mean_alone():
    algorithm = MAKERS["dp_fed_avg"](server=fp.fed_opt.adam(0.1))
    state = algorithm.init(PARAMS, FEDERATION)
    with pytest.raises(ValueError, match="server: its optimiser moves the model by more than"):
        server_view(algorithm, jax.random.key(0), state, FEDERATION)


def test_a_proximal_term_is_numpys():
    """Two rounds of four steps on h(w) = F(w) + mu / 2 ||w - w_t||^2, of which momentum sees the gradient."""
    theta, mu = vector(PARAMS), 0.7
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: fp.proximal(optax.sgd(0.2, momentum=0.5), mu),
        batches=fp.epochs(4, PER_CLIENT),
    )
    state = algorithm.init(PARAMS, FEDERATION)
    for t in range(2):
        state, _ = one_round(algorithm)(jax.random.key(t), state, FEDERATION)
        trained = []
        for i in range(CLIENTS):
            w, velocity = theta.copy(), 0.0
            for _ in range(4):
                velocity = 0.5 * velocity + gradient(w, *records(FEDERATION, i)) + mu * (w - theta)
                w = w - 0.2 * velocity
            trained.append(w)
        theta = np.mean(trained, 0)
    assert_close(vector(state.params), theta, 1e-6)


def test_without_a_proximal_term_it_is_the_optimiser_itself():
    inner = optax.sgd(0.2)
    assert fp.proximal(inner, 0.0) is inner


@pytest.mark.slow
def test_records_are_as_private_with_a_proximal_term():
    def certificate(optimizer):
        local = fp.LocalSteps(
            fp.per_example(squared), fp.poisson(3, 0.5), 2, lambda t: optimizer, NOISY
        )
        algorithm = fp.dp_sgd(local, sampler=fp.everyone(CLIENTS))
        return fp.trace_round(algorithm, PARAMS, FEDERATION).seen(5)

    assert certificate(fp.proximal(optax.sgd(0.1), 0.3)) == certificate(optax.sgd(0.1))
