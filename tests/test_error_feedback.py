"""Sparse messages: error feedback against NumPy, what is certified, and codecs of one's own that clipping bounds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from own_algorithms import error_feedback
from small import (
    assert_close,
    gradient,
    members,
    one_round,
    records,
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, D, CLIP, SIGMA = 4, 4, 0.1, 1.2
FEDERATION, PARAMS = regression([2, 3, 1, 3]), start()
SAMPLER, NOISY = fp.poisson(CLIENTS, 0.7), fp.gaussian(CLIP, SIGMA)
RIVAL = {
    "sampler": SAMPLER,
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": fp.full_batch(),
    "clip_norm": CLIP,
    "noise_multiplier": SIGMA,
}


def after(algorithm, rounds):
    state = algorithm.init(PARAMS, FEDERATION)
    for t in range(rounds):
        state, metrics = one_round(algorithm)(jax.random.key(t), state, FEDERATION)
    return state, metrics


@tiers.every("k", [2, 1])
def test_error_feedback_against_numpy(k):
    """Five rounds of two clients: what is sent is clipped, what is not sent is remembered, also while absent."""
    sampler = fp.fixed_size(CLIENTS, 2)
    theta, memory = vector(PARAMS), np.zeros((CLIENTS, D))
    for t in range(5):
        total = np.zeros(D)
        for i in members(sampler, jax.random.key(t), t):
            update = memory[i] - 0.1 * gradient(theta, *records(FEDERATION, i))
            sent = np.where(np.abs(update) >= np.sort(np.abs(update))[-k], update, 0)
            memory[i] = update - sent
            total += sent * min(1, CLIP / np.linalg.norm(sent))
        theta = theta + total / 2
    codec, mechanism = fp.top_k(k), fp.gaussian(CLIP, 0)
    state, metrics = after(error_feedback(squared, sampler, mechanism, codec), 5)
    assert_close(vector(state.params), theta, 1e-6)
    assert_close(state.memory, memory, 1e-6)
    assert np.count_nonzero(memory.any(1)) > 2
    assert metrics["uplink"].bits() == {1: 32 + 2, 2: 64 + 4}[k]


@pytest.mark.slow
@tiers.every("name", ["qsgd", "top_k"])
def test_what_is_sent_and_what_is_remembered_are_the_update(name):
    """The client's own coding is that of the cohort, also where levels are drawn."""
    codec = {"top_k": fp.top_k, "qsgd": fp.qsgd}[name](2)
    one = regression([3])
    algorithm = error_feedback(squared, fp.everyone(1), fp.unprotected("a test"), codec)
    state, _ = one_round(algorithm)(jax.random.key(0), algorithm.init(PARAMS, one), one)
    sent = vector(state.params) - vector(PARAMS)
    assert np.any(sent)
    assert np.any(state.memory)
    update = -0.1 * gradient(vector(PARAMS), *records(one, 0))
    assert_close(sent + state.memory[0], update, 1e-5)


@pytest.mark.slow
def test_a_third_party_s_certificate_is_that_of_dp_fed_avg():
    """The server adds the noise, which hides nothing from it."""
    algorithm, rival = error_feedback(squared, SAMPLER, NOISY), fp.dp_fed_avg(squared, **RIVAL)
    traced, theirs = (fp.trace_round(a, PARAMS, FEDERATION) for a in (algorithm, rival))
    assert traced.basis == "constructed"
    found = {view: traced.certify(9, 1e-3, view=view).epsilon for view in fp.privacy.VIEWS}
    assert found["third_party"] == theirs.certify(9, 1e-3).epsilon < math.inf
    assert found["server"] == found["server_secagg"] == math.inf
    reasons = {r.reason for r in traced.seen(9) if r.view != "third_party"}
    assert reasons == {"the server adds the noise, after it has decoded messages"}


def sum_of(codec, mechanism):
    """One sum, of the clients' numbers from 1, in the place of a model."""

    def round(key, state, cohort):
        def client(key, shard):
            return jnp.full(D, jnp.float32(1) + shard.client_id)

        total, metrics, _ = cohort.sum(client, key, mechanism=mechanism, codec=codec)
        return fp.ModelState(total, state.round + 1), metrics

    return fp.Algorithm(fp.start, round, fp.everyone(CLIENTS))


@tiers.every("places", [[3, 0, 3], [2, 2, 2], [0, 9, 1]])
def test_coordinates_that_come_twice_or_do_not_exist_get_nobody_past_the_clip(places):
    """What is clipped is what a codec of one's own decodes: values at the same place add up before."""
    values = (
        np.float32([0.4, 0.3, 0.2]) * CLIP
    )  # each below the clip norm, with the factors 1 and 2

    def code(key, message):
        return jnp.zeros(D).at[jnp.array(places)].add(values * message[0], mode="drop"), {}

    codec = fp.types.Codec(code, lambda d: fp.types.Wire(3, 32 + 2), lossy=True)
    zeros = jnp.zeros(D)
    run = one_round(sum_of(codec, fp.gaussian(CLIP, 0)))
    state, metrics = run(jax.random.key(0), fp.start(zeros, None), FEDERATION)
    decoded = np.bincount(places, values, minlength=10)[:D] * np.arange(1, CLIENTS + 1)[:, None]
    norms = np.linalg.norm(decoded, axis=1, keepdims=True)
    assert norms.max() > 1.5 * CLIP
    assert_close(state.params, np.sum(decoded * np.minimum(1, CLIP / norms), 0), 1e-6)
    assert metrics["uplink"].bits() == 3 * 34
    noisy = sum_of(codec, NOISY)
    certificate = fp.trace_round(noisy, zeros, FEDERATION).certify(1, 1e-3)
    assert certificate.basis == "constructed"
    assert certificate.epsilon < math.inf
