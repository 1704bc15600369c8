"""How close reconstructed images are to the true ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def mse(image: jax.Array, true: jax.Array) -> jax.Array:
    """f32[...]: mean squared error over height, width and channels (the last three axes)."""
    return jnp.mean((image - true) ** 2, (-3, -2, -1))


def psnr(image: jax.Array, true: jax.Array) -> jax.Array:
    """f32[...], in dB: 10 log10(1 / mse), for images in [0, 1]."""
    return -10 * jnp.log10(mse(image, true))


def ssim(image: jax.Array, true: jax.Array) -> jax.Array:
    """f32[...]: structural similarity of images in [0, 1], in its standard form.

    Z. Wang, A. Bovik, H. Sheikh, E. Simoncelli, "Image Quality Assessment", IEEE TIP 2004: Gaussian windows of 11 x 11
    pixels and standard deviation 1.5, K1 = 0.01, K2 = 0.03; the mean over windows inside the image and over channels.

    Args:
      image, true: f32[..., height, width, channels], height and width at least 11.
    """
    place = jnp.arange(11.0) - 5
    window = jnp.exp(-(place**2) / (2 * 1.5**2))
    window /= jnp.sum(window)

    def smooth(x: jax.Array) -> jax.Array:
        rows = jax.vmap(lambda line: jnp.convolve(line, window, "valid"))
        flat = jnp.moveaxis(x, -1, -3)
        lead = flat.shape[:-2]
        across = rows(flat.reshape(-1, flat.shape[-1])).reshape(*lead, flat.shape[-2], -1)
        turned = jnp.swapaxes(across, -1, -2)
        down = rows(turned.reshape(-1, turned.shape[-1]))
        return down.reshape(*lead, turned.shape[-2], -1)

    mean_x, mean_y = smooth(image), smooth(true)
    var_x = smooth(image**2) - mean_x**2
    var_y = smooth(true**2) - mean_y**2
    both = smooth(image * true) - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * both + c2) / (var_x + var_y + c2)
    return jnp.mean(luminance * structure, (-3, -2, -1))
