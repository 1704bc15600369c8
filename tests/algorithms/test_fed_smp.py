"""Fed-SMP: sparsify, scale, clip, perturb the kept coordinates only, in this order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from small import (
    FALSE_ALARM,
    assert_close,
    assert_normal,
    heavy_ball,
    one_round,
    records,
    regression,
    rows_of,
    sgd,
    squared,
    start,
    vector,
)

from fedpriv import (
    epochs,
    everyone,
    fed_smp,
    full_batch,
    poisson,
)
from fedpriv.core.trees import flatten
from fedpriv.papers import fed_avg_sparse, select_rand_k, select_top_k

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = [4, 1, 3, 2, 4]
FEATURES = 11  # d = 12
KEY = jax.random.key(3)


def step_of(algorithm, federation, key=KEY, params=None):
    """f64[d], what a round subtracts from the model, and the round's metrics."""
    params = start(FEATURES) if params is None else params
    state = algorithm.init(params, federation)
    after, metrics = one_round(algorithm)(key, state, federation)
    return vector(params) - vector(after.params), metrics


def deltas_of(federation, steps):
    """f64[clients, d], by NumPy."""
    theta = vector(start(FEATURES))
    trained = [
        heavy_ball(theta, *records(federation, i), steps=steps, rate=0.1, momentum=0.5)
        for i in range(federation.num_clients)
    ]
    return theta - np.stack(trained)


def clipped_mean(contributions, clip_norm):
    norms = np.linalg.norm(contributions, axis=1, keepdims=True)
    return np.mean(contributions * np.minimum(1, clip_norm / norms), axis=0)


def of_rand_k(clip_norm, **how):
    return fed_smp(
        squared,
        sampler=everyone(5),
        optimizer=sgd,
        batches=epochs(3, 4),
        sparsifier=select_rand_k(5 / 12, **how),
        clip_norm=clip_norm,
        noise_multiplier=0,
    )


@pytest.mark.slow
def test_rand_k_that_is_biased_does_not_scale():
    """All is smaller by d / k where the bound is, too; some updates are below it."""
    federation, scale = regression(SIZES, features=FEATURES), 12 / 5
    clip_norm = scale * float(np.median(np.linalg.norm(deltas_of(federation, 3), axis=1)))
    step, _ = step_of(of_rand_k(clip_norm), federation)
    smaller, _ = step_of(of_rand_k(clip_norm / scale, unbiased=False), federation)
    assert_close(smaller, step / scale)


def test_rand_k_sparsifies_scales_and_then_clips():
    scale = 12 / 5
    federation = regression(SIZES, features=FEATURES)
    deltas = deltas_of(federation, 3)
    clip_norm = 13 / 24 * scale * float(np.median(np.linalg.norm(deltas, axis=1)))
    algorithm = of_rand_k(clip_norm)
    step, metrics = step_of(algorithm, federation)
    kept = np.flatnonzero(step)
    assert len(kept) == 5  # one mask for the whole cohort
    mask = np.isin(np.arange(12), kept)
    sparse = scale * deltas * mask
    norms = np.linalg.norm(sparse, axis=1)
    assert 0 < np.sum(norms > clip_norm) < 5  # clips some and not others
    assert_close(step, clipped_mean(sparse, clip_norm))
    np.testing.assert_allclose(metrics["diagnostics"]["mean_update_norm"], norms.mean(), rtol=1e-5)
    # Other orders would be noticed.
    for wrong in (
        clipped_mean(deltas, clip_norm) * mask * scale,
        clipped_mean(deltas, clip_norm) * mask,
        clipped_mean(deltas * mask, clip_norm),
        2 * clipped_mean(sparse / 2, clip_norm),
    ):
        assert np.abs(step - wrong).max() > 1e-3 * np.abs(step).max()
    # Every round has a mask of its own.
    others = [step_of(algorithm, federation, jax.random.key(t))[0] for t in range(5)]
    assert len({tuple(other != 0) for other in others}) == 5


@pytest.mark.slow
def test_top_k_keeps_what_public_training_moves_most_and_does_not_scale():
    federation = regression(SIZES, features=FEATURES, public=6)
    deltas = deltas_of(federation, 3)
    clip_norm = float(np.median(np.linalg.norm(deltas, axis=1)))
    algorithm = fed_smp(
        squared,
        sampler=everyone(5),
        optimizer=sgd,
        batches=epochs(3, 4),
        sparsifier=select_top_k(5 / 12, epochs(2, 6)),
        clip_norm=clip_norm,
        noise_multiplier=0,
    )
    step, metrics = step_of(algorithm, federation)
    theta = vector(start(FEATURES))
    public = heavy_ball(
        theta, *rows_of(federation, federation.public), steps=2, rate=0.1, momentum=0.5
    )
    mask = np.isin(np.arange(12), np.argsort(-np.abs(theta - public))[:5])
    np.testing.assert_array_equal(step != 0, mask)
    assert_close(step, clipped_mean(deltas * mask, clip_norm))
    assert metrics["uplink"].values == 5
    # A change of the private data moves the step and not the mask.
    private = jnp.ones(len(federation.examples["y"])).at[federation.public].set(0)
    y = federation.examples["y"] + 3 * private
    other = federation.replace(examples=federation.examples | {"y": y})
    changed, _ = step_of(algorithm, other)
    np.testing.assert_array_equal(changed != 0, mask)
    assert np.abs(changed - step).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rand_k", "top_k"])
