"""What is no loss, and what are no parameters, are refused in one line wherever they are given; what is, is taken."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from refused.losses import NO_NUMBERS
from small import records, refused, regression, squared, start, vector

import fedpriv as fp
from fedpriv.engine.simulate import simulate
from fedpriv.experiments.papers.dp_scaffold import local_steps

FEDERATION, PARAMS = regression([3, 3]), start()
BATCH = jax.tree.map(lambda leaf: leaf[:3], FEDERATION.examples)
MASK = jnp.ones(3, bool)
LOCAL = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.epochs(1, 2)}
STEPS = {"records": fp.fixed_size(3, 2), "steps": 2, "optimizer": lambda t: optax.sgd(0.1)}


def averaging(loss):
    return fp.fed_avg(loss, sampler=fp.everyone(2), **LOCAL)


def by_record(loss):
    steps = fp.LocalSteps(fp.per_example(loss), mechanism=fp.gaussian(1.0, 1.0), **STEPS)
    return fp.dp_sgd(steps, sampler=fp.everyone(2))


def certified(make, loss, params):
    return fp.certify(make(loss), params, FEDERATION, rounds=2, delta=1e-3)


def trained(loss, params):
    def client(shard):
        given = {"optimizer": optax.sgd(0.1), "batches": fp.full_batch()}
        return fp.train_locally(jax.random.key(0), params, shard, grad=fp.mean_grad(loss), **given)

    return jax.eval_shape(lambda: client(fp.Shard(BATCH, jnp.int32(3))))


def simulated(loss, params):
    score = fp.models.Score(lambda params, example: {"one": jnp.float32(1)})
    examples = FEDERATION.examples
    return simulate(averaging(loss), params, FEDERATION, examples, score=score, rounds=1)


def scaffold(loss, params):
    steps = local_steps(fp.per_example(loss), fp.fixed_size(3, 2), 2, 0.1)
    return certified(lambda _: fp.dp_scaffold(steps, sampler=fp.everyone(2)), loss, params)


TAKERS = {
    "mean_grad": lambda loss, p: jax.eval_shape(lambda: fp.mean_grad(loss)(p, BATCH, MASK)),
    "per_example": lambda loss, p: jax.eval_shape(lambda: fp.per_example(loss)(p, BATCH).norms),
    "train": trained,
    "certify": functools.partial(certified, averaging),
    "certify by record": functools.partial(certified, by_record),
    "scaffold": scaffold,
    "check_algorithm": lambda loss, p: fp.check_algorithm(averaging(loss), p, FEDERATION),
    "simulate": simulated,
    "objective": lambda loss, p: jax.eval_shape(
        lambda: fp.measures.objective(loss)(p, BATCH, MASK)
    ),
}
LATE, EARLY = NO_NUMBERS["one entry"][0], NO_NUMBERS["a constant"][0]


@pytest.mark.parametrize("taker", TAKERS)
def test_no_loss_is_refused_wherever_a_loss_is_taken(taker):
    """By what it gives, and by what it does not depend on; all that is none, `refused.losses` lists."""
    for loss in (LATE, EARLY):
        with refused("^loss: (gives|the parameters have no influence)"):
            TAKERS[taker](loss, PARAMS)


NO_GRADIENTS = {
    "integers": {"w": jnp.arange(3), "b": jnp.float32(1)},
    "booleans": {"w": jnp.ones(3, bool), "b": jnp.float32(1)},
    "complex": {"w": np.ones(3, complex), "b": jnp.float32(1)},
    "string": {"w": "text", "b": jnp.float32(1)},
    "strings": {"w": np.array(["text"]), "b": jnp.float32(1)},
    "a number": {"w": 3, "b": jnp.float32(1)},
    "none": {},
    "None": None,
}


@pytest.mark.parametrize("name", NO_GRADIENTS)
def test_parameters_of_which_there_is_no_gradient(name):
    with refused(r"^params(\['w'\])?: .*; give"):
        TAKERS["mean_grad"](squared, NO_GRADIENTS[name])


@pytest.mark.parametrize("taker", sorted(TAKERS.keys() - {"objective", "mean_grad"}))
def test_they_are_refused_wherever_parameters_are_taken(taker):
    for params in (NO_GRADIENTS["integers"], NO_GRADIENTS["none"]):
        with refused(r"^params(\['w'\])?: .*; give"):
            TAKERS[taker](squared, params)


def test_parameters_that_a_function_makes():
    with refused(r"^params\['w'\]: 'text'"):
        TAKERS["certify"](squared, lambda key: {"w": "text"})
    with refused("^params: {}"):
        TAKERS["simulate"](squared, lambda key: {})


class Regression:
    def loss(self, params, example):
        return squared(params, example)

    __call__ = loss


@jax.custom_vjp
def by_hand(params, example):
    return squared(params, example)


by_hand.defvjp(
    lambda p, e: (squared(p, e), (p, e)),
    lambda kept, g: (
        jax.tree.map(lambda x: g * x, jax.grad(squared)(*kept)),
        jax.tree.map(jnp.zeros_like, kept[1]),
    ),
)
LOSSES = {
    "method": Regression().loss,
    "object": Regression(),
    "jitted": jax.jit(squared),
    "partial": functools.partial(lambda params, example, power: squared(params, example), power=2),
    "any": lambda *given: squared(*given),
    "custom_vjp": by_hand,
    "squeezed": lambda p, e: squared(p, e)[None].squeeze(),
    "cond": lambda p, e: jax.lax.cond(e["y"] > 99, lambda: 0.0, lambda: squared(p, e)),
    "checkpoint": jax.checkpoint(squared),
}


@tiers.every("name", LOSSES)
def test_losses_of_every_kind_have_numpys_gradient(name):
    x, y = records(FEDERATION, 0)
    batch = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}
    mask = jnp.array([True, False, True])
    theta = vector(PARAMS)
    residual = (theta[0] + x @ theta[1:] - y)[np.asarray(mask)]
    rows = np.insert(x, 0, 1, axis=1)[np.asarray(mask)]
    found = jax.jit(fp.mean_grad(LOSSES[name]))(PARAMS, batch, mask)
    np.testing.assert_allclose(vector(found), residual @ rows / 2, rtol=1e-5)

    @jax.jit
    def halves(batch):
        found = fp.per_example(LOSSES[name])(PARAMS, batch)
        return found.weighted(jax.tree.map(lambda n: mask / 2, found.norms))

    each = halves(batch)
    np.testing.assert_allclose(vector(each), residual @ rows / 2, rtol=1e-5)


def test_a_loss_that_is_0_by_its_numbers_is_taken():
    TAKERS["mean_grad"](lambda p, e: 0.0 * squared(p, e), PARAMS)
    TAKERS["mean_grad"](lambda p, e: jnp.sum(p["w"]), PARAMS)


def test_a_loss_is_traced_once_more_for_each_shape():
    calls = []

    def loss(params, example):
        calls.append(example["x"].shape)
        return squared(params, example)

    grad = fp.mean_grad(loss)
    for _ in range(3):
        jax.eval_shape(lambda: grad(PARAMS, BATCH, MASK))
    assert len(calls) == 1 + 3


def test_an_error_of_ones_own_is_ones_own():
    def loss(params, example):
        raise LookupError("mine")

    for take in TAKERS.values():
        with pytest.raises(LookupError, match="mine"):
            take(loss, PARAMS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda g: g | {"w": g["w"][None]},
            r"float\[1, 3\] for params\['w'\], which is float\[3\]",
        ),
        (lambda g: g | {"w": jnp.sum(g["w"])}, r"float\[\] for params\['w'\]"),
        (lambda g: {"w": g["w"]}, r"nothing for params\['b'\]"),
        (lambda g: g | {"c": g["b"]}, r"float\[\] for params\['c'\], which is not there"),
        (lambda g: g | {"b": jnp.int32(1)}, r"int32\[\] for params\['b'\]"),
        (lambda g: None, "nothing for params"),
    ],
)
def test_gradients_of_ones_own_that_are_not_like_the_parameters(change, said):
    def grad(params, batch, mask):
        return change(dict(fp.mean_grad(squared)(params, batch, mask)))

    given = {"grad": grad, "optimizer": optax.sgd(0.1), "batches": fp.full_batch()}
    shard = fp.Shard(BATCH, jnp.int32(3))
    with pytest.raises(ValueError, match=f"^grad: gives {said}.*; return a tree like"):
        jax.eval_shape(lambda: fp.train_locally(jax.random.key(0), PARAMS, shard, **given))
