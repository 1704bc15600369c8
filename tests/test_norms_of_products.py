"""Norms of sums of products of rows, against float64: never below, and of long texts hardly above."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers

from fedpriv import per_example
from fedpriv.mechanisms.outer_products import OneHot, Product, Stacked

T, WIDTH, VOCABULARY = 256, 300, 3_000
RNG = np.random.default_rng(0)


def rows(width=WIDTH):
    return RNG.normal(size=(2, T, width)).astype(np.float32)


TABLE = OneHot(jnp.asarray(RNG.integers(0, VOCABULARY, (2, T))), VOCABULARY)
LEFT, RIGHT, OTHER = rows(), rows(), rows()
TEXTS = {
    "used twice": [(LEFT, RIGHT), (OTHER, RIGHT)],
    "dense": [(LEFT, RIGHT)],
    "table": [(TABLE, LEFT)],
}
CANCELLING = {
    "nearly": [(LEFT, RIGHT), (LEFT, (-RIGHT * np.float32(1 + 1e-5)).astype(np.float32))],
    "as a whole": [(LEFT, RIGHT), (LEFT, -RIGHT)],
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


@tiers.every("name", TEXTS)
@pytest.mark.slow
def test_norms_of_long_texts_are_close(name):
    """A bound by rows' norms alone would be 1.4 times as long."""
    ratio = found(TEXTS[name]) / true(TEXTS[name])
    assert (ratio >= 1 - 1e-6).all()
    assert (ratio < 1.005).all()


@tiers.every("name", CANCELLING)
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


@jax.jit
def norms_of(left, right):
    return Stacked((Product(left, right),)).norms()


@tiers.every("how", [(16, False), (2, True)])
def test_the_norm_of_a_sequence_is_never_too_small(how):
    """Rows that cancel: what float32 makes of the norm of nearly nothing is not below the true one."""
    (rows, equal), rng = how, np.random.default_rng(0)
    i, o = 4096, 30
    shape = (50, 1, 1) if equal else (50, 1, i)
    left = np.broadcast_to(rng.normal(size=shape), (50, 1, i))
    signs = np.tile([1.0, -1.0], rows // 2)[None, :, None]
    left = (signs * left * (1 + 1e-7 * rng.normal(size=(50, rows, i)))).astype(np.float32)
    right = np.repeat(rng.normal(size=(50, 1, o)).astype(np.float32), rows, 1)
    exact = np.einsum("bti,bto->bio", left.astype(np.float64), right.astype(np.float64))
    assert np.all(norms_of(left, right) >= np.linalg.norm(exact.reshape(50, -1), axis=1))


@pytest.mark.slow
def test_the_norm_of_a_long_sequence_is_hardly_too_large():
    """A record is not clipped further for what its norm may be rounded by."""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(2, 256, n)).astype(np.float32) for n in (700, 800))
    exact = np.einsum("bti,bto->bio", left, right).reshape(2, -1)
    norms = np.linalg.norm(exact, axis=1)
    found = norms_of(left, right)
    assert np.all((norms * (1 - 1e-5) <= found) & (found <= norms * 1.01))


@tiers.every("rows", [2, 1])
def test_a_factor_whose_squares_are_zero_counts(rows):
    """1e-23 squared is 0 in float32; times 1e22 it is an entry of 0.1 all the same."""
    left, right = jnp.full((3, rows, 784), 1e-23), jnp.full((3, rows, 100), 1e22)
    np.testing.assert_allclose(norms_of(left, right), 0.1 * rows * (784 * 100) ** 0.5, rtol=1e-3)
