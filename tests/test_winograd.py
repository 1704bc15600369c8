"""Winograd's convolution against NumPy's correlation and XLA's convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax import lax

from fedpriv.models import winograd
from fedpriv.models.conv import conv_same

X = np.random.default_rng(0).normal(size=(5, 13, 9, 16)).astype(np.float32)  # no whole tiles
CPU = jax.default_backend() == "cpu"


@pytest.mark.parametrize("kernel", [2, 3, 5, 7])
def test_a_tile_is_numpys_correlation(kernel):
    rng = np.random.default_rng(kernel)
    x, w = rng.normal(size=winograd.TILE), rng.normal(size=kernel)
    a, g, b = winograd.matrices(kernel)
    np.testing.assert_allclose(a.T @ ((g @ w) * (b @ x)), np.correlate(x, w, "valid"), atol=1e-12)


def xla(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
    )


def choose(monkeypatch, chosen):
    for rule in ("forward_pays", "weight_cotangent_pays"):
        monkeypatch.setattr(winograd, rule, lambda x, w: chosen)


@tiers.every(
    "how",
    [
        ((3, 5), 90_000, True),
        ((3, 5), 2**21, False),
        ((7, 3), 2**21, True),
    ],
    kind=lambda how: how[-1],
)
def test_convolution_and_gradients_are_xlas(how, monkeypatch):
    """By Winograd's algorithm, in one chunk and in several that are filled up, and by the sum."""
    kernel, numbers, chosen = how
    monkeypatch.setattr(winograd, "_NUMBERS", numbers)
    choose(monkeypatch, chosen)
    w = np.random.default_rng(1).normal(size=(*kernel, 16, 32)).astype(np.float32)
    dy = np.random.default_rng(2).normal(size=(*X.shape[:3], 32)).astype(np.float32)

    def results(conv):
        y, back = jax.vjp(conv, X, w)
        return y, *back(dy)

    both = jax.jit(results, static_argnums=0)(conv_same), results(xla)
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3e-5 * np.abs(theirs).max())  # seen: 1e-5


@pytest.mark.slow
def test_what_sees_nothing_is_zero(monkeypatch):
    """Of a blank window, rounding must not decide which way ReLU's derivative goes."""
    choose(monkeypatch, True)
    x = np.where(np.arange(9)[:, None] < 6, X, 0)
    w = np.random.default_rng(1).normal(size=(3, 5, 16, 32)).astype(np.float32)
    ours, theirs = conv_same(x, w), xla(x, w)
    assert (theirs[:, :, -1] == 0).all()
    assert (theirs[:, :, -2] != 0).all()
    np.testing.assert_array_equal(ours == 0, theirs == 0)


@pytest.mark.parametrize(
    ("x", "w", "dtype"),
    [
        ((5, 13, 9, 8), (5, 5, 8, 64), np.float32),  # few channels in
        ((5, 13, 9, 64), (5, 5, 64, 8), np.float32),  # and out
        ((5, 13, 9, 32), (1, 3, 32, 64), np.float32),  # nothing to save
        ((5, 13, 9, 32), (9, 9, 32, 64), np.float32),  # larger than a tile
        ((1, 7, 7, 64), (3, 3, 64, 64), np.float32),  # few pixels
        ((1, 999, 999, 32), (5, 5, 32, 64), np.float32),  # one image fills the memory
        ((5, 13, 9, 32), (5, 5, 32, 64), jnp.bfloat16),  # would lose a tenth
        ((5, 13, 9, 32), (5, 5, 32, 64), np.int32),
        ((5, 13, 9, 1), (5, 5, 32, 64), np.float32),  # which XLA refuses
    ],
)
def test_other_convolutions_are_summed(x, w, dtype):
    given = jax.ShapeDtypeStruct(x, dtype), jax.ShapeDtypeStruct(w, dtype)
    assert not winograd.forward_pays(*given)
    assert not winograd.weight_cotangent_pays(*given)


@pytest.mark.skipif(not CPU, reason="the rules are for CPUs")
@pytest.mark.parametrize(
    ("x", "w", "forward"),
    [
        ((10, 14, 14, 32), (5, 5, 32, 64), True),
        ((50, 30, 30, 32), (3, 3, 32, 64), False),
        ((60, 16, 16, 16), (5, 5, 16, 32), False),
    ],
)
def test_what_is_faster_on_amd_and_intel_is_chosen(x, w, forward):
    """By measurement (experiments/results/performance.md); the weight's gradient was faster in all three."""
    shapes = jax.ShapeDtypeStruct(x, np.float32), jax.ShapeDtypeStruct(w, np.float32)
    assert winograd.forward_pays(*shapes) == forward
    assert winograd.weight_cotangent_pays(*shapes)
