"""The small-batch product against the plain one: values, gradients, batching."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpriv.models.dense import dot_general

I, O = 1024, 256  # noqa: E741
DIMENSIONS = (((0,), (0,)), ((), ()))


def fast(x, w):
    return dot_general(x, w, DIMENSIONS)


def plain(x, w):
    return x @ w


@pytest.fixture(scope="module")
def data():
    keys = jax.random.split(jax.random.key(0), 3)
    x, w = jax.random.normal(keys[0], (40, I)), jax.random.normal(keys[1], (I, O)) / I**0.5
    return x, w, jax.random.normal(keys[2], (3, I, O)) / I**0.5


CASES = {
    "a vector": lambda f, x, w, ws: f(x[0], w),
    "a small batch": lambda f, x, w, ws: jax.vmap(f, (0, None))(x[:10], w),
    "a large batch": lambda f, x, w, ws: jax.vmap(f, (0, None))(x, w),
    "batches of batches": lambda f, x, w, ws: jax.vmap(jax.vmap(f, (0, None)), (0, None))(
        x.reshape(8, 5, I), w
    ),
    "matrices of their own": lambda f, x, w, ws: jax.vmap(f)(x[:3], ws),
    "one vector, many matrices": lambda f, x, w, ws: jax.vmap(f, (None, 0))(x[0], ws),
    "clients of their own": lambda f, x, w, ws: jax.vmap(jax.vmap(f, (0, None)))(
        x[:30].reshape(3, 10, I), ws
    ),
    "gradient of a mean": lambda f, x, w, ws: jax.grad(
        lambda w: jnp.mean(jnp.sin(jax.vmap(f, (0, None))(x[:10], w)))
    )(w),
    "gradient for the input": lambda f, x, w, ws: jax.grad(lambda x: jnp.sum(jnp.sin(f(x, w))))(
        x[0]
    ),
    "gradients per example": lambda f, x, w, ws: jax.vmap(
        jax.grad(lambda w, x: jnp.sum(jnp.sin(f(x, w)))), (None, 0)
    )(w, x[:2]),
    "gradient of a gradient": lambda f, x, w, ws: jax.grad(
        lambda x: jnp.sum(jax.grad(lambda w: jnp.sum(jnp.sin(f(x, w))))(w) ** 2)
    )(x[0]),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_plain_product(case, data):
    got, expected = (jax.jit(CASES[case], static_argnums=0)(f, *data) for f in (fast, plain))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * float(jnp.abs(expected).max()))


def test_the_gradient_of_a_mean_is_one_product(data):
    x, w, _ = data
    jaxpr = str(jax.make_jaxpr(lambda w: CASES["gradient of a mean"](fast, x, w, None))(w))
    assert f"f32[10,{I},{O}]" not in jaxpr
    assert "_dense" in jaxpr
