"""Local training: which records it takes, how often, and that it is optax and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_uniform,
    gradient,
    records,
    regression,
    squared,
    start,
    vector,
)

from fedpriv import Shard, epochs, full_batch, mean_grad, random_batches, train_locally

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CAPACITY = 7


def visits(batches, key, size, capacity=CAPACITY):
    """i32[capacity]: how often `train` takes each record, seen from outside through its gradient."""
    shard = Shard(jnp.arange(capacity), size)

    def count(params, batch, mask):
        return -jnp.zeros_like(params).at[batch].add(mask)

    return train_locally(
        key, jnp.zeros(capacity), shard, grad=count, optimizer=optax.sgd(1.0), batches=batches
    )


@tiers.every("batch_size", [3, 50])
def test_an_epoch_visits_each_record_once(batch_size):
    keys = jax.random.split(jax.random.key(0), CAPACITY)
    sizes = jnp.arange(1, CAPACITY + 1)
    seen = jax.jit(jax.vmap(lambda key, size: visits(epochs(3, batch_size), key, size)))(
        keys, sizes
    )
    np.testing.assert_array_equal(seen, 3 * (np.arange(CAPACITY) < np.asarray(sizes)[:, None]))


def planned(batches, size, steps):
    """The number of steps, and the positions that each of the first `steps` takes."""

    @jax.jit
    def run(size):
        plan = batches(jax.random.key(0), size, CAPACITY)
        return plan.steps, jax.vmap(plan.at)(jnp.arange(steps))

    count, (positions, mask) = jax.device_get(run(jnp.int32(size)))
    return count, [p[m] for p, m in zip(positions, mask, strict=True)]


def test_every_epoch_has_its_own_order_and_a_smaller_last_batch():
    count, batches = planned(epochs(200, 3), 5, 400)
    assert count == 400
    assert [len(b) for b in batches[:4]] == [3, 2, 3, 2]
    orders = np.array([np.concatenate(batches[i : i + 2]) for i in range(0, 400, 2)])
    np.testing.assert_array_equal(np.sort(orders, 1), [np.arange(5)] * 200)
    assert len(np.unique(orders, axis=0)) > 60  # of 120; expected 97
    counts = (orders[:, :, None] == np.arange(5)).sum(0)  # each record in each place
    assert_uniform(counts, 200, 1 / 5)


def test_a_step_takes_a_uniform_subset():
    count, batches = planned(random_batches(4000, 2), 4, 4000)
    assert count == 4000
    subsets, counts = np.unique(np.sort(batches, 1), axis=0, return_counts=True)
    np.testing.assert_array_equal(subsets, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    assert_uniform(counts, 4000, 1 / 6)


@tiers.every("size", [3, 1, 7])
def test_steps_and_full_batch_take_real_records_only(size):
    count, batches = planned(random_batches(5, 3), size, 5)
    assert count == 5
    for batch in batches:
        assert len(set(batch)) == len(batch) == min(3, size)
        assert max(batch) < size
    count, batches = planned(full_batch(), size, 1)
    assert count == 1
    np.testing.assert_array_equal(batches[0], np.arange(size))


def test_mean_grad_is_over_real_examples():
    federation = regression([6])
    x, y = records(federation, 0)
    mask = np.array([True, False, True, True, False, False])
    batch = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}
    grad = jax.jit(mean_grad(squared))
    expected = gradient(vector(start()), x[mask], y[mask])
    assert_close(vector(grad(start(), batch, mask)), expected)
    np.testing.assert_array_equal(vector(grad(start(), batch, np.zeros(6, bool))), 0)


OPTIMIZERS = {
    "weight decay": optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)),
    "nesterov": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": optax.adam(0.05),
}


@tiers.every("name", OPTIMIZERS, kind=lambda optimizer: "an optimiser")
def test_training_is_optax_in_a_loop(name):
    optimizer = OPTIMIZERS[name]
    federation = regression([4])
    shard = Shard(jax.tree.map(lambda leaf: leaf[federation.rows[0]], federation.examples), 4)
    trained = jax.jit(
        lambda: train_locally(
            jax.random.key(0),
            start(),
            shard,
            grad=mean_grad(squared),
            optimizer=optimizer,
            batches=epochs(5, 4),  # five steps on all records
        )
    )()
    x, y = records(federation, 0)
    params, state = start(), optimizer.init(start())

    @jax.jit
    def step(grads, state, params):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(5):
        g = np.float32(gradient(vector(params), x, y))
        params, state = step({"b": g[0], "w": g[1:]}, state, params)
    assert_close(trained, params)
