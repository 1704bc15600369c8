"""The Gaussian mechanism against jax_privacy, its noise, what it declares. `test_every_mechanism.py` has bounds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax_privacy import clipping
from small import assert_close, assert_identical, assert_normal, certified, sgd, squared

from fedpriv import everyone, fed_avg, full_batch, gaussian, laplace

pytestmark = pytest.mark.usefixtures("quick_to_compile")

# jax_privacy still calls optax by an old name.
OLD_NAMES = "ignore:optax.*:DeprecationWarning"


def update(scale, seed=0):
    rng = np.random.default_rng(seed)
    tree = {"b": rng.normal(size=()), "w": [rng.normal(size=(3, 4)), rng.normal(size=5)]}
    return jax.tree.map(lambda leaf: jnp.asarray(scale * leaf, jnp.float32), tree)


def length(tree, order=2):
    return np.linalg.norm(
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(float), order
    )


@pytest.mark.filterwarnings(OLD_NAMES)
@pytest.mark.parametrize("clip_norm", tiers.cases([0.5, 2.0, math.inf]))
def test_clipping_is_that_of_jax_privacy(clip_norm):
    clip = jax.jit(gaussian(clip_norm, 0).clip)
    theirs = jax.jit(lambda tree: clipping.clip_pytree(tree, clip_norm)[0])
    for scale in (0.0, 1e-3, 0.2, 1.0, 1e3, 1e15):
        given = update(scale)
        clipped, before = clip(given)
        assert before == pytest.approx(length(given), rel=1e-6)
        assert length(clipped) == pytest.approx(min(length(given), clip_norm), rel=1e-6)
        if length(given) <= clip_norm:
            assert_identical(clipped, given)
        assert_close(clipped, theirs(given), 1e-6)


def test_noise_of_the_sum():
    total = {"b": jnp.float32(3), "w": jnp.ones((40, 100)), "z": jnp.zeros(100)}
    perturb = jax.jit(gaussian(0.5, 1.4).perturb)
    key = jax.random.key(0)
    noisy = perturb(key, total)
    noise = jax.tree.map(jnp.subtract, noisy, total)
    assert_normal(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(noise)]), 0.7)
    assert jax.tree.map(jnp.shape, noisy) == jax.tree.map(jnp.shape, total)
    # The noise depends on the key alone, not on what it hides; another key is other noise.
    zero = perturb(key, jax.tree.map(jnp.zeros_like, total))
    assert_close(zero, noise, 1e-5)
    other = perturb(jax.random.key(1), jax.tree.map(jnp.zeros_like, total))
    assert_normal(np.ravel(other["w"] - zero["w"]), 0.7 * math.sqrt(2))


@pytest.mark.slow
def test_the_ledger_follows_laplace_noise():
    """Through any algorithm that takes a mechanism; 1 / multiplier is the pure epsilon of a round."""
    options = {"sampler": everyone(5), "optimizer": sgd, "batches": full_batch()}
    algorithm = fed_avg(squared, **options, mechanism=laplace(1.0, 4.0))
    certificate = certified(algorithm, 1, 1e-12)
    assert certificate.epsilon == pytest.approx(0.25, rel=1e-3)
    share = certified(algorithm, 1, 1e-12, view="server")
    assert share.epsilon == math.inf
    assert "share of Laplace noise" in share.assumptions[0]
