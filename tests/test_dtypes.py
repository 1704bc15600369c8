"""Models of fewer or more bits, and JAX in 64 bits: bounds hold in 32 bits.

`test_every_algorithm.py` has the rounds of every algorithm.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from every_algorithm import FEDERATION, MAKERS, PARAMS
from every_mechanism import ENTRIES, Size, that
from small import assert_identical, assert_normal, classification, filled, squared

import fedpriv as fp
from fedpriv.compression.sparsification import top_k
from fedpriv.core.trees import flatten, unflatten, widened
from fedpriv.devices.layout import Strategy, sum_over, use
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.described import scaling_of
from fedpriv.mechanisms.noise import isotropic
from fedpriv.mechanisms.per_example import private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def types(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def as_type(tree, kind):
    return jax.tree.map(lambda x: x.astype(kind), tree)


@pytest.mark.slow
def test_a_run_in_64_bits():

    def score(params, example):
        return {"accuracy": 0.0, "loss": squared(params, example), "weight": 1.0}

    test = jax.tree.map(lambda leaf: leaf[:5], FEDERATION.examples)
    algorithm = MAKERS["adaptive_fed_avg"](codec=fp.qsgd(4))
    with jax.enable_x64(True):
        history = fp.simulate(algorithm, PARAMS, FEDERATION, test, score=score, rounds=2)
        assert np.isfinite(history.loss).all()


BIG = Size(5000, 2)


ISOTROPIC = that(lambda entry: entry.noise is isotropic and not entry.joint)
OF_EACH_LENGTH = tiers.one_of_each(
    ISOTROPIC, lambda entry: (entry.whole is fp.laplace, entry.longest)
)


@tiers.every("name", OF_EACH_LENGTH, kind=lambda entry: entry.whole is fp.laplace)
def test_a_bound_holds_in_32_bits(name):
    """In 16 bits 5000 entries would be rounded, or (float16 below 6e-8) doubled, and their squares not summed."""
    rng = np.random.default_rng(0)
    used = ENTRIES[name].make(BIG, 0.01, 1.0).in_round(0)
    clip = jax.jit(used.clip)
    for kind, scale in itertools.product(("bfloat16", "float16"), (1e-6, 1e-3, 1.0, 100.0)):
        u = scale * rng.uniform(0.5, 1.5, 5000)
        update = as_type({"a": jnp.asarray(u[:1000]), "b": jnp.asarray(u[1000:])}, kind)
        bounded, norm = clip(update)
        assert {x.dtype for x in jax.tree.leaves(bounded)} == {np.dtype("float32")}
        wide, wide_norm = clip(as_type(update, "float32"))
        assert_identical((bounded, norm), (wide, wide_norm))
        order = 1 if used.noise == "laplace" else 2
        length = np.linalg.norm(np.concatenate(jax.tree.leaves(bounded)).astype(float), order)
        assert length <= 0.01 * ENTRIES[name].longest(BIG) * (1 + 1e-3)
        if ENTRIES[name].clipping is flat:
            true = np.linalg.norm(np.asarray(flatten(update), np.float64), order)
            assert norm == pytest.approx(true, rel=1e-4)
            assert length == pytest.approx(min(0.01, true), rel=1e-3)


@tiers.every("how", [("bfloat16", False), ("float16", True)])
@pytest.mark.slow
def test_clipped_records_of_a_model_of_16_bits(how):
    """Each by itself; the mean is in 32 bits, also with its noise."""
    kind, closed = how
    federation, _, model = classification()
    gradients = fp.per_example(model.loss, 1e-2, closed_form=closed)
    params = as_type(filled(model.init), kind)
    examples = jax.tree.map(lambda leaf: leaf[:8], federation.examples)
    used = fp.gaussian(1e-3, 0.5)

    @jax.jit
    def one_by_one(params, examples):
        of_batch = gradients(params, examples)
        scales = scaling_of(used).scales(of_batch.norms)

        def alone(j):
            of_one = jax.tree.map(lambda s: jnp.where(jnp.arange(8) == j, s, 0.0), scales)
            return of_batch.weighted(of_one)

        return jax.lax.map(alone, jnp.arange(8))

    each = jax.tree.leaves(one_by_one(params, examples))
    assert {x.dtype for x in each} == {np.dtype("float32")}
    vectors = np.concatenate([np.asarray(x, float).reshape(8, -1) for x in each], 1)
    assert (np.linalg.norm(vectors, axis=1) <= 1e-3 * (1 + 1e-3)).all()
    mean = jax.jit(private_mean(gradients, used, 4.0))
    found = mean(jax.random.key(0), params, examples, jnp.ones(8, bool))
    assert {x.dtype for x in jax.tree.leaves(found)} == {np.dtype("float32")}


@tiers.every("clients", [3, "map", "vmap"], kind=lambda clients: "a layout")
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_sums_do_not_stop_where_16_bits_end(clients, kind):
    """1 + 1 + ... stays 256 in bfloat16, 2048 in float16."""
    n = 3000
    ones = jnp.ones((n, 2), kind)
    with use(Strategy(clients, 1)):
        total, kept = jax.jit(lambda x: sum_over(lambda row: (row, row), jnp.arange(n) < n - 1, x))(
            ones
        )
    np.testing.assert_array_equal(total, np.full(2, n - 1.0))
    assert (total.dtype, kept.dtype) == (jnp.float32, jnp.dtype(kind))


SUMS = {"a": (40, 50), "b": (1000,)}


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@tiers.every("kind", ["bfloat16", "float32"])
def test_noise_has_32_bits(noise, kind):
    make = getattr(fp, noise)
    zeros = {name: jnp.zeros(shape, kind) for name, shape in SUMS.items()}
    key = jax.random.key(0)
    noisy = make(0.5, 2.0).perturb(key, zeros)
    values = np.concatenate([np.ravel(x) for x in jax.tree.leaves(noisy)])
    assert values.dtype == np.float32
    assert len(np.unique(values)) > 2990  # 16 bits have fewer
    if make is fp.gaussian:
        assert_normal(values, 1.0)
    with jax.enable_x64(True):  # to the bit, whatever JAX's default
        assert_identical(make(0.5, 2.0).perturb(key, zeros), noisy)


def test_noise_is_as_wide_as_the_sum():
    with jax.enable_x64(True):
        for used in (fp.gaussian(0.5, 2.0), fp.laplace(0.5, 2.0)):
            noisy = used.perturb(jax.random.key(0), jnp.zeros(3000, "float64"))
            assert noisy.dtype == jnp.float64
            assert (np.float32(noisy) != noisy).sum() > 2990


def test_vectors_of_trees():
    mixed = {"a": jnp.ones((2, 2), "bfloat16"), "b": jnp.arange(3.0), "c": jnp.ones(1, "float16")}
    vector = flatten(mixed)
    assert vector.dtype == flatten(mixed["a"]).dtype == jnp.float32
    assert types(unflatten(vector, mixed)) == types(mixed)
    assert_identical(unflatten(vector, mixed), mixed)
    assert {x.dtype for x in jax.tree.leaves(widened(mixed))} == {np.dtype("float32")}
    numbers = unflatten(jnp.arange(8), mixed)
    assert {x.dtype for x in jax.tree.leaves(numbers)} == {np.dtype("int32")}  # they stay numbers


@tiers.every("kind", ["bfloat16", "float16", "float64"])
def test_the_largest_of_other_types(kind):
    with jax.enable_x64(kind == "float64"):
        magnitude = jnp.asarray([3.0, 0.5, 7.0, 0.0, 2.0], kind)
        found = jax.jit(top_k, static_argnums=1)(magnitude, 3)
        np.testing.assert_array_equal(found, [0, 2, 4])
