"""Gradients of records kept as factors against those formed by `vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_close

from fedpriv import gaussian, models, per_example
from fedpriv.mechanisms import outer_product_gradients
from fedpriv.mechanisms.factored_program import FactoredProgram
from fedpriv.mechanisms.outer_products import Product, Stacked
from fedpriv.mechanisms.per_example import private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")

B = 5


def data(*shape):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(B, *shape)), jnp.float32)
    return {"x": x, "label": jnp.asarray(rng.integers(0, 3, B))}


def matrix(i, o, seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(i, o)) / i**0.5, jnp.float32)


def entropy(z, example):
    return optax.softmax_cross_entropy_with_integer_labels(z, example["label"])


def dense(p, e):
    return entropy(jnp.tanh(e["x"] @ p["w"] + p["b"]) @ p["out"], e)


def transposed(p, e):
    return entropy(p["out"].T @ jnp.tanh(p["w"].T @ e["x"] + p["b"]), e)


def reshaped(p, e):
    return entropy(jnp.tanh(e["x"] @ p["w"].reshape(6, 3, 8)[:, 0] + p["b"]) @ p["out"], e)


def sequence(p, e):
    return entropy(jnp.sum(jnp.tanh(e["x"] @ p["w"] + p["b"]), 0) @ p["out"], e)


def heads(p, e):
    """As flax's attention: from one axis into two, and back."""
    h = jnp.tanh(jnp.einsum("ti,ihk->thk", e["x"], p["into"]))
    return entropy(jnp.sum(jnp.einsum("thk,hkj->tj", h, p["out"]), 0), e)


CASES = {
    "dense": (dense, data(6), {"b": jnp.ones(8), "out": matrix(8, 3), "w": matrix(6, 8)}, 2),
    "transposed": (
        transposed,
        data(6),
        {"b": jnp.ones(8), "out": matrix(8, 3), "w": matrix(6, 8)},
        2,
    ),
    "part of a matrix": (
        reshaped,
        data(6),
        {"b": jnp.ones(8), "out": matrix(8, 3), "w": matrix(6, 24)},
        1,
    ),
    "a sequence": (
        sequence,
        data(2, 30),
        {"b": jnp.ones(20), "out": matrix(20, 3), "w": matrix(30, 20)},
        2,
    ),
    "heads": (
        heads,
        data(2, 30),
        {"into": matrix(30, 20).reshape(30, 5, 4), "out": matrix(20, 30).reshape(5, 4, 30)},
        2,
    ),
    "a sequence too long": (
        sequence,
        data(30, 6),
        {"b": jnp.ones(8), "out": matrix(8, 3), "w": matrix(6, 8)},
        1,
    ),
}


def formed(loss, params, batch):
    return jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, batch)


@pytest.mark.parametrize("case", CASES)
def test_norms_sums_and_gradients(case, monkeypatch):
    monkeypatch.setattr(outer_product_gradients, "_LARGE", 100)
    loss, batch, params, factored = CASES[case]
    kinds = [isinstance(g, Stacked) for g in FactoredProgram(loss, params, batch).gradients()]
    assert sum(kinds) == factored
    expected = formed(loss, params, batch)
    weights = {k: jnp.linspace(0.0, 1.0, B) * (1 + i) for i, k in enumerate(params)}

    def parts(params, batch):
        g = per_example(loss)(params, batch)
        return g.norms, g.weighted(weights), g.each()

    norms, total, each = jax.jit(parts)(params, batch)
    assert_close(each, expected)
    by_record = jax.tree.map(lambda g: np.linalg.norm(g.reshape(B, -1), axis=1), expected)
    assert_close(norms, by_record)
    assert_close(total, jax.tree.map(lambda w, g: np.tensordot(w, g, 1), weights, expected))


@jax.jit
def norms_of(left, right):
    return Stacked((Product(left, right),)).norms()


@pytest.mark.parametrize("rows", [2, 16])
@pytest.mark.parametrize("equal", [False, True], ids=["drawn", "of equal entries"])
def test_the_norm_of_a_sequence_is_never_too_small(rows, equal):
    """Rows that cancel: what float32 makes of the norm of nearly nothing is not below the true one."""
    rng = np.random.default_rng(0)
    i, o = 4096, 30
    shape = (50, 1, 1) if equal else (50, 1, i)
    left = np.broadcast_to(rng.normal(size=shape), (50, 1, i))
    signs = np.tile([1.0, -1.0], rows // 2)[None, :, None]
    left = (signs * left * (1 + 1e-7 * rng.normal(size=(50, rows, i)))).astype(np.float32)
    right = np.repeat(rng.normal(size=(50, 1, o)).astype(np.float32), rows, 1)
    exact = np.einsum("bti,bto->bio", left.astype(np.float64), right.astype(np.float64))
    assert np.all(norms_of(left, right) >= np.linalg.norm(exact.reshape(50, -1), axis=1))


def test_the_norm_of_a_long_sequence_is_hardly_too_large():
    """A record is not clipped further for what its norm may be rounded by."""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(2, 256, n)).astype(np.float32) for n in (700, 800))
    exact = np.einsum("bti,bto->bio", left, right).reshape(2, -1)
    norms = np.linalg.norm(exact, axis=1)
    found = norms_of(left, right)
    assert np.all((norms * (1 - 1e-5) <= found) & (found <= norms * 1.01))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_factor_whose_squares_are_zero_counts(rows):
    """1e-23 squared is 0 in float32; times 1e22 it is an entry of 0.1 all the same."""
    left, right = jnp.full((3, rows, 784), 1e-23), jnp.full((3, rows, 100), 1e22)
    np.testing.assert_allclose(norms_of(left, right), 0.1 * rows * (784 * 100) ** 0.5, rtol=1e-3)


def test_a_record_that_is_masked_out_does_not_count():
    loss, batch, params, _ = CASES["dense"]
    poisoned = {**batch, "x": batch["x"].at[2].set(jnp.nan)}
    mask = jnp.arange(B) != 2
    mean = jax.jit(private_mean(per_example(loss), gaussian(0.5, 0.0), B))
    clean = mean(jax.random.key(0), params, batch, mask)
    assert_close(mean(jax.random.key(0), params, poisoned, mask), clean)
    assert np.isfinite(clean["w"]).all()


def test_no_gradient_of_a_large_layer_is_formed():
    """DP-SGD's step of a CNN: nothing in it is as large as a batch of the dense layer's gradients."""
    model = models.small_mnist_cnn()
    params = jax.eval_shape(model.init, jax.random.key(0))
    batch = {"image": jnp.zeros((B, 28, 28, 1), jnp.uint8), "label": jnp.zeros(B, jnp.int32)}
    mean = private_mean(per_example(model.loss), gaussian(1.0, 1.0), B)
    text = jax.jit(mean).lower(jax.random.key(0), params, batch, jnp.ones(B, bool)).as_text()
    layer = params["params"]["Dense_0"]["kernel"]
    assert f"<{B}x{layer.shape[0]}x{layer.shape[1]}xf32>" not in text
    assert f"<{layer.shape[0]}x{layer.shape[1]}xf32>" in text
