"""DP-SGD-WAV and DP-FedAvg-WAV against NumPy, the noise they declare, and their limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from haar import haar as haar_matrix
from noise import check_noise
from small import assert_close, certified, one_round, regression, released, squared, start

from fedpriv import (
    LocalSteps,
    dp_sgd,
    dynamic,
    epochs,
    everyone,
    fixed_size,
    gaussian,
    laplace,
    noise,
    per_example,
    poisson,
)
from fedpriv.algorithms.wavelet import clipped_mean
from fedpriv.core.trees import flatten, unflatten
from fedpriv.papers import dp_fed_avg_wav, dp_sgd_wav, haar, haar_mechanism, wavelet_claim
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS, D = 3, 8, 4  # four parameters: no padding
FEDERATION = regression([RECORDS] * CLIENTS)
ALL, RATE, DELTA = everyone(RECORDS), 0.1, 1e-5
WEIGHTS = haar.weights(D)


def local(mechanism, **changes):
    given = {
        "records": ALL,
        "steps": 1,
        "optimizer": lambda t: optax.sgd(RATE),
        "mechanism": mechanism,
    }
    return LocalSteps(**{"gradients": per_example(squared)} | given | changes)


def gradients_of(client):
    """f64[R, d], the gradients of a client's records at the start, by hand."""
    rows = np.asarray(FEDERATION.rows)[client]
    x, y = (np.asarray(FEDERATION.examples[name], np.float64)[rows] for name in "xy")
    theta = np.asarray(flatten(start()), np.float64)
    x = np.concatenate([np.ones((RECORDS, 1)), x], 1)
    return x * (x @ theta - y)[:, None]


def numpy_clipped(gradient, clip, bound):
    """The clipping of Algorithm 1 and of Section 4.3, coefficient by coefficient."""
    transform = haar_matrix(D)[0]
    h = transform @ gradient
    groups = [range(D)] if clip == "coefficients" else [[0], [1], [2, 3]]
    for group in groups:
        limit = bound if clip == "coefficients" else bound / WEIGHTS[group[0]]
        norm = np.linalg.norm(h[list(group)])
        h[list(group)] *= min(1, limit / norm)
    return np.linalg.solve(transform, h)


@tiers.every("clip", ["levels", "coefficients"])
def test_algorithm_1_without_noise(clip):
    mechanism = haar_mechanism(D, clip_norm=0.4, noise_multiplier=0, clip=clip)
    algorithm = dp_sgd_wav(local(mechanism), sampler=everyone(CLIENTS))
    state = algorithm.init(start(), FEDERATION)
    found = one_round(algorithm)(jax.random.key(0), state, FEDERATION)[0].params
    means = [
        np.mean([numpy_clipped(g, clip, 0.4) for g in gradients_of(client)], 0)
        for client in range(CLIENTS)
    ]
    assert_close(flatten(found), flatten(start()) - RATE * np.mean(means, 0), 1e-5)


@pytest.mark.slow
def test_the_noise_of_a_lot():
    """On the coefficients of one client's sum: sqrt(L) times sigma C / W, where each record gets its own."""
    mechanism = haar_mechanism(D, clip_norm=1e-6, noise_multiplier=2e6)
    steps = local(mechanism, records=fixed_size(RECORDS, 5), optimizer=lambda t: optax.sgd(1.0))
    algorithm = dp_sgd_wav(steps, sampler=everyone(1), noise_on_each=True)
    one = regression([RECORDS])
    state = algorithm.init(start(), one)

    def coefficients(key):
        params = one_round(algorithm)(key, state, one)[0].params
        return haar.haar(5 * (flatten(start()) - flatten(params)))

    check_noise(coefficients, 2.0 / WEIGHTS * math.sqrt(5), draws=2000)


@pytest.mark.slow
def test_what_is_certified():
    """sigma / m; sqrt(L) times that with noise on each; sigma where it is calibrated."""
    options = {"clip_norm": 1.0, "noise_multiplier": 6.0}
    sampler, exact = everyone(CLIENTS), fixed_size(RECORDS, 4)

    def multipliers(algorithm):
        """Of what each view sees, in their order."""
        every = released(algorithm, 5, records=RECORDS).values()
        return [plays_of(one).multiplier for of_view in every for one in of_view]

    def gaussian_noise(sigma):
        return dp_sgd(local(gaussian(1.0, sigma), records=exact), sampler=sampler)

    plain = dp_sgd_wav(local(haar_mechanism(D, **options), records=exact), sampler=sampler)
    like = gaussian_noise(6.0 / D)
    of_both = [certified(a, 5, DELTA, records=RECORDS).epsilon for a in (plain, like)]
    assert of_both[0] == pytest.approx(of_both[1])
    each = dp_sgd_wav(
        local(haar_mechanism(D, **options), records=exact), sampler=sampler, noise_on_each=True
    )
    assert multipliers(each) == pytest.approx(multipliers(gaussian_noise(6.0 / D * 2)))
    full = pytest.approx(multipliers(gaussian_noise(6.0)))
    for clip in ("coefficients", "levels", "gradient"):
        sound = haar_mechanism(D, **options, clip=clip, calibrated=True)
        assert multipliers(dp_sgd(local(sound, records=exact), sampler=sampler)) == full


