"""The LSTM layer and its derivatives against flax's own."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import assert_close

from fedpriv.models.lstm import LSTM

LENGTH, INPUTS, HIDDEN = 7, 3, 5
GATES = "ifgo"


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


X = normal(0, 4, LENGTH, INPUTS)  # four texts
PARAMS = {
    "input": normal(1, INPUTS, 4 * HIDDEN),
    "recurrent": normal(2, HIDDEN, 4 * HIDDEN),
    "bias": normal(3, 4 * HIDDEN),
}


def ours(params, x):
    return LSTM(HIDDEN).apply({"params": params}, x)


def flax(params, x):
    parts = {name: jnp.split(leaf, 4, -1) for name, leaf in params.items()}
    cell = {f"i{gate}": {"kernel": parts["input"][k]} for k, gate in enumerate(GATES)}
    for k, gate in enumerate(GATES):
        cell[f"h{gate}"] = {"kernel": parts["recurrent"][k], "bias": parts["bias"][k]}
    return nn.RNN(nn.OptimizedLSTMCell(HIDDEN)).apply({"params": {"cell": cell}}, x)


def loss(layer, params, x):
    y = layer(params, x)
    return jnp.sum(jnp.sin(y) * (1 + jnp.arange(y.size).reshape(y.shape)))


def mean(layer, params):
    return jnp.mean(jax.vmap(lambda x: loss(layer, params, x))(X))


MANY = jax.tree.map(lambda leaf: jnp.stack([leaf, 1 - leaf, 2 * leaf, -leaf]), PARAMS)
OPERATIONS = {
    "forward": lambda layer: layer(PARAMS, X[0]),
    "one step": lambda layer: jax.grad(lambda p: loss(layer, p, X[0, :1]))(PARAMS),
    "gradient of the mean": lambda layer: jax.grad(lambda p: mean(layer, p))(PARAMS),
    "gradients per example": lambda layer: jax.vmap(
        jax.grad(lambda p, x: loss(layer, p, x), (0, 1)), (None, 0)
    )(PARAMS, X),
    "gradients, weights per example": lambda layer: jax.vmap(
        jax.grad(lambda p, x: loss(layer, p, x), (0, 1))
    )(MANY, X),
    "gradient of the gradient": lambda layer: jax.grad(
        lambda x: sum(
            jnp.sum(leaf**2)
            for leaf in jax.tree.leaves(jax.grad(lambda p: loss(layer, p, x))(PARAMS))
        )
    )(X[0]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_equals_flax(operation):
    run = OPERATIONS[operation]
    assert_close(*jax.jit(lambda: (run(ours), run(flax)))())


def test_it_starts_as_flax_does():
    """Each gate by itself: columns of the recurrent weights of a gate are orthogonal, inputs of variance 1 / inputs."""
    params = LSTM(64).init(jax.random.key(0), jnp.zeros((1, 100)))["params"]
    for recurrent, entering in zip(
        jnp.split(params["recurrent"], 4, 1), jnp.split(params["input"], 4, 1), strict=True
    ):
        np.testing.assert_allclose(recurrent.T @ recurrent, np.eye(64), atol=1e-5)
        assert abs(float(jnp.var(entering)) * 100 - 1) < 0.1  # 6,400 numbers: 5 standard deviations
    assert not np.any(params["bias"])
