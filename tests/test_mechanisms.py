"""The Gaussian mechanism: a bound that holds, noise of the right size, nothing where there is none."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import clipping
from small import assert_close, assert_identical, assert_normal, certified, refused, sgd, squared

from fedpriv import everyone, fed_avg, full_batch, gaussian, laplace

pytestmark = pytest.mark.usefixtures("quick_to_compile")

# jax_privacy still calls optax by an old name.
OLD_NAMES = "ignore:optax.*:DeprecationWarning"


def update(scale, seed=0):
    rng = np.random.default_rng(seed)
    tree = {"b": rng.normal(size=()), "w": [rng.normal(size=(3, 4)), rng.normal(size=5)]}
    return jax.tree.map(lambda leaf: jnp.asarray(scale * leaf, jnp.float32), tree)


def norm(tree):
    return math.sqrt(
        sum(np.sum(np.asarray(leaf, np.float64) ** 2) for leaf in jax.tree.leaves(tree))
    )


@pytest.mark.filterwarnings(OLD_NAMES)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.2, 1.0, 1e3, 1e15])
@pytest.mark.parametrize("clip_norm", [0.5, 2.0, math.inf])
def test_clip(scale, clip_norm):
    given = update(scale)
    clipped, before = gaussian(clip_norm, 0).clip(given)
    np.testing.assert_allclose(before, norm(given), rtol=1e-6)
    assert norm(clipped) <= clip_norm * (1 + 1e-6)
    if norm(given) <= clip_norm:
        assert_identical(clipped, given)
    else:
        np.testing.assert_allclose(norm(clipped), clip_norm, rtol=1e-6)
    assert_close(clipped, clipping.clip_pytree(given, clip_norm)[0], 1e-6)


@pytest.mark.filterwarnings(OLD_NAMES)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e30])
def test_a_broken_update_is_bounded_as_well(wrong):
    """1e30 is finite, but its square is not: a norm that overflows must not void the bound."""
    broken = update(1.0)
    broken["w"][1] = broken["w"][1].at[2].set(wrong)
    clipped, before = gaussian(2.0, 1.0).clip(broken)
    assert norm(clipped) <= 2 * (1 + 1e-6)
    assert not np.isfinite(before)  # the diagnostics tell
    assert norm(clipping.clip_pytree(broken, 2.0)[0]) <= 2 * (1 + 1e-6)  # so does jax_privacy


def test_without_a_clip_nothing_is_hidden():
    broken = update(1.0) | {"b": jnp.float32(math.nan)}
    clipped, _ = gaussian(math.inf, 0).clip(broken)
    assert_identical(clipped, broken)


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


def test_no_noise_changes_no_bit():
    total = update(1.0)
    assert_identical(gaussian(1.0, 0).perturb(jax.random.key(0), total), total)


def test_what_the_accountant_is_told():
    assert gaussian(0.3, 1.4).certified_multiplier == 1.4
    assert gaussian(0.3, 1.4).reason == ""
    assert gaussian(0.3, 0).certified_multiplier == 0
    assert gaussian(math.inf, 0).reason


@pytest.mark.parametrize(
    ("clip_norm", "noise_multiplier", "message"),
    [
        (0, 1, "clip_norm: 0; give"),
        (-1.5, 1, r"clip_norm: -1\.5; give"),
        (math.nan, 1, "clip_norm: nan; give"),
        (1, -0.1, r"noise_multiplier: -0\.1; give"),
        (1, math.nan, "noise_multiplier: nan; give"),
        (1, math.inf, "noise_multiplier: inf; give"),
        (math.inf, 1, "clip_norm: inf leaves the noise unbounded; give a finite"),
    ],
)
def test_errors(clip_norm, noise_multiplier, message):
    with refused(message):
        gaussian(clip_norm, noise_multiplier)


def l1(tree):
    return sum(np.sum(np.abs(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 1e3])
def test_laplace_clips_in_the_l1_norm(scale):
    given = update(scale)
    clipped, before = laplace(2.0, 1.0).clip(given)
    np.testing.assert_allclose(before, l1(given), rtol=1e-6)
    assert l1(clipped) <= 2 * (1 + 1e-6)
    if l1(given) <= 2:
        assert_identical(clipped, given)
    else:
        np.testing.assert_allclose(l1(clipped), 2, rtol=1e-6)


def test_laplace_declares_itself():
    assert (laplace(1.0, 2.0).noise, laplace(1.0, 2.0).certified_multiplier) == ("laplace", 2.0)
    assert laplace(1.0, 0.0).reason == "no noise is added"
    with pytest.raises(ValueError, match="clip_norm: 0; give"):
        laplace(0, 1)


def test_the_ledger_follows_laplace_noise():
    """Through any algorithm that takes a mechanism; 1 / multiplier is the pure epsilon of a round."""
    options = {"sampler": everyone(5), "optimizer": sgd, "batches": full_batch()}
    algorithm = fed_avg(squared, **options, mechanism=laplace(1.0, 4.0))
    certificate = certified(algorithm, 1, 1e-12)
    assert certificate.epsilon == pytest.approx(0.25, rel=1e-3)
    share = certified(algorithm, 1, 1e-12, view="server")
    assert share.epsilon == math.inf
    assert "share of Laplace noise" in share.assumptions[0]
