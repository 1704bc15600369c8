"""Layers of ours against XLA's and flax's: values and derivatives of every kind, under `vmap` in every way."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax import lax
from small import assert_close, assert_identical

from fedpriv.models import dense
from fedpriv.models.conv import conv_same
from fedpriv.models.lstm import LSTM
from fedpriv.models.pooling import max_pool_2x2

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
HIDDEN, GATES = 5, "ifgo"


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


class Layer(NamedTuple):
    """A layer of one example.

    Attributes:
      kind: whose other entries differ in their sizes alone.
      ours, theirs: (parameters, example) -> output.
      params: of the layer.
      x: of several examples, [n, ...].
    """

    kind: str
    ours: Callable
    theirs: Callable
    params: Any
    x: jax.Array

    def many(self):
        """Parameters of their own for each example."""
        factors = np.linspace(1.5, -0.5, len(self.x))
        return jax.tree.map(lambda p: jnp.stack([p * by for by in factors]), self.params)


def convolution(x, w):
    image = {"dimension_numbers": DIMENSIONS}
    return Layer(
        "convolution",
        lambda w, x: conv_same(x[None], w)[0],
        lambda w, x: lax.conv_general_dilated(x[None], w, (1, 1), "SAME", **image)[0],
        w,
        x,
    )


def matrix(x, w):
    """By the product that is fast on CPU."""
    return Layer("dense", lambda w, x: dense.product.bind(x[None], w)[0], lambda w, x: x @ w, w, x)


def flax_lstm(params, x):
    parts = {name: jnp.split(leaf, 4, -1) for name, leaf in params.items()}
    cell = {f"i{gate}": {"kernel": parts["input"][k]} for k, gate in enumerate(GATES)}
    for k, gate in enumerate(GATES):
        cell[f"h{gate}"] = {"kernel": parts["recurrent"][k], "bias": parts["bias"][k]}
    return nn.RNN(nn.OptimizedLSTMCell(HIDDEN)).apply({"params": {"cell": cell}}, x)


def lstm(length):
    params = {
        "input": normal(1, 3, 4 * HIDDEN),
        "recurrent": normal(2, HIDDEN, 4 * HIDDEN),
        "bias": normal(3, 4 * HIDDEN),
    }
    return Layer(
        "LSTM",
        lambda params, x: LSTM(HIDDEN).apply({"params": params}, x),
        flax_lstm,
        params,
        normal(0, 3, length, 3),
    )


X, W = normal(0, 3, 5, 6, 2), normal(1, 3, 5, 2, 4)  # neither square image nor square kernel
LAYERS = {
    "convolution": convolution(X, W),
    "convolution, one by one": convolution(X, W[1:2, 2:3]),
    "dense": matrix(normal(0, 3, 7), normal(1, 7, 5)),
    "dense, large batch": matrix(normal(0, 33, 6), normal(1, 6, 5)),
    "LSTM": lstm(4),
    "LSTM, one step": lstm(1),
}


def loss(f, params, x):
    """Not linear, so that second derivatives are not 0."""
    y = f(params, x)
    return jnp.sum(jnp.sin(y) * (1 + jnp.arange(y.size).reshape(y.shape) / y.size))


def gradients(f):
    """(params, x) -> of the loss, for both."""
    return jax.grad(partial(loss, f), (0, 1))


def squares(tree):
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))


def moved(tree, by):
    return jax.tree.map(lambda leaf: leaf + by, tree)


def mean(f, params, x):
    return jnp.mean(jax.vmap(partial(loss, f), (None, 0))(params, x))


def along_the_last_axis(f, layer):
    last = lambda tree: jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), tree)  # noqa: E731
    return jax.vmap(f, (-1, -1), -1)(last(layer.many()), last(layer.x))


# name -> (order of the derivative, function of the layer's function and the layer)
OPERATIONS = {
    "values": (0, lambda f, of: jax.vmap(f, (None, 0))(of.params, of.x)),
    "gradient of a mean": (1, lambda f, of: jax.grad(partial(mean, f), (0, 1))(of.params, of.x)),
    "gradients per example": (1, lambda f, of: jax.vmap(gradients(f), (None, 0))(of.params, of.x)),
    "parameters per example": ("own", lambda f, of: jax.vmap(gradients(f))(of.many(), of.x)),
    "one example, many parameters": (
        "own",
        lambda f, of: jax.vmap(gradients(f), (0, None))(of.many(), of.x[0]),
    ),
    "clients of their own": (
        "own",
        lambda f, of: jax.vmap(jax.vmap(gradients(f), (None, 0)), (0, None))(of.many(), of.x),
    ),
    "along the last axis": ("own", along_the_last_axis),
    "forward mode": (
        "forward",
        lambda f, of: jax.jvp(
            lambda *given: jax.vmap(f, (None, 0))(*given),
            (of.params, of.x),
            (moved(of.params, -1), moved(of.x, 1)),
        ),
    ),
    "gradient of the gradient": (
        2,
        lambda f, of: jax.grad(lambda *given: squares(gradients(f)(*given)), (0, 1))(
            of.params, of.x[0]
        ),
    ),
    "gradient of gradients per example": (
        2,
        lambda f, of: jax.grad(lambda x: squares(jax.vmap(gradients(f), (None, 0))(of.params, x)))(
            of.x
        ),
    ),
    "Hessian times vector": (
        2,
        lambda f, of: jax.jvp(gradients(f), (of.params, of.x[0]), (moved(of.params, 1), of.x[1])),
    ),
}


class Case(NamedTuple):
    layer: str
    operation: str

    @property
    def kind(self):
        """Training asks for a layer's first derivatives, backwards: of the others, one of any layer."""
        order = OPERATIONS[self.operation][0]
        return "seldom" if order in (2, "forward") else (LAYERS[self.layer].kind, order)


