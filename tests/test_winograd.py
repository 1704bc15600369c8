"""Winograd's convolution against NumPy's correlation and XLA's convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedpriv.models import winograd
from fedpriv.models.conv import conv_same

X = np.random.default_rng(0).normal(size=(3, 13, 9, 16)).astype(np.float32)  # no whole tiles


@pytest.mark.parametrize("kernel", [2, 3, 5, 7])
def test_a_tile_is_numpys_correlation(kernel):
    rng = np.random.default_rng(kernel)
    x, w = rng.normal(size=winograd.TILE), rng.normal(size=kernel)
    a, g, b = winograd.matrices(kernel)
    np.testing.assert_allclose(a.T @ ((g @ w) * (b @ x)), np.correlate(x, w, "valid"), atol=1e-12)


@pytest.mark.parametrize(
    "chunk", [2**21, 90_000, 55_000]
)  # one chunk; two or three, some filled up
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (3, 5), (7, 3)])
def test_convolution_and_gradients_are_xlas(kernel, chunk, monkeypatch):
    monkeypatch.setattr(winograd, "_NUMBERS", chunk)
    w = np.random.default_rng(1).normal(size=(*kernel, 16, 32)).astype(np.float32)
    assert winograd.pays(w.shape, w.dtype) == (jax.default_backend() == "cpu")

    def xla(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
        )

    dy = np.random.default_rng(2).normal(size=(*X.shape[:3], 32)).astype(np.float32)

    def results(conv):
        y, back = jax.vjp(conv, X, w)
        return y, *back(dy)

    for ours, theirs in zip(
        jax.jit(results, static_argnums=0)(conv_same), results(xla), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=3e-5 * np.abs(theirs).max())  # seen: 1e-5


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ((5, 5, 8, 64), np.float32),  # few channels in
        ((5, 5, 64, 8), np.float32),  # and out
        ((1, 3, 32, 64), np.float32),  # nothing to save
        ((9, 9, 32, 64), np.float32),  # larger than a tile
        ((5, 5, 32, 64), jnp.bfloat16),
    ],
)
def test_other_convolutions_are_summed(kernel, dtype):
    assert not winograd.pays(kernel, dtype)


def test_no_image():
    assert conv_same(jnp.zeros((0, 8, 8, 16)), jnp.ones((5, 5, 16, 32))).shape == (0, 8, 8, 32)
