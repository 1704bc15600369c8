"""Max pooling against flax's, gradient at ties included."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import assert_identical

from fedpriv.models.pooling import max_pool_2x2


def flax_pool(x):
    return nn.max_pool(x, (2, 2), strides=(2, 2))


def images(kind):
    rng = np.random.default_rng(0)
    shape = (3, 4, 6, 2)
    return jnp.asarray(
        {
            "no ties": rng.normal(size=shape),
            "many ties": rng.integers(0, 2, shape),
            "constant": np.zeros(shape),
            "negative": -1 - rng.integers(0, 3, shape),
        }[kind],
        jnp.float32,
    )


@pytest.mark.parametrize("kind", ["no ties", "many ties", "constant", "negative"])
def test_equals_flax_to_the_bit(kind):
    x = images(kind)
    weights = jnp.arange(1.0, 1 + x.size // 4).reshape(3, 2, 3, 2)

    def value_and_gradients(pool):
        def one(x, weights):
            return jnp.vdot(pool(x[None]), weights)

        value, gradient = jax.value_and_grad(lambda x: jnp.vdot(pool(x), weights))(x)
        return pool(x), value, gradient, jax.vmap(jax.grad(one))(x, weights)

    assert_identical(
        jax.jit(lambda: value_and_gradients(max_pool_2x2))(),
        jax.jit(lambda: value_and_gradients(flax_pool))(),
    )


def test_every_window_passes_its_gradient_on_once():
    x = images("many ties")
    gradient = jax.grad(lambda x: jnp.sum(max_pool_2x2(x)))(x)
    np.testing.assert_array_equal(gradient.reshape(3, 2, 2, 3, 2, 2).sum((2, 4)), 1)
