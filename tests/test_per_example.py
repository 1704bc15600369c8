"""Gradients of single records: general and closed form, against jax alone and jax_privacy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import clipping
from small import assert_close, assert_normal

from fedpriv import models
from fedpriv.codecs import flatten
from fedpriv.per_example import per_example, per_example_softmax, private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")
OLD_NAMES = "ignore:optax.*:DeprecationWarning"
B = 12
MODEL = models.classifier(models.LogisticRegression(4), (3, 1, 1))
PARAMS = jax.tree.map(
    lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape),
    MODEL.init(jax.random.key(0)),
)
BATCH = {
    "image": jax.random.normal(jax.random.key(1), (B, 3, 1, 1)),
    "label": jax.random.randint(jax.random.key(2), (B,), 0, 4),
}
WEIGHTS = jnp.linspace(-1, 2, B)


def one_by_one(l2):
    def loss(params, example):
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        return MODEL.loss(params, example) + l2 / 2 * square

    examples = [jax.tree.map(lambda leaf, j=j: leaf[j], BATCH) for j in range(B)]
    return np.stack([flatten(jax.grad(loss)(PARAMS, e)) for e in examples])


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("closed", [False, True])
def test_norms_and_weighted_sums(l2, closed):
    gradients = per_example_softmax(l2) if closed else per_example(MODEL.loss, l2)
    norms, weighted = gradients(PARAMS, BATCH)
    expected = one_by_one(l2)
    np.testing.assert_allclose(norms, np.linalg.norm(expected, axis=1), rtol=1e-5)
    total = weighted(WEIGHTS)
    assert jax.tree.structure(total) == jax.tree.structure(PARAMS)
    np.testing.assert_allclose(flatten(total), np.asarray(WEIGHTS) @ expected, atol=1e-5)


@pytest.mark.filterwarnings(OLD_NAMES)
@pytest.mark.parametrize("clip_norm", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("closed", [False, True])
def test_clipping_against_jax_privacy(clip_norm, closed):
    gradients = per_example_softmax() if closed else per_example(MODEL.loss)
    mean = private_mean(gradients, clip_norm, 0.0, 7.0)
    found = mean(jax.random.key(0), PARAMS, BATCH, jnp.ones(B, bool))

    def loss(params, batch):
        return jnp.sum(jax.vmap(MODEL.loss, in_axes=(None, 0))(params, batch))

    theirs = clipping.clipped_grad(loss, l2_clip_norm=clip_norm, batch_argnums=1)(PARAMS, BATCH)
    assert_close(found, jax.tree.map(lambda leaf: leaf / 7, theirs), 1e-5)


@pytest.mark.parametrize("closed", [False, True])
def test_masked_and_broken_records_do_not_count(closed):
    gradients = per_example_softmax() if closed else per_example(MODEL.loss)
    broken = BATCH | {"image": BATCH["image"].at[3].set(math.nan)}
    mean = private_mean(gradients, 0.5, 0.0, 1.0)
    mask = jnp.arange(B) < 9
    found = mean(jax.random.key(0), PARAMS, broken, mask)
    kept = jax.tree.map(lambda leaf: leaf[jnp.array([0, 1, 2, 4, 5, 6, 7, 8])], BATCH)
    alone = mean(jax.random.key(0), PARAMS, kept, jnp.ones(8, bool))
    assert_close(found, alone, 1e-5)


def test_noise_is_relative_to_a_replaced_record():
    mean = private_mean(per_example_softmax(), 0.5, 1.5, 4.0)
    keys = jax.random.split(jax.random.key(0), 2000)
    nobody = jnp.zeros(B, bool)
    drawn = jax.vmap(lambda key: flatten(mean(key, PARAMS, BATCH, nobody)))(keys)
    assert_normal(np.asarray(drawn), 2 * 0.5 * 1.5 / 4)


def test_the_median_of_the_real_records():
    norms, _ = per_example_softmax()(PARAMS, BATCH)
    mask = jnp.arange(B) < 7
    found = private_mean(per_example_softmax(), "median", 0.0, 1.0)
    fixed = private_mean(per_example_softmax(), float(np.median(norms[:7])), 0.0, 1.0)
    arguments = (jax.random.key(0), PARAMS, BATCH, mask)
    assert_close(found(*arguments), fixed(*arguments), 1e-6)


def test_without_a_clip_it_is_the_mean_gradient():
    mean = private_mean(per_example_softmax(), math.inf, 0.0, B)
    found = mean(jax.random.key(0), PARAMS, BATCH, jnp.ones(B, bool))
    np.testing.assert_allclose(flatten(found), one_by_one(0.0).mean(0), atol=1e-6)
