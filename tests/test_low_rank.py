"""Local training with the largest matrix as a low-rank sum against the same with the matrix itself."""

import math
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import assert_close

from fedpriv import (
    Federation,
    Shard,
    Strategy,
    epochs,
    fed_avg,
    fixed_size,
    mean_grad,
    models,
    one_round,
    train_locally,
)
from fedpriv.core.interpreted import NotInterpretedError
from fedpriv.devices.layout import spmd, use
from fedpriv.rounds import low_rank
from fedpriv.rounds.factored_gradient import FactoredGradient
from fedpriv.rounds.local_training import Plan
from fedpriv.rounds.low_rank import low_rank_steps

pytestmark = pytest.mark.usefixtures("quick_to_compile")

I, O = 1024, 256  # noqa: E741  the smallest matrix that counts as large
SGD = optax.sgd(0.3, momentum=0.5)


@pytest.fixture(scope="module")
def shard():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, I)).astype(np.float32)
    return Shard({"x": jnp.asarray(x), "y": jnp.asarray(rng.integers(0, 3, 9))}, jnp.int32(9))


def start(shape=(I, O)):
    rng = np.random.default_rng(1)
    w = rng.normal(size=shape) / 30
    return {
        "b": jnp.zeros(O),
        "out": jnp.asarray(rng.normal(size=(O, 3)) / 16, jnp.float32),
        "w": jnp.asarray(w, jnp.float32),
    }


def cross_entropy(z, example):
    return optax.softmax_cross_entropy_with_integer_labels(z, example["y"])


def usual(p, example):
    return cross_entropy(jnp.tanh(example["x"] @ p["w"] + p["b"]) @ p["out"], example)


def transposed(p, example):
    return cross_entropy(p["out"].T @ jnp.tanh(p["w"].T @ example["x"] + p["b"]), example)


def twice(p, example):
    """Used on two inputs, so that its gradient is no single product."""
    x = example["x"]
    return usual(p, example) + usual(p, {**example, "x": x[::-1]})


def regularised(p, example):
    return usual(p, example) + 1e-3 * jnp.sum(p["w"] ** 2)


def inside_jit(p, example):
    return jax.jit(usual)(p, example)


def sequence(p, example):
    return cross_entropy((jnp.tanh(example["x"].reshape(1, I) @ p["w"]) @ p["out"])[0], example)


