"""Clients that take fewer steps: how many, what their mean is of, and that certificates count all steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from scipy import stats
from small import (
    FALSE_ALARM,
    assert_close,
    assert_uniform,
    heavy_ball,
    records,
    regression,
    squared,
    start,
    vector,
    with_stream,
)

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

RATE = 0.3125  # a multiple of 2^-32, as what is drawn by
CLIENTS, SIZE = 6, 4
FEDERATION = regression([3] * CLIENTS)
KEY = jax.random.key(2)
FIXED = fp.fixed_size(CLIENTS, SIZE)
WHOLE = fp.dropping(FIXED, RATE)


def local(steps=4, noise=0.0, **more):
    how = {"records": fp.everyone(3), "mechanism": fp.gaussian(1e6, noise)} | more
    return fp.LocalSteps(
        fp.per_example(squared), steps=steps, optimizer=lambda t: optax.sgd(0.1), **how
    )


SHARD = fp.Shard(
    jax.tree.map(lambda leaf: leaf[FEDERATION.rows[0]], FEDERATION.examples),
    jnp.int32(3),
    jnp.int32(0),
)
STEPS = 4


def by_batches(rate):
    batches = fp.epochs(STEPS, batch_size=3)
    batches = fp.straggling(batches, rate)
    sgd = optax.sgd(0.1)

    def trained(key):
        grad = fp.mean_grad(squared)
        return fp.train_locally(key, start(), SHARD, grad=grad, optimizer=sgd, batches=batches)

    return trained


def by_local_steps(rate):
    steps = fp.straggling(local(STEPS), rate)
    return lambda key: steps.run(key, start(), with_stream(SHARD, key))[0]


BY = {"batches": by_batches, "local steps": by_local_steps}


@tiers.every("name", BY)
@tiers.every("rate", [0.5, 0.0, 1.0])
def test_stragglers_take_a_uniform_number_of_their_steps(name, rate):
    """The model after one, two, three or four steps, by NumPy."""
    trained = BY[name]
    trials = 4000
    keys = jax.random.split(KEY, trials)
    found = jax.jit(jax.vmap(trained(rate)))(keys)
    found = np.concatenate([np.asarray(found["b"])[:, None], np.asarray(found["w"])], 1)
    data = records(FEDERATION, 0)
    wanted = [
        heavy_ball(vector(start()), *data, steps=k, rate=0.1, momentum=0.0)
        for k in range(1, STEPS + 1)
    ]
    away = np.abs(found[:, None] - np.stack(wanted)).max(-1)
    taken = away.argmin(1)
    assert away.min(1).max() < 1e-5
    counts, all_of_them = np.bincount(taken, minlength=STEPS), 1 - rate + rate / STEPS
    assert_uniform(counts[:-1], trials, rate / STEPS)
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], trials, all_of_them)
    assert low <= counts[-1] <= high


@pytest.mark.slow
@tiers.every("rate", [0.5, 0.0])
def test_a_stragglers_mean_is_of_the_steps_it_takes(rate):
    """Of SCAFFOLD's line 16: (x - y) / (k eta)."""
    steps = fp.straggling(local(STEPS), rate)
    keys = jax.random.split(KEY, 20)
    y, mean, _ = jax.jit(jax.vmap(lambda key: steps.run(key, start(), with_stream(SHARD, key))))(
        keys
    )
    away = vector(start()) - np.concatenate([np.asarray(y["b"])[:, None], np.asarray(y["w"])], 1)
    taken = (away @ away.T).diagonal() / np.sum(np.asarray(mean) * away, 1) / 0.1
    np.testing.assert_allclose(taken, np.round(taken), atol=1e-3)
    assert set(np.round(taken)) <= ({4} if rate == 0 else {1, 2, 3, 4})
    assert_close(away, 0.1 * np.round(taken)[:, None] * mean, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("make", [fp.dp_sgd, fp.dp_scaffold])
def test_record_level_certificates_count_all_steps(make):
    noisy_steps = local(noise=2.0, records=fp.poisson(3, 0.5, 3))
    found, whole = (
        fp.certify(make(steps, sampler=WHOLE), start(), FEDERATION, 5, 1e-3)
        for steps in (fp.straggling(noisy_steps, 0.5), noisy_steps)
    )
    assert found.epsilon == whole.epsilon
    assert found.basis == "constructed"
