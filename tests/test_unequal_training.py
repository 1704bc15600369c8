"""Records of clients that hold unequal numbers of them: what is drawn, computed and perturbed, against NumPy."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_normal,
    assert_uniform,
    regression,
    start,
    vector,
    with_stream,
)
from unequal import (
    CLIP,
    RATE,
    ROUNDS,
    SIZES,
    STEPS,
    steps,
    trained,
)

import fedpriv as fp
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import haar_noise

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DRAWS = {
    "secret, all": fp.everyone(40),
    "secret, Poisson": fp.poisson(40, 1.0),
    "public, Poisson": fp.PublicSizes(SIZES, rate=1.0),
    "public, batches": fp.PublicSizes(SIZES, batch=5),
}


def alike(sizes=SIZES):
    """All records of a client are the same, so that it does not matter which of them a batch holds."""
    example = regression([1] * len(sizes)).examples
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return fp.Federation.from_arrays({n: np.asarray(v)[owner] for n, v in example.items()}, rows)


def share_of(name, size):
    """A client's number of records in a batch over what their sum is divided by."""
    return size / 40 if name.startswith("secret") else 1.0


def clipped_gradients(theta, federation, clip=CLIP):
    """f64[clients, d]: of each client's record."""
    rows = np.asarray(federation.rows)[:, 0]
    x, y = (np.asarray(federation.examples[name], np.float64)[rows] for name in "xy")
    residual = x @ theta[1:] + theta[0] - y
    g = residual[:, None] * np.concatenate([np.ones((len(y), 1)), x], 1)
    return g * np.minimum(1, clip / np.linalg.norm(g, axis=1, keepdims=True))


def one(theta, federation, i):
    return clipped_gradients(theta, federation)[i]


@tiers.every("name", ["secret, all", "public, Poisson"])
def test_federated_averaging_is_numpys(name):
    federation, theta = alike(), vector(start())
    for _ in range(ROUNDS):
        local = []
        for i, size in enumerate(SIZES):
            y = theta
            for _ in range(STEPS):
                y = y - RATE * share_of(name, size) * one(y, federation, i)
            local.append(y)
        theta = np.mean(local, 0)
    state = trained(fp.dp_sgd(steps(DRAWS[name]), sampler=fp.everyone(4)), federation)
    assert_close(vector(state.params), theta, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["public, batches", "secret, Poisson"])
def test_scaffold_is_numpys(name):
    federation, theta = alike(), vector(start())
    control, controls = np.zeros(4), np.zeros((4, 4))
    for _ in range(ROUNDS):
        local, means = [], []
        for i, size in enumerate(SIZES):
            y, total = theta, 0.0
            for _ in range(STEPS):
                h = share_of(name, size) * one(y, federation, i)
                y, total = y - RATE * (h + control - controls[i]), total + h
            local.append(y)
            means.append(total / STEPS)
        control = control + np.mean(np.array(means) - controls, 0)
        theta, controls = np.mean(local, 0), np.array(means)
    state = trained(fp.dp_scaffold(steps(DRAWS[name]), sampler=fp.everyone(4)), federation)
    assert_close(vector(state.params), theta, 1e-6)
    assert_close(state.control, control, 1e-6)
    assert_close(state.controls, controls, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("public, batches", "wavelet"), ("secret, Poisson", "dynamic")]
)
def test_other_mechanisms_take_them(name, kind):
    """With next to no noise: the Haar mechanism clips alike, and a schedule's clip norm falls."""
    federation, theta = alike(), vector(start())
    shape = {"clip_norm": CLIP, "noise_multiplier": 1e-7}
    used, clips = fp.mechanism(flat(), haar_noise(4), **shape), [CLIP] * ROUNDS
    if kind == "dynamic":
        used = fp.dynamic(fp.gaussian(**shape), rounds=2, clip_decay=4.0, parts=2)
        clips = [CLIP, CLIP / 2]
    for clip in clips:
        share = np.array([share_of(name, size) for size in SIZES])[:, None]
        theta = theta - RATE * np.mean(share * clipped_gradients(theta, federation, clip), 0)
    make = fp.papers.dp_sgd_wav if kind == "wavelet" else fp.dp_sgd
    state = trained(make(steps(DRAWS[name], used, 1), sampler=fp.everyone(4)), federation)
    assert_close(vector(state.params), theta, 1e-5)


@pytest.mark.slow
def test_equal_sizes_cost_what_exact_subsets_do():
    """`test_limits.py` has that they train the same."""
    federation = regression([8] * 4)
    noisy = fp.gaussian(CLIP, 1.3)
    draws = fp.fixed_size(8, 3), fp.PublicSizes([8] * 4, batch=3)
    algorithms = [fp.dp_sgd(steps(each, noisy), sampler=fp.fixed_size(4, 2)) for each in draws]
    for view in fp.privacy.VIEWS:
        fixed, public = (
            fp.certify(each, start(), federation, 9, 1e-3, view=view) for each in algorithms
        )
        assert public.epsilon == pytest.approx(fixed.epsilon, rel=1e-9)
        assert public.relation == fixed.relation


@cache
def drawing(sampler):
    """(keys, a client's size) -> its batches; one program for all sizes."""
    return jax.jit(jax.vmap(sampler.draw, (0, None)))