@contextmanager
def plainly():
    """In which no matrix counts as large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank, "LARGE_MATRIX", math.inf)
        yield


def trained(loss, way, *shards, optimizer=SGD, batches=None, params=None):
    """What training on each of the shards gives; the way is "auto" or "plain"."""

    def run(examples, size):
        return train_locally(
            jax.random.key(0),
            params or start(),
            Shard(examples, size),
            grad=mean_grad(loss),
            optimizer=optimizer,
            batches=batches or epochs(2, 4),
        )

    with plainly() if way == "plain" else nullcontext():
        program = jax.jit(run)
        return [program(shard.examples, shard.size) for shard in shards]


def is_low_rank(loss, optimizer=SGD, most=6, batch=4, params=None):
    shapes = {"x": jnp.zeros((batch, I)), "y": jnp.zeros(batch, int)}, jnp.ones(batch, bool)
    params = params or start()
    return low_rank_steps(mean_grad(loss), optimizer, params, shapes, most) is not None


DECAYING = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3))


TAKEN = {
    "weight decay": (usual, DECAYING),
    "transposed": (transposed, SGD),
    "sequence": (sequence, SGD),
}


@tiers.every("name", TAKEN)
def test_it_is_the_plain_training(name, shard):
    """The last batch of an epoch is smaller; a smaller client takes fewer steps than the most there could be."""
    loss, optimizer = TAKEN[name]
    assert is_low_rank(loss, optimizer)
    shards = shard, replace(shard, size=jnp.int32(3))
    plain = trained(loss, "plain", *shards, optimizer=optimizer)
    assert float(jnp.abs(plain[0]["w"] - start()["w"]).max()) > 1e-3
    assert_close(trained(loss, "auto", *shards, optimizer=optimizer), plain)


PLAIN = {loss.__name__: loss for loss in (twice, regularised, inside_jit)}


@pytest.mark.parametrize("name", PLAIN)
def test_what_it_cannot_do_is_left(name):
    assert not is_low_rank(PLAIN[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_what_it_cannot_do_is_done_plainly(name, shard):
    loss = PLAIN[name]
    assert_close(trained(loss, "auto", shard), trained(loss, "plain", shard))


def test_a_constant_gradient_is_no_product():
    constant = np.ones((I, O), np.float32)
    with pytest.raises(NotInterpretedError):
        FactoredGradient(jax.make_jaxpr(lambda w: constant)(constant), 0)


@pytest.mark.slow
def test_other_optimisers_are_run_plainly(shard):
    adam = optax.adam(0.01)
    assert not is_low_rank(usual, adam)
    auto, plain = (trained(usual, d, shard, optimizer=adam) for d in ("auto", "plain"))
    np.testing.assert_array_equal(auto[0]["w"], plain[0]["w"])


@pytest.mark.slow
def test_of_two_matrices_that_are_multiplied_by_each_other_one_is_a_sum(shard):
    rng = np.random.default_rng(0)
    sides = {"v": (I, 3), "w": (I, I)}
    params = {k: jnp.asarray(rng.normal(size=s) / 30, jnp.float32) for k, s in sides.items()}

    def loss(p, example):
        return cross_entropy(example["x"] @ (p["w"] @ p["v"]), example)

    assert is_low_rank(loss, params=params)
    auto, plain = (trained(loss, d, shard, params=params) for d in ("auto", "plain"))
    assert_close(auto, plain)


def test_products_keep_their_precision():
    """Of the layer, and of the gradient that is added up: on some accelerators the default rounds."""

    def exact(p, example):
        z = jnp.matmul(example["x"], p["w"], precision="highest")
        return cross_entropy(jnp.matmul(jnp.tanh(z), p["out"], precision="highest"), example)

    shapes = {"x": jnp.zeros((4, I)), "y": jnp.zeros(4, int)}, jnp.ones(4, bool)
    steps = low_rank_steps(mean_grad(exact), SGD, start(), shapes, 6)

    def whole(carry):
        return steps.trained(steps.step(0, carry, shapes))

    products = [e for e in jax.make_jaxpr(whole)(steps.start).eqns if "dot_general" in str(e)]
    assert len(products) >= 6
    assert all("HIGHEST" in str(e) for e in products)


@pytest.mark.slow
def test_a_plan_that_goes_beyond_its_bound_stops_there(shard):
    def bounded(key, size, capacity):
        plan = epochs(2, 4)(key, size, capacity)
        return plan._replace(most=3)

    auto, plain = (trained(usual, d, shard, batches=bounded) for d in ("auto", "plain"))
    assert_close(auto, plain)


def test_it_is_chosen_by_cost():
    assert is_low_rank(usual)
    assert not is_low_rank(usual, most=1)  # one step writes the weights once anyhow
    assert not is_low_rank(usual, batch=32, most=100)
    assert not is_low_rank(
        usual, params=start((I, O - 1)) | {"b": jnp.zeros(O - 1)} | {"out": jnp.zeros((O - 1, 3))}
    )  # small


@pytest.mark.slow
def test_a_plan_without_a_bound_is_run_plainly(shard):
    def unbounded(key, size, capacity):
        bounded = epochs(2, 4)(key, size, capacity)
        return Plan(bounded.steps, bounded.at)

    auto = trained(usual, "auto", shard, batches=unbounded)
    np.testing.assert_array_equal(auto[0]["w"], trained(usual, "plain", shard)[0]["w"])


@pytest.mark.slow
def test_a_round_of_a_network_side_by_side_on_two_devices():
    rng = np.random.default_rng(0)
    examples = {
        "image": rng.integers(0, 256, (12, 32, 32, 1), np.uint8),
        "label": rng.integers(0, 3, 12, np.int32),
    }
    federation = Federation.from_arrays(examples, np.arange(12).reshape(4, 3))
    model = models.classifier(models.MLP((O,), 3), (32, 32, 1))
    algorithm = fed_avg(
        model.loss,
        sampler=fixed_size(4, 3),
        optimizer=lambda t: optax.sgd(0.05 * 0.9**t, momentum=0.5),
        batches=epochs(3, 2),
    )
    state = algorithm.init(model.init(jax.random.key(0)), federation)

    def result(strategy):
        with use(strategy):
            given = jax.random.key(0), state, federation
            program = jax.jit(lambda *given: spmd(one_round(algorithm))(*given))
            return program.lower(*given).as_text(), jax.device_get(program(*given))

    text, got = result(Strategy(2, 2))
    with plainly():
        plain_text, expected = result(Strategy())
    assert f"tensor<12x{I}xf32>" in text or f"x12x{I}xf32>" in text  # the rows of six steps of two
    assert f"12x{I}xf32>" not in plain_text
    assert_close(got, expected, rtol=1e-4)


def test_the_weights_are_written_once():
    """No product as large as the matrix in the loop over the steps: only thin ones."""
    shapes = {"x": jnp.zeros((4, I)), "y": jnp.zeros(4, int)}, jnp.ones(4, bool)
    steps = low_rank_steps(mean_grad(usual), SGD, start(), shapes, 6)
    program = jax.make_jaxpr(lambda carry: steps.step(0, carry, shapes))(steps.start)
    made = [v.aval.shape for eqn in program.jaxpr.eqns for v in eqn.outvars]
    assert (I, O) not in made
    assert (O, I) not in made
