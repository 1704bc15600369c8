"""Norms of sums of products of rows, against float64: never below, and of long texts hardly above."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpriv import per_example
from fedpriv.mechanisms.outer_products import OneHot, Product, Stacked

T, WIDTH, VOCABULARY = 256, 300, 3_000
RNG = np.random.default_rng(0)


def rows(width=WIDTH):
    return RNG.normal(size=(2, T, width)).astype(np.float32)


TABLE = OneHot(jnp.asarray(RNG.integers(0, VOCABULARY, (2, T))), VOCABULARY)
LEFT, RIGHT, OTHER = rows(), rows(), rows()
TEXTS = {
    "dense": [(LEFT, RIGHT)],
    "table": [(TABLE, LEFT)],
    "used twice": [(LEFT, RIGHT), (OTHER, RIGHT)],
}
CANCELLING = {
    "as a whole": [(LEFT, RIGHT), (LEFT, -RIGHT)],
    "nearly": [(LEFT, RIGHT), (LEFT, (-RIGHT * np.float32(1 + 1e-5)).astype(np.float32))],
    "a table's": [(TABLE, LEFT), (TABLE, (-LEFT * np.float32(1 + 1e-5)).astype(np.float32))],
}


def found(products):
    held = [Product(*(x if isinstance(x, OneHot) else jnp.asarray(x) for x in p)) for p in products]
    return np.asarray(jax.jit(lambda held: Stacked(tuple(held)).norms())(held))


def true(products):
    total = 0.0
    for left, right in products:
        if isinstance(left, OneHot):
            formed = np.zeros((2, VOCABULARY, WIDTH))
            for b in range(2):
                np.add.at(formed[b], np.asarray(left.places[b]), right[b].astype(np.float64))
        else:
            formed = np.einsum("bti,bto->bio", left.astype(np.float64), right.astype(np.float64))
        total = total + formed
    return np.sqrt((total**2).sum((1, 2)))


@pytest.mark.parametrize("name", TEXTS)
def test_norms_of_long_texts_are_close(name):
    """A bound by rows' norms alone would be 1.4 times as long."""
    ratio = found(TEXTS[name]) / true(TEXTS[name])
    assert (ratio >= 1 - 1e-6).all()
    assert (ratio < 1.005).all()


@pytest.mark.parametrize("name", CANCELLING)
def test_what_cancels_has_no_norm_that_is_too_small(name):
    assert (found(CANCELLING[name]) >= true(CANCELLING[name])).all()


@pytest.mark.parametrize("wrap", [lambda layer: layer, jax.checkpoint])
def test_a_loop_over_no_layers_has_gradients_of_no_length(wrap):
    def loss(params, example):
        layer = wrap(lambda h, w: (jnp.tanh(h @ w), None))
        h, _ = jax.lax.scan(layer, example, params["layers"])
        return jnp.sum(h * params["last"])

    params = {"layers": jnp.zeros((0, 9, 9)), "last": jnp.ones(9)}
    norms = jax.jit(lambda *given: per_example(loss)(*given).norms)(params, jnp.ones((2, 9)))
    np.testing.assert_array_equal(norms["layers"], [0.0, 0.0])
    np.testing.assert_allclose(norms["last"], [3.0, 3.0])
