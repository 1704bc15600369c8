"""Clip bounds hold whatever the size of what is clipped: squares that float32 rounds to 0 or to infinity."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpriv import dynamic, gaussian, laplace, models, per_example
from fedpriv.mechanisms.clipping import coefficients, flat, per_layer, per_level, separately
from fedpriv.mechanisms.mechanisms import LEAST_CLIP
from fedpriv.mechanisms.per_example import private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")

# Compiled as for users: XLA's rewriting of divisions is part of what is tested.

D = 1024
CLIPPINGS = {
    "flat": flat(),
    "per_layer": per_layer(2),
    "separately": separately(2),
    "coefficients": coefficients(D),
    "per_level": per_level(D),
}
BOUNDS = (LEAST_CLIP, 1.0, 1 / LEAST_CLIP)
RNG = np.random.default_rng(0)


def length(tree):
    return math.hypot(*(np.linalg.norm(np.asarray(x, np.float64)) for x in jax.tree.leaves(tree)))


def level_norms(u):
    """||H_l u|| of each group of Haar coefficients, from coarse to fine, in double precision."""
    means, found = u, []
    while len(means) > 1:
        left, right = means[::2], means[1::2]
        found.append(np.linalg.norm((left - right) / 2))
        means = (left + right) / 2
    return np.array([abs(means[0]), *reversed(found)])


def sizes(u):
    """`u` times powers of ten that float32 has."""
    largest = np.abs(u).max()
    for power in range(-42, 39, 5):
        if largest * 10.0**power < 3e38:
            yield (u * 10.0**power).astype(np.float32)


@pytest.mark.parametrize("name", CLIPPINGS)
def test_no_size_gets_past_a_clip_set(name):
    clipping = CLIPPINGS[name]
    clip = jax.jit(clipping.clip)
    kinds = [np.ones(D), RNG.normal(size=D), 10.0 ** RNG.uniform(-8, 0, size=D), np.eye(D)[3]]
    for bound in BOUNDS:
        for u in (sized for kind in kinds for sized in sizes(kind)):
            bounded, norm = clip({"a": u[:300], "b": u[300:]}, bound)
            assert length(bounded) <= bound * clipping.length * (1 + 1e-3)
            whole = np.concatenate([np.asarray(x, np.float64) for x in bounded.values()])
            if name == "per_level":
                weights = D / np.array([1, *(2.0**k for k in range(10))])
                assert np.all(level_norms(whole) * weights <= bound * (1 + 1e-3))
            if not np.isfinite(norm):  # from 1.8e19 on
                assert length(u) > 1e19 or name in ("coefficients", "per_level")
                assert not whole.any()
            elif name == "flat":
                assert length(bounded) == pytest.approx(min(length(u), bound), rel=1e-3)


def bilinear(params, example):
    """The gradient of a record is the product of its factors."""
    return jnp.sum((example["x"] @ params["w"]) * example["y"])


def test_no_size_of_a_factor_gets_past_a_clip_of_records():
    """One row, and two whose sizes differ; 1 over the largest float32 is 0 for XLA."""
    params = {"w": jnp.zeros((30, 20))}
    for bound in BOUNDS:
        mean = private_mean(per_example(bilinear), gaussian(bound, 0.0), 1.0)
        clipped = jax.jit(lambda batch, mean=mean: mean(jax.random.key(0), params, batch, ONE))
        for rows in (1, 2):
            cases = [10.0 ** RNG.uniform(-38, 38, size=(2, 1, rows, 1)) for _ in range(200)]
            extremes = [10.0**x * np.ones((2, 1, rows, 1)) for x in (-38, 38)]
            swapped = [np.stack([extremes[i][0], extremes[1 - i][1]]) for i in range(2)]
            for a, b in [*cases, *extremes, *swapped]:
                x = np.clip(RNG.normal(size=(1, rows, 30)), -2, 2) * a
                y = np.clip(RNG.normal(size=(1, rows, 20)), -2, 2) * b
                found = clipped({"x": np.float32(x), "y": np.float32(y)})
                assert length(found) <= bound * (1 + 2e-3)
                true = length(np.einsum("bti,bto->bio", x, y))
                moderate = max(np.abs(np.log10([a, b])).ravel()) < 14
                if moderate and bound == 1.0 and true < 1e18:
                    assert length(found) == pytest.approx(min(true, bound), rel=1e-3)


ONE = jnp.ones(1, bool)


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("closed", [False, True])
def test_no_size_of_inputs_or_weights_gets_past_a_clip_of_records(l2, closed):
    model = models.classifier(models.LogisticRegression(4), (5, 5, 1))
    gradients = per_example(model.loss, l2, closed_form=closed)
    start = model.init(jax.random.key(0))
    drawn = jax.tree.map(lambda w: RNG.normal(size=w.shape).astype(np.float32), start)
    for bound in BOUNDS:
        mean = private_mean(gradients, gaussian(bound, 0.0), 1.0)
        clipped = jax.jit(lambda p, batch, mean=mean: mean(jax.random.key(0), p, batch, ONE))
        for weights in (1e-30, 1e-15, 1.0, 1e15):
            params = jax.tree.map(lambda w, size=weights: np.float32(size) * w, drawn)
            for image in sizes(np.clip(RNG.normal(size=(1, 5, 5, 1)), -2, 2)):
                found = clipped(params, {"image": image, "label": np.array([1])})
                assert length(found) <= bound * (1 + 1e-3)


@pytest.mark.parametrize("make", [gaussian, laplace])
@pytest.mark.parametrize("clip_norm", [1e-20, 9e-13, 1.1e12, 1e25])
def test_bounds_whose_squares_float32_does_not_have_are_refused(make, clip_norm):
    for sigma in (0.0, 1.0):
        with pytest.raises(
            ValueError, match=r"clip_norm: .* is beyond float32, which squares"
        ) as e:
            make(clip_norm, sigma)
        assert "make it 1e-12 to 1e+12" in str(e.value)
        assert "\n" not in str(e.value)


def test_bounds_that_fall_there_are_refused():
    with pytest.raises(ValueError, match="clip_norm: 1e-13 after clip_decay 1e"):
        dynamic(gaussian(1.0, 1.0), rounds=10, clip_decay=1e13)


def test_the_update_of_fifty_bounds_that_got_through():
    """10,000 coordinates of 50 C / 100 each, whose squares are 0."""
    u = np.full(10_000, 50 * LEAST_CLIP / 100, np.float32)
    bounded, norm = gaussian(LEAST_CLIP, 1.0).clip(u)
    assert length(bounded) == pytest.approx(LEAST_CLIP, rel=1e-5)
    assert norm == pytest.approx(50 * LEAST_CLIP, rel=1e-5)