def test_a_mask_stays_for_its_period(kind):
    """That of the first round by the run's key; public training chooses by the model of that round."""
    federation = regression(SIZES, features=FEATURES, public=6)
    make = {
        "rand_k": lambda period: select_rand_k(0.5, unbiased=False, period=period),
        "top_k": lambda period: select_top_k(0.5, full_batch(), period=period),
    }[kind]

    def masks(period, key):
        options = {"sampler": everyone(5), "optimizer": sgd, "batches": full_batch()}
        options |= {"clip_norm": 1.0, "noise_multiplier": 0.3}
        algorithm = fed_smp(squared, **options, sparsifier=make(period))
        state, found = algorithm.init(start(FEATURES), federation), []
        for t in range(7):
            before = vector(state.params)
            state, _ = one_round(algorithm)(jax.random.fold_in(key, t), state, federation)
            found.append(tuple(np.flatnonzero(vector(state.params) != before)))
            assert found[-1] == tuple(np.asarray(state.kept))
        return found

    each, of_three, whole = (masks(period, KEY) for period in (1, 3, None))
    assert of_three[:3] == [each[0]] * 3
    assert of_three[3:6] == [of_three[3]] * 3
    assert whole == [each[0]] * 7
    assert len({*of_three}) > 1
    assert kind == "top_k" or of_three == [each[t - t % 3] for t in range(7)]
    assert kind == "top_k" or masks(None, jax.random.key(4)) != whole


@pytest.mark.slow
def test_rand_k_is_unbiased():
    """The mean over masks of the released step is FedAvg's step."""
    federation = regression(SIZES, features=FEATURES)
    common = {"sampler": everyone(5), "optimizer": sgd, "batches": full_batch()}
    sparse = fed_avg_sparse(squared, sparsifier=select_rand_k(0.25), **common)
    trials = 3000
    state = sparse.init(start(FEATURES), federation)

    @jax.jit
    def run(keys):
        def one(key):
            after = one_round(sparse)(key, state, federation)[0].params
            return flatten(state.params) - flatten(after)

        return jax.lax.map(one, keys)

    steps = np.asarray(run(jax.random.split(KEY, trials)), np.float64)
    dense = deltas_of(federation, 1).mean(0)
    # A coordinate is 0 or d / k times its dense value: the mean has variance value^2 (d/k - 1) / trials.
    z = (steps.mean(0) - dense) / (np.abs(dense) * np.sqrt((4 - 1) / trials))
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 2 / len(z))
    sizes = np.abs(steps)
    np.testing.assert_allclose(sizes.max(0), 4 * np.abs(dense), rtol=1e-4)
    np.testing.assert_array_equal(np.sum(steps != 0, axis=1), 3)


def still(features, clients, public):
    """A federation whose gradients are 0 at `start`, so that a round releases its noise alone."""
    federation = regression([2] * clients, features=features, public=public)
    zero = jax.tree.map(jnp.zeros_like, federation.examples)
    return federation.replace(examples=zero | {"y": zero["y"] + start()["b"]})


@pytest.mark.slow
def test_noise_on_the_kept_coordinates_only():
    """Of the released mean: standard deviation C sigma / r where kept, exactly 0 elsewhere."""
    sampler = poisson(6, 1e-6, 2)  # nobody is drawn
    sparsifier = select_top_k(0.4, full_batch())
    divisor = sampler.expected_size
    features, clip_norm, sigma = 4999, 0.4, 1.4
    algorithm = fed_smp(
        squared,
        sampler=sampler,
        optimizer=sgd,
        batches=full_batch(),
        sparsifier=sparsifier,
        clip_norm=clip_norm,
        noise_multiplier=sigma,
    )
    params = jax.tree.map(jnp.zeros_like, start(features)) | {"b": start()["b"]}
    step, metrics = step_of(algorithm, still(features, 6, 2), params=params)
    assert np.count_nonzero(step) == 2000
    assert_normal(step[step != 0], clip_norm * sigma / divisor)
    assert metrics["cohort_size"] == 0
