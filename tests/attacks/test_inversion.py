"""Gradient inversion: labels, images, what was not sent; scores against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.ndimage import correlate1d
from victims import IMAGES, LABELS, PARAMS, loss

from fedpriv.attacks.image_scores import mse, psnr, ssim
from fedpriv.attacks.inversion import infer_label, invert


def gradient(image, label):
    return jax.grad(loss)(PARAMS, {"image": image, "label": label})


@pytest.fixture(scope="module")
def seen():
    return jax.jit(jax.vmap(gradient))(IMAGES, LABELS)


def test_every_label_is_read_off_the_last_layer(seen):
    np.testing.assert_array_equal(infer_label(seen["last"]["bias"]), LABELS)


@pytest.mark.slow
def test_images_are_recovered(seen):
    seen = jax.tree.map(lambda leaf: leaf[:4], seen)
    found = invert(gradient, seen, LABELS[:4], (8, 8, 1), jax.random.key(1), steps=60)
    assert np.median(mse(found.image, IMAGES[:4])) < 1e-2
    again = jax.jit(jax.vmap(gradient))(found.image, LABELS[:4])
    off = jax.tree.map(lambda a, b: np.square(a - b).sum(tuple(range(1, a.ndim))), again, seen)
    np.testing.assert_allclose(sum(jax.tree.leaves(off)), found.distance, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_without_what_matters_nothing_is_recovered(seen):
    """Only the last bias was sent: it says the label and hardly more."""

    def bias(image, label):
        return gradient(image, label)["last"]["bias"]

    of_bias = seen["last"]["bias"][:4]
    found = invert(
        bias,
        of_bias,
        LABELS[:4],
        (8, 8, 1),
        jax.random.key(1),
        steps=100,
        optimizer=optax.adam(0.1),
    )
    assert np.median(mse(found.image, IMAGES[:4])) > 0.2


def smoothed(x):
    window = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    window /= window.sum()
    for axis in (0, 1):
        x = correlate1d(x, window, axis=axis)
    return x[5:-5, 5:-5]


def ssim_by_hand(x, y):
    mx, my = smoothed(x), smoothed(y)
    vx, vy = smoothed(x * x) - mx**2, smoothed(y * y) - my**2
    both = smoothed(x * y) - mx * my
    top = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
    return np.mean(top / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))


@pytest.mark.usefixtures("quick_to_compile")
def test_scores():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(2, 3, 20, 17, 2))
    expected = [
        [ssim_by_hand(a[..., c], b[..., c]) for c in range(2)] for a, b in zip(x, y, strict=True)
    ]
    np.testing.assert_allclose(
        jax.jit(ssim)(jnp.asarray(x), jnp.asarray(y)), np.mean(expected, 1), atol=1e-5
    )
    np.testing.assert_allclose(jax.jit(ssim)(jnp.asarray(x), jnp.asarray(x)), 1, atol=1e-5)
    np.testing.assert_allclose(mse(x, y), ((x - y) ** 2).mean((1, 2, 3)), rtol=1e-6)
    assert psnr(jnp.zeros((4, 4, 1)), jnp.full((4, 4, 1), 0.1)) == pytest.approx(20, abs=1e-4)