@pytest.mark.slow
@tiers.every("size", [7, 3, 40])
def test_batches_are_uniform_subsets_of_a_clients_own_records(size):
    """Every record, and every pair, as often as any other, by binomial bounds of 1e-6 for all of them."""
    draws, batch = 40_000, 5
    sampler = fp.PublicSizes((1, 3, 7, 40), batch=batch)
    keys = jax.random.split(jax.random.key(1), draws)
    ids, mask, _ = drawing(sampler)(keys, jnp.int32(size))
    kept = min(size, batch)
    assert np.array_equal(np.asarray(mask), np.tile(np.arange(5) < kept, (draws, 1)))
    there = np.zeros((draws, 41), int)
    np.add.at(there, (np.arange(draws)[:, None], np.asarray(ids)), 1)
    there = there[:, :size]
    assert there.max() == 1
    assert np.all(there.sum(1) == kept)
    pairs = (there.T @ there)[np.triu_indices(size, 1)]
    if kept < size:
        assert_uniform(there.sum(0), draws, kept / size)
        assert_uniform(pairs, draws, kept * (kept - 1) / (size * (size - 1)))


SOME = {
    "secret, Poisson": fp.poisson(40, 0.3),
    "public, Poisson": fp.PublicSizes(SIZES, rate=0.3),
    "public, batches": fp.PublicSizes(SIZES, batch=5),
}


def one_step(gradients, sampler, mechanism, count):
    """(keys, a client's size) -> how far a step of rate 1 moves `count` parameters; one program for all sizes."""
    local = fp.LocalSteps(gradients, sampler, 1, lambda t: optax.sgd(1.0), mechanism)

    def of_key(key, size):
        shard = with_stream(fp.Shard({"x": jnp.eye(40)}, size), key)
        return local.run(key, jnp.zeros(count), shard)[0]

    return jax.jit(jax.vmap(of_key, (0, None)))


@cache
def held_by(sampler):
    """Of one-hot records."""
    gradients = fp.per_example(lambda params, example: -params @ example["x"])
    return one_step(gradients, sampler, fp.gaussian(9.0, 0.0), 40)


@cache
def noise_by(sampler):
    """Of gradients that are 0."""
    gradients = fp.per_example(lambda params, example: 0.0 * jnp.sum(params))
    return one_step(gradients, sampler, fp.gaussian(CLIP, 1.7), 20)


@tiers.every(
    "name", ["public, batches", "public, Poisson", "secret, Poisson"], kind=lambda name: name[:6]
)
@tiers.every("size", [7, 1, 40])
def test_a_batch_is_drawn_among_a_clients_own_records(name, size):
    """Run through the engine: a mean over a batch of one-hot records shows which it held, and its divisor."""
    rate, batch, draws = 0.3, 5, 4000
    keys = jax.random.split(jax.random.key(2), draws)
    moved = np.asarray(held_by(SOME[name])(keys, jnp.int32(size)), np.float64)
    divisor = {"secret, Poisson": rate * 40, "public, Poisson": rate * size}.get(
        name, min(batch, size)
    )
    held = np.round(moved * divisor)
    np.testing.assert_allclose(moved * divisor, held, atol=1e-5)
    assert set(np.unique(held)) <= {0.0, 1.0}
    assert np.all(held[:, size:] == 0)
    each = rate if "Poisson" in name else min(batch, size) / size
    assert_uniform(held[:, :size].sum(0), draws, each)
    if "Poisson" in name and size > 1:  # a Poisson batch is no larger where another record is in it
        pairs = (held.T @ held)[np.triu_indices(size, 1)]
        assert_uniform(pairs, draws, rate**2)


@tiers.every("name", ["public, batches", "secret, Poisson", "public, Poisson"])
@tiers.every("size", [7, 1, 40])
def test_a_clients_noise_is_that_of_its_divisor(name, size):
    """Gradients are 0, so that a step is noise alone: sigma C over the divisor, by a chi-square and a KS test."""
    keys = jax.random.split(jax.random.key(3), 200)
    moved = noise_by(SOME[name])(keys, jnp.int32(size))
    divisor = {"secret, Poisson": 0.3 * 40, "public, Poisson": 0.3 * size}.get(name, min(5, size))
    assert_normal(np.asarray(moved), 1.7 * CLIP / divisor)


@pytest.mark.slow
def test_scaffold_counts_clients_by_their_public_sizes():
    """Models and control variates alike: the server's c is the weighted mean of the clients' own."""
    federation, theta = alike(), vector(start())
    weights = np.array(SIZES)[:, None] / np.mean(SIZES)
    control, controls = np.zeros(4), np.zeros((4, 4))
    for _ in range(ROUNDS):
        local, means = [], []
        for i in range(len(SIZES)):
            y, total = theta, 0.0
            for _ in range(STEPS):
                h = one(y, federation, i)
                y, total = y - RATE * (h + control - controls[i]), total + h
            local.append(y)
            means.append(total / STEPS)
        theta = theta + np.mean(weights * (np.array(local) - theta), 0)
        controls = np.array(means)
        control = np.mean(weights * controls, 0)
    algorithm = fp.dp_scaffold(
        steps(DRAWS["public, batches"]),
        sampler=fp.everyone(4),
        weighting=fp.ByPublicSizes(federation.size),
    )
    state = trained(algorithm, federation)
    assert_close(vector(state.params), theta, 1e-6)
    assert_close(state.control, control, 1e-6)
    assert_close(state.controls, controls, 1e-6)
