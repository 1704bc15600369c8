"""FedProx against NumPy, and in its limits."""

import jax
import numpy as np
import optax
import pytest
from small import assert_close, gradient, one_round, records, regression, squared, start, vector

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 4
FEDERATION, PARAMS = regression([2, 3, 1, 3]), start()


def fed_prox(mu):
    return fp.fed_avg(
        squared,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: fp.proximal(optax.sgd(0.2, momentum=0.5), mu),
        batches=fp.epochs(4, 3),
    )


def after(algorithm, rounds):
    state = algorithm.init(PARAMS, FEDERATION)
    for t in range(rounds):
        state, _ = one_round(algorithm)(jax.random.key(t), state, FEDERATION)
    return vector(state.params)


def test_against_numpy():
    """Two rounds of four steps on h(w) = F(w) + mu / 2 ||w - w_t||^2, of which momentum sees the gradient."""
    theta, mu = vector(PARAMS), 0.7
    for _ in range(2):
        trained = []
        for i in range(CLIENTS):
            w, velocity = theta.copy(), 0.0
            for _ in range(4):
                velocity = 0.5 * velocity + gradient(w, *records(FEDERATION, i)) + mu * (w - theta)
                w = w - 0.2 * velocity
            trained.append(w)
        theta = np.mean(trained, 0)
    assert_close(after(fed_prox(mu), 2), theta, 1e-6)


def test_without_a_proximal_term_it_is_the_optimiser_itself():
    inner = optax.sgd(0.2)
    assert fp.proximal(inner, 0.0) is inner


def test_records_are_as_private_with_it():
    def certificate(optimizer):
        local = fp.LocalSteps(
            fp.per_example(squared), fp.poisson(3, 0.5), 2, lambda t: optimizer, fp.gaussian(0.5, 1)
        )
        algorithm = fp.dp_sgd(local, sampler=fp.everyone(CLIENTS))
        return fp.trace_round(algorithm, PARAMS, regression([3] * CLIENTS)).releases(5)

    assert certificate(fp.proximal(optax.sgd(0.1), 0.3)) == certificate(optax.sgd(0.1))
