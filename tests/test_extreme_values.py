"""Clip bounds hold whatever the size of what is clipped: squares that float32 rounds to 0 or to infinity."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from small import filled

from fedpriv import gaussian, models, per_example
from fedpriv.mechanisms.per_example import private_mean
from fedpriv.proof.bound import LEAST_CLIP

pytestmark = pytest.mark.usefixtures("quick_to_compile")

BOUNDS = (1.0, LEAST_CLIP, 1 / LEAST_CLIP)
RNG = np.random.default_rng(0)


def length(tree):
    return math.hypot(*(np.linalg.norm(np.asarray(x, np.float64)) for x in jax.tree.leaves(tree)))


def sizes(u):
    """`u` times powers of ten that float32 has."""
    largest = np.abs(u).max()
    for power in range(-42, 39, 5):
        if largest * 10.0**power < 3e38:
            yield (u * 10.0**power).astype(np.float32)


def bilinear(params, example):
    """The gradient of a record is the product of its factors."""
    return jnp.sum((example["x"] @ params["w"]) * example["y"])


@pytest.mark.parametrize("bound", BOUNDS)
def test_no_size_of_a_factor_gets_past_a_clip_of_records(bound):
    """One row, and two whose sizes differ; 1 over the largest float32 is 0 for XLA."""
    params = {"w": jnp.zeros((30, 20))}
    mean = private_mean(per_example(bilinear), gaussian(bound, 0.0), 1.0)
    clipped = lambda batch: mean(jax.random.key(0), params, batch, ONE)  # noqa: E731
    for rows in (1, 2):
        cases = [10.0 ** RNG.uniform(-38, 38, size=(2, 1, rows, 1)) for _ in range(200)]
        extremes = [10.0**x * np.ones((2, 1, rows, 1)) for x in (-38, 38)]
        cases += [*extremes, *(np.stack([a[0], b[1]]) for a, b in (extremes, extremes[::-1]))]
        a, b = np.stack(cases, 1)
        x = np.clip(RNG.normal(size=(len(cases), 1, rows, 30)), -2, 2) * a
        y = np.clip(RNG.normal(size=(len(cases), 1, rows, 20)), -2, 2) * b
        found = jax.jit(lambda xs: jax.lax.map(clipped, xs))(
            {"x": np.float32(x), "y": np.float32(y)}
        )
        lengths = np.linalg.norm(np.asarray(found["w"], np.float64), axis=(1, 2))
        assert (lengths <= bound * (1 + 2e-3)).all()
        true = np.linalg.norm(np.einsum("cbti,cbto->cio", x, y), axis=(1, 2))
        sizes_of = np.abs(np.log10([a, b])).max(axis=(0, 2, 3, 4))
        moderate = (sizes_of < 14) & (true < 1e18)
        if bound == 1.0:
            assert moderate.sum() > 2
            expected = np.minimum(true, bound)[moderate]
            np.testing.assert_allclose(lengths[moderate], expected, rtol=1e-3)


ONE = jnp.ones(1, bool)


@tiers.every("how", [(0.1, True), (0.0, False), (0.1, False), (0.0, True)], kind=lambda how: how[1])
def test_no_size_of_inputs_or_weights_gets_past_a_clip_of_records(how):
    l2, closed = how
    model = models.classifier(models.LogisticRegression(4), (5, 5, 1))
    gradients = per_example(model.loss, l2, closed_form=closed)
    drawn = filled(model.init, 1.0)
    images = np.stack(list(sizes(np.clip(RNG.normal(size=(1, 5, 5, 1)), -2, 2))))
    for bound in BOUNDS:
        mean = private_mean(gradients, gaussian(bound, 0.0), 1.0)

        def clipped(given, mean=mean):
            weights, image = given
            params = jax.tree.map(lambda w: weights * w, drawn)
            return mean(jax.random.key(0), params, {"image": image, "label": np.array([1])}, ONE)

        given = zip(*itertools.product(np.float32([1e-30, 1e-15, 1.0, 1e15]), images), strict=True)
        found = jax.jit(lambda *g, f=clipped: jax.lax.map(f, g))(*map(np.stack, given))
        vectors = [np.asarray(x, np.float64).reshape(len(x), -1) for x in jax.tree.leaves(found)]
        assert np.linalg.norm(np.concatenate(vectors, 1), axis=1).max() <= bound * (1 + 1e-3)


def test_the_update_of_fifty_bounds_that_got_through():
    """10,000 coordinates of 50 C / 100 each, whose squares are 0."""
    u = np.full(10_000, 50 * LEAST_CLIP / 100, np.float32)
    bounded, norm = jax.jit(gaussian(LEAST_CLIP, 1.0).clip)(u)
    assert length(bounded) == pytest.approx(LEAST_CLIP, rel=1e-5)
    assert norm == pytest.approx(50 * LEAST_CLIP, rel=1e-5)
