"""FedAvg, FedSGD and DP-FedAvg against a few lines of NumPy, and their limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_normal,
    gradient,
    heavy_ball,
    of_clients,
    one_round,
    records,
    regression,
    sgd,
    squared,
    start,
    vector,
)

from fedpriv import (
    dp_fed_avg,
    epochs,
    everyone,
    fed_avg,
    fed_sgd,
    fixed_size,
    full_batch,
    poisson,
)

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = [4, 1, 3, 2, 4]
WIDEST = 4
KEY = jax.random.key(5)


def after_rounds(algorithm, federation, rounds=1, params=None):
    """Parameters after some rounds, and the last metrics."""
    state = algorithm.init(start() if params is None else params, federation)
    run = one_round(algorithm)
    for t in range(rounds):
        state, metrics = run(jax.random.fold_in(KEY, t), state, federation)
    assert state.round == rounds
    return state.params, metrics


def trained(federation, theta, *, rate, steps, momentum=0.5):
    """f64[clients, d]: theta_i of every client, on all its records at once."""
    given = {"steps": steps, "rate": rate, "momentum": momentum}
    return np.stack([heavy_ball(theta, *records(federation, i), **given) for i in range(5)])


def test_rounds_are_the_mean_of_local_training():
    """Three rounds: momentum starts afresh, the rate decays, clients of unequal size count equally."""
    federation = regression(SIZES)
    algorithm = fed_avg(squared, sampler=everyone(5), optimizer=sgd, batches=epochs(3, WIDEST))
    first, metrics = after_rounds(algorithm, federation)
    deltas = vector(start()) - trained(federation, vector(start()), rate=0.1, steps=3)
    norms = np.linalg.norm(deltas, axis=1)
    assert_close(vector(first), vector(start()) - deltas.mean(0))
    np.testing.assert_allclose(metrics["diagnostics"]["mean_update_norm"], norms.mean(), rtol=1e-5)
    assert metrics["cohort_size"] == 5
    assert (metrics["uplink"].values, metrics["uplink"].bits_per_value) == (4, 32)
    theta = vector(start())
    for t in range(3):
        theta = trained(federation, theta, rate=0.1 * 0.9**t, steps=3).mean(0)
    assert_close(vector(after_rounds(algorithm, federation, rounds=3)[0]), theta)


def test_fed_sgd_is_one_step_on_the_mean_gradient():
    federation = regression(SIZES)
    algorithm = fed_sgd(
        squared, sampler=everyone(5), learning_rate=optax.exponential_decay(0.4, 1, 0.5)
    )
    params, _ = after_rounds(algorithm, federation, rounds=2)
    theta = vector(start())
    for rate in (0.4, 0.2):
        theta = theta - rate * np.mean(
            [gradient(theta, *records(federation, i)) for i in range(5)], axis=0
        )
    assert_close(vector(params), theta)


def test_updates_are_clipped_before_they_are_averaged():
    """In any order of the clients; one whose update is NaN counts as 0 and breaks nobody else."""
    federation = regression(SIZES)
    theta = vector(start())
    deltas = theta - trained(federation, theta, rate=0.1, steps=3)
    norms = np.linalg.norm(deltas, axis=1)
    clip_norm = float(np.median(norms))  # clips some and not others
    private = {"clip_norm": clip_norm, "noise_multiplier": 0, "batches": epochs(3, WIDEST)}
    algorithm = dp_fed_avg(squared, sampler=everyone(5), optimizer=sgd, **private)
    clipped = deltas * np.minimum(1, clip_norm / norms)[:, None]
    params, _ = after_rounds(algorithm, federation)
    assert_close(vector(params), theta - clipped.mean(0))

    order = np.array([3, 0, 4, 2, 1])
    shuffled = of_clients(federation, order)
    assert_close(after_rounds(algorithm, shuffled)[0], params)

    spoilt = np.array(federation.examples["y"])
    spoilt[federation.rows[1, 0]] = np.nan
    broken = federation.replace(examples=federation.examples | {"y": jnp.asarray(spoilt)})
    params, metrics = after_rounds(algorithm, broken)
    found = metrics["diagnostics"]["mean_update_norm"]
    np.testing.assert_allclose(found, np.delete(norms, 1).mean(), rtol=1e-5)
    assert metrics["not_finite"]["messages"] == pytest.approx(1 / 5)
    assert_close(vector(params), theta - np.delete(clipped, 1, axis=0).sum(0) / 5)


def still(features, clients):
    """A federation whose gradients are 0 at `start`, so that a round releases its noise alone."""
    federation = regression([2] * clients, features=features)
    zero = jax.tree.map(jnp.zeros_like, federation.examples)
    return federation.replace(examples=zero | {"y": zero["y"] + start()["b"]})


NOISY = {"optimizer": sgd, "batches": full_batch(), "clip_norm": 0.5, "noise_multiplier": 1.4}


@pytest.mark.slow
@tiers.every("name", ["poisson, empty", "fixed"])
def test_noise_of_the_released_mean(name):
    """Standard deviation C sigma / r, with the expected r: an empty cohort gets its noise as well."""
    sampler = fixed_size(6, 3) if name == "fixed" else poisson(6, 1e-6, 2)
    features, divisor = 4000, sampler.expected_size
    algorithm = dp_fed_avg(squared, sampler=sampler, **NOISY)
    before = jax.tree.map(jnp.zeros_like, start(features)) | {"b": start()["b"]}
    federation, run = still(features, 6), one_round(algorithm)
    state = algorithm.init(before, federation)
    noise = []
    for t in range(2):
        after, metrics = run(jax.random.key(t), state, federation)
        noise.append(vector(after.params) - vector(before))
        assert_normal(noise[t], 0.5 * 1.4 / divisor)
        if divisor < 1:
            assert metrics["cohort_size"] == 0
    assert_normal(noise[0] - noise[1], 0.5 * 1.4 / divisor * math.sqrt(2))  # independent