@pytest.mark.slow
def test_the_claim_is_the_papers_and_not_called_proved():
    drawn = poisson(RECORDS, 0.25, 6)
    mechanism = haar_mechanism(D, clip_norm=1.0, noise_multiplier=2.0)
    algorithm = dp_sgd_wav(local(mechanism, records=drawn, steps=3), sampler=everyone(CLIENTS))
    claim = algorithm.claim(10, DELTA)
    assert claim.epsilon == wavelet_claim(2.0, drawn.accounting, 30, DELTA, "record").epsilon
    assert "4 times as far" in claim.reasons[0]
    assert not claim.sound
    assert certified(algorithm, 10, DELTA, records=RECORDS).epsilon > claim.epsilon


def test_no_claim_is_printed_for_what_the_paper_does_not_speak_of():
    options = {"clip_norm": 1.0, "noise_multiplier": 2.0}
    paper = haar_mechanism(D, **options)
    falling = dynamic(paper, rounds=4, noise_decay=2.0)
    calibrated = haar_mechanism(D, **options, calibrated=True)
    others = [local(m) for m in (falling, calibrated, gaussian(**options), laplace(**options))]
    for steps in (*others, local(paper, unit="client")):
        assert dp_sgd_wav(steps, sampler=everyone(CLIENTS)).claim(4, DELTA) is None
    exact = dp_sgd_wav(local(paper), sampler=everyone(CLIENTS)).claim(4, DELTA)
    assert "for Poisson samples" in exact.reasons[0]


BY_CLIENT = {"sampler": everyone(CLIENTS), "optimizer": lambda t: optax.sgd(RATE)}


@pytest.mark.slow
def test_clients_that_clip_gradients():
    """Algorithm 2's local training, by NumPy: two full-batch steps of clipped records."""
    federation = regression([RECORDS])
    algorithm = dp_fed_avg_wav(
        squared,
        d=D,
        sampler=everyone(1),
        optimizer=BY_CLIENT["optimizer"],
        batches=epochs(2, RECORDS),
        clip_norm=0.3,
        noise_multiplier=0,
        bounded="gradients",
    )
    found, _ = one_round(algorithm)(
        jax.random.key(0), algorithm.init(start(), federation), federation
    )
    x = np.asarray(federation.examples["x"], np.float64)
    y = np.asarray(federation.examples["y"], np.float64)
    x, theta = np.concatenate([np.ones((RECORDS, 1)), x], 1), np.asarray(flatten(start()))
    for _ in range(2):
        g = x * (x @ theta - y)[:, None]
        g *= np.minimum(1, 0.3 / np.linalg.norm(g, axis=1))[:, None]
        theta = theta - RATE * g.mean(0)
    assert_close(flatten(found.params), theta, 1e-5)


@pytest.mark.slow
def test_clipped_gradients_bound_no_update():
    common = BY_CLIENT | {"batches": epochs(2, 4), "clip_norm": 1.0, "noise_multiplier": 8.0}
    for shape in (None, noise.isotropic()):
        loose = dp_fed_avg_wav(squared, d=D, **common, noise=shape, bounded="gradients")
        certificate = certified(loose, 3, DELTA)
        assert certificate.epsilon == math.inf
        assert "the update of many steps" in certificate.assumptions[0]
        assert not loose.claim(3, DELTA).sound
    ours = dp_fed_avg_wav(squared, d=D, **common, bounded="update")
    assert plays_of(released(ours, 3)["third_party"][0]).multiplier == pytest.approx(
        8.0 / math.sqrt(D)
    )


@pytest.mark.slow
def test_a_mean_of_clipped_gradients_counts_the_records_that_are_there():
    mask = jnp.arange(RECORDS) < 5
    batch = jax.tree.map(lambda leaf: leaf[FEDERATION.rows[0]], FEDERATION.examples)
    found = jax.jit(clipped_mean(per_example(squared), 0.3))(start(), batch, mask)
    g = gradients_of(0)[:5]
    g *= np.minimum(1, 0.3 / np.linalg.norm(g, axis=1))[:, None]
    assert_close(found, unflatten(jnp.asarray(g.mean(0), jnp.float32), start()), 1e-5)
