"""The server's optimiser: NumPy's trajectories, and SGD with rate 1."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from every_algorithm import CLIENTS, FEDERATION, FIXED, MAKERS, PARAMS, D
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
