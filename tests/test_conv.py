"""Where our convolution takes the place of XLA's, and what its gradients are made of; `test_layers.py` has the law."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedpriv.core.jaxprs import equations
from fedpriv.models.conv import conv_general_dilated, conv_same

DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def loss(conv, x, w):
    """Of one image: not linear in x or w, so that second derivatives are not 0."""
    y = conv(x[None], w)
    return jnp.sum(jnp.sin(y) * (1 + jnp.arange(y.size).reshape(y.shape) / y.size))


X, W = normal(0, 3, 5, 6, 2), normal(1, 3, 5, 2, 4)  # neither square image nor square kernel


def test_the_gradient_of_a_mean_is_one_product():
    def mean(w):
        return jnp.mean(jax.vmap(partial(loss, conv_same), in_axes=(0, None))(X, w))

    made = [
        (eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape)
        for eqn, _ in equations(jax.make_jaxpr(jax.grad(mean))(W).jaxpr)
        if eqn.primitive.name == "_weight_cotangent"
    ]
    assert made == [(X.shape, W.shape)]  # all three images folded


def test_transposes_are_convolutions_of_ours():
    jaxpr = jax.make_jaxpr(jax.grad(partial(loss, conv_same), (0, 1)))(X[0], W).jaxpr
    names = [e.primitive.name for e, _ in equations(jaxpr)]
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
