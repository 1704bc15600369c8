"""A user's own algorithm gets seeds, evaluation, uplink and accounting without touching the package."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import classification, one_round

from fedpriv import (
    VIEWS,
    Algorithm,
    Release,
    Sent,
    Strategy,
    Wire,
    certify,
    fixed_size,
    full_batch,
    gaussian,
    mean_grad,
    poisson,
    simulate,
    train,
)
from fedpriv.core.trees import dimension, flatten, unflatten


class Memory(NamedTuple):
    params: dict
    round: jax.Array
    error: jax.Array  # f32[clients, d], what compression has swallowed so far


def compress(x):
    """One bit per coordinate and one number (Karimireddy et al. 2019, arXiv:1901.09847)."""
    return jnp.sign(x) * jnp.mean(jnp.abs(x))


def error_feedback(loss, sampler, rate, mechanism):
    """FedAvg of signs, every client adding to its update what was lost in its earlier ones."""
    local = {"grad": mean_grad(loss), "optimizer": optax.sgd(rate), "batches": full_batch()}

    def init(params, federation):
        error = jnp.zeros((federation.num_clients, dimension(params)))
        return Memory(params, jnp.int32(0), error)

    def round(key, state, cohort):
        def client(key, shard, error):
            trained = train(key, state.params, shard, **local)
            wanted = flatten(state.params) - flatten(trained) + error
            sent, _ = mechanism.clip(compress(wanted))
            return Sent(sent, own=wanted - sent)

        total, metrics, error = cohort.sum(client, key, mechanism=mechanism, own=state.error)
        params = unflatten(flatten(state.params) - total / cohort.expected_size, state.params)
        metrics["uplink"] = Wire(total.size, 1, 32)
        return Memory(params, state.round + 1, error), metrics

    return Algorithm(init, round, sampler)


CLIENTS = 6
FEDERATION, TEST, MODEL = classification(CLIENTS, tests=30)
D = 15


@pytest.fixture(scope="module")
def history():
    algorithm = error_feedback(MODEL.loss, fixed_size(CLIENTS, 3), 2.0, gaussian(math.inf, 0))
    return simulate(
        algorithm,
        MODEL.init,
        FEDERATION,
        TEST,
        score=MODEL.score,
        rounds=25,
        every=10,
        seeds=(0, 1, 2),
        strategy=Strategy(2),
    )


def test_it_is_simulated_with_seeds(history):
    np.testing.assert_array_equal(history.rounds, [10, 20, 25])
    assert history.loss.shape == (3, 3)
    assert len(set(history.loss[-1])) == 3
    assert np.all(history.loss[-1] < 0.8 * math.log(3))
    assert history.state.error.shape == (3, CLIENTS, D)


def test_its_messages_are_counted(history):
    expected = (D + 32) * 25 * 3 / CLIENTS / 8e6
    np.testing.assert_allclose(history.uplink_mb[-1], expected, rtol=1e-12)


def test_absent_clients_keep_their_state():
    """A Poisson cohort with empty slots, against NumPy."""
    sampler = poisson(CLIENTS, 0.4, 5)
    algorithm = error_feedback(MODEL.loss, sampler, 1.0, gaussian(0.05, 0))
    state = algorithm.init(MODEL.init(jax.random.key(0)), FEDERATION)
    old = np.random.default_rng(0).normal(size=(CLIENTS, D)).astype(np.float32)
    state = state._replace(error=jnp.asarray(old))
    after, metrics = one_round(algorithm)(jax.random.key(3), state, FEDERATION)
    changed = np.any(np.asarray(after.error) != old, axis=1)
    assert 0 < changed.sum() == metrics["cohort_size"] < 5

    @jax.jit
    def gradient(rows):
        examples = jax.tree.map(lambda leaf: leaf[rows], FEDERATION.examples)
        return flatten(mean_grad(MODEL.loss)(state.params, examples, jnp.ones(len(rows), bool)))

    total = np.zeros(D)
    for i in np.flatnonzero(changed):
        wanted = np.asarray(gradient(FEDERATION.rows[i]), np.float64) + old[i]
        sent = np.sign(wanted) * np.abs(wanted).mean()
        sent *= min(1, 0.05 / np.linalg.norm(sent))
        np.testing.assert_allclose(after.error[i], wanted - sent, rtol=1e-5, atol=1e-6)
        total += sent
    step = np.asarray(flatten(state.params)) - np.asarray(flatten(after.params))
    np.testing.assert_allclose(step, total / (0.4 * CLIENTS), atol=1e-6)


def test_it_is_accounted_for():
    """By what its round shows: nothing is declared."""
    private = error_feedback(MODEL.loss, poisson(CLIENTS, 0.5, 6), 1.0, gaussian(0.5, 2.0))

    def certificate(view):
        return certify(private, MODEL.init, FEDERATION, 3, 1e-3, view=view)

    third, behind, server = map(certificate, ("third_party", "server_secagg", "server"))
    assert 0 < third.epsilon < behind.epsilon < server.epsilon < math.inf
    assert third.basis == "constructed"
    loud = error_feedback(MODEL.loss, fixed_size(CLIENTS, 3), 1.0, gaussian(0.5, 0))
    bare = certify(loud, MODEL.init, FEDERATION, 3, 1e-3)
    assert bare.epsilon == math.inf
    assert "no noise is added" in bare.assumptions[0]


def test_releases_that_are_declared_are_called_so():
    """They are taken at their word, and the certificate says that it is somebody's."""
    plain = error_feedback(MODEL.loss, fixed_size(CLIENTS, 3), 1.0, gaussian(0.5, 0))

    def releases(rounds):
        seen = {"sampling": plain.sampler.accounting, "steps": rounds}
        server = Release("server", "client", 0.0, **seen, reason="sent in clear")
        return (server, *(Release(v, "client", 2.0, **seen) for v in VIEWS if v != "server"))

    declared = plain._replace(releases=releases)
    for view in VIEWS:
        found = certify(declared, MODEL.init, FEDERATION, 3, 1e-3, view=view)
        assert found.basis == "declared"
        assert math.isinf(found.epsilon) == (view == "server")