LACKING = {
    "LSTM: forward mode": "its derivative is a custom vjp",
    "LSTM, one step: forward mode": "its derivative is a custom vjp",
}
FIRST = tiers.one_of_each(OPERATIONS, lambda operation: operation[0])


def is_asked(layer, run):
    """Of layers that differ in their sizes alone one operation of each order, and of the LSTM one of the second."""
    if layer.startswith("LSTM") and OPERATIONS[run][0] == 2:
        return layer == "LSTM" and run in FIRST
    return run in FIRST or layer in ("convolution", "dense", "LSTM")


ALL = {f"{a}: {b}": Case(a, b) for a in LAYERS for b in OPERATIONS if is_asked(a, b)}
CASES = {name: case for name, case in ALL.items() if name not in LACKING}


@tiers.every("name", CASES)
def test_a_layer_is_the_library_s(name):
    layer, run = LAYERS[CASES[name].layer], OPERATIONS[CASES[name].operation][1]
    assert_close(*jax.jit(lambda: (run(layer.ours, layer), run(layer.theirs, layer)))())


def test_what_layers_lack():
    assert len(LACKING) == 2
    layer, run = LAYERS["LSTM"], OPERATIONS["forward mode"][1]
    with pytest.raises(TypeError, match="forward-mode"):
        run(layer.ours, layer)


def test_the_gradient_of_a_mean_is_one_product():
    """That all examples fold into; no product for each of them."""
    x, w = jnp.zeros((10, 1024)), jnp.zeros((1024, 256))  # the smallest matrix that counts as large
    fast = lambda w, x: dense.dot_general(x, w, (((0,), (0,)), ((), ())))  # noqa: E731
    program = str(jax.make_jaxpr(jax.grad(lambda w: mean(fast, w, x)))(w))
    assert "f32[10,1024,256]" not in program
    assert "_dense" in program


RNG = np.random.default_rng(0)
SHAPE = (3, 4, 6, 2)
POOLED = {
    "no ties": RNG.normal(size=SHAPE),
    "many ties": RNG.integers(0, 2, SHAPE),
    "constant": np.zeros(SHAPE),
    "negative": -1 - RNG.integers(0, 3, SHAPE),
}


def test_pooling_is_flax_s_to_the_bit():
    """Gradients at ties included, of all images at once."""
    images = jnp.asarray(np.concatenate(list(POOLED.values())), jnp.float32)
    weights = jnp.arange(1.0, 145.0).reshape(12, 2, 3, 2)

    def value_and_gradients(pool):
        one = lambda x, weights: jnp.vdot(pool(x[None]), weights)  # noqa: E731
        gradient = jax.grad(lambda x: jnp.vdot(pool(x), weights))(images)
        return pool(images), gradient, jax.vmap(jax.grad(one))(images, weights)

    flax = lambda x: nn.max_pool(x, (2, 2), strides=(2, 2))  # noqa: E731
    assert_identical(
        *(jax.jit(partial(value_and_gradients, pool))() for pool in (max_pool_2x2, flax))
    )
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(max_pool_2x2(x))))(images)
    np.testing.assert_array_equal(gradient.reshape(12, 2, 2, 3, 2, 2).sum((2, 4)), 1)


@pytest.mark.slow
def test_an_lstm_starts_as_flax_does(quick_to_compile):
    """Each gate by itself: columns of the recurrent weights of a gate are orthogonal, inputs of variance 1 / inputs."""
    params = jax.jit(LSTM(64).init)(jax.random.key(0), jnp.zeros((1, 100)))["params"]
    for recurrent, entering in zip(
        jnp.split(params["recurrent"], 4, 1), jnp.split(params["input"], 4, 1), strict=True
    ):
        np.testing.assert_allclose(recurrent.T @ recurrent, np.eye(64), atol=1e-5)
        assert abs(float(jnp.var(entering)) * 100 - 1) < 0.1  # 6,400 numbers: 5 standard deviations
    assert not np.any(params["bias"])
