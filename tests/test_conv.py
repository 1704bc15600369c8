"""The convolution and its derivatives against XLA's own."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxprs_in_params
from small import assert_close

from fedpriv.models.conv import conv_general_dilated, conv_same

DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def ours(x, w):
    return conv_same(x, w)


def xla(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=DIMENSIONS)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def loss(conv, x, w):
    """Of one image: not linear in x or w, so that second derivatives are not 0."""
    y = conv(x[None], w)
    return jnp.sum(jnp.sin(y) * (1 + jnp.arange(y.size).reshape(y.shape) / y.size))


X, W = normal(0, 3, 5, 6, 2), normal(1, 3, 5, 2, 4)  # neither square image nor square kernel
MANY_W = normal(2, 3, 3, 5, 2, 4)

OPERATIONS = {
    "forward": lambda conv: conv(X, W),
    "one by one kernel": lambda conv: conv(X, W[1:2, 2:3]),
    "gradient of the input": lambda conv: jax.grad(lambda x: jnp.sum(jnp.sin(conv(x, W))))(X),
    "gradient of the kernel": lambda conv: jax.grad(lambda w: jnp.sum(jnp.sin(conv(X, w))))(W),
    "forward mode": lambda conv: jax.jvp(conv, (X, W), (X + 1, W - 1)),
    "gradients per example": lambda conv: jax.vmap(
        jax.grad(partial(loss, conv), (0, 1)), in_axes=(0, None)
    )(X, W),
    "kernel per example": lambda conv: jax.vmap(partial(loss, conv))(X, MANY_W),
    "gradients, kernel per example": lambda conv: jax.vmap(jax.grad(partial(loss, conv), (0, 1)))(
        X, MANY_W
    ),
    "one image, many kernels": lambda conv: jax.vmap(
        jax.grad(partial(loss, conv), (0, 1)), in_axes=(None, 0)
    )(X[0], MANY_W),
    "batched along the last axis": lambda conv: jax.vmap(
        lambda x, w: conv(x[None], w), in_axes=(3, 4), out_axes=2
    )(jnp.moveaxis(X, 0, 3), jnp.moveaxis(MANY_W, 0, 4)),
    "gradient of the gradient": lambda conv: jax.grad(
        lambda x, w: sum(jnp.sum(g**2) for g in jax.grad(partial(loss, conv), (0, 1))(x, w)),
        (0, 1),
    )(X[0], W),
    "gradient of gradients per example": lambda conv: jax.grad(
        lambda x: jnp.sum(jax.vmap(jax.grad(partial(loss, conv), 1), in_axes=(0, None))(x, W) ** 3)
    )(X),
    "Hessian-vector product": lambda conv: jax.jvp(
        jax.grad(partial(loss, conv), (0, 1)), (X[0], W), (X[1], W + 1)
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_equals_xla(operation):
    run = OPERATIONS[operation]
    assert_close(*jax.jit(lambda: (run(ours), run(xla)))())


def equations(jaxpr):
    """All equations, those of inner jaxprs included."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def weight_gradients(fn, *args):
    found = [
        e
        for e in equations(jax.make_jaxpr(fn)(*args).jaxpr)
        if e.primitive.name == "_weight_cotangent"
    ]
    return [(tuple(e.invars[0].aval.shape), tuple(e.outvars[0].aval.shape)) for e in found]


def test_the_gradient_of_a_mean_is_one_product():
    def mean(w):
        return jnp.mean(jax.vmap(partial(loss, ours), in_axes=(0, None))(X, w))

    assert weight_gradients(jax.grad(mean), W) == [(X.shape, W.shape)]  # all three images folded


def test_transposes_are_convolutions_of_ours():
    jaxpr = jax.make_jaxpr(jax.grad(partial(loss, ours), (0, 1)))(X[0], W).jaxpr
    names = [e.primitive.name for e in equations(jaxpr)]
    assert "conv_general_dilated" not in names
    assert {"_forward", "_input_cotangent", "_weight_cotangent"} <= set(names)


IMAGE = {"dimension_numbers": DIMENSIONS}


@pytest.mark.parametrize(
    ("applies", "w", "strides", "padding", "more"),
    [
        (True, W, (1, 1), "SAME", {}),
        (True, W, (1, 1), "SAME", {"lhs_dilation": (1, 1), "rhs_dilation": None}),
        (True, W, (1, 1), "SAME", {"feature_group_count": 1}),
        (False, W[:2, :3], (1, 1), "SAME", {}),
        (False, W, (2, 1), "SAME", {}),
        (False, W, (1, 1), "VALID", {}),
        (False, W, (1, 1), [(1, 1), (2, 2)], {}),
        (False, W, (1, 1), "SAME", {"rhs_dilation": (1, 2)}),
        (False, W, (1, 1), [(1, 1), (2, 2)], {"lhs_dilation": (2, 2)}),
        (False, W[:, :, :1], (1, 1), "SAME", {"feature_group_count": 2}),
    ],
)
def test_it_applies_where_it_is_the_same(applies, w, strides, padding, more):
    def trace(conv):
        return jax.make_jaxpr(lambda x, w: conv(x, w, strides, padding, **IMAGE, **more))(X, w)

    fast, plain = trace(conv_general_dilated), trace(lax.conv_general_dilated)
    assert fast.out_avals == plain.out_avals
    assert ("_forward" in str(fast)) == applies
    assert (str(fast) == str(plain)) == (not applies)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks_are_left_to_xla(rank):
    module = nn.Conv(4, (3,) * rank, conv_general_dilated=conv_general_dilated)
    x = jnp.zeros((2, *(5,) * rank, 2))
    _, params = jax.eval_shape(module.init_with_output, jax.random.key(0), x)
    assert "_forward" not in str(jax.make_jaxpr(module.apply)(params, x))


def test_flax_uses_it_where_it_applies():
    module = nn.Conv(4, (3, 3), conv_general_dilated=conv_general_dilated)
    params = jax.eval_shape(module.init, jax.random.key(0), X)
    assert "_forward" in str(jax.make_jaxpr(module.apply)(params, X))


def test_even_kernel():
    with pytest.raises(
        ValueError, match=r"w: kernel \(2, 3\) has an even size; conv_same needs odd"
    ):
        conv_same(X, W[:2, :3])
