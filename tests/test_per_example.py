"""Gradients of single records: general and closed form, against jax alone and jax_privacy."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax_privacy import clipping
from small import assert_close, assert_normal, filled

from fedpriv import mean_grad, models
from fedpriv.core.random_losses import needs_keys
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.clipping import separately
from fedpriv.mechanisms.mechanisms import gaussian, mechanism
from fedpriv.mechanisms.noise import isotropic
from fedpriv.mechanisms.per_example import (
    MedianClipping,
    RecordGradients,
    per_example,
    private_mean,
)

pytestmark = pytest.mark.usefixtures("quick_to_compile")
OLD_NAMES = "ignore:optax.*:DeprecationWarning"
B = 12
MODEL = models.classifier(models.LogisticRegression(4), (3, 1, 1))
BATCH = {
    "image": jax.random.normal(jax.random.key(1), (B, 3, 1, 1)),
    "label": jax.random.randint(jax.random.key(2), (B,), 0, 4),
}
WEIGHTS = jnp.linspace(-1, 2, B)


HIDDEN = models.classifier(models.MLP((5, 6), 4), (3, 1, 1))
LINE = models.classifier(models.LogisticRegression(2), (20, 1, 1))
CLOSED = per_example(MODEL.loss, closed_form=True)
MODELS = {"logistic regression": MODEL, "two hidden layers": HIDDEN}


def test_the_proof_of_gradients_does_not_pass_to_another_function():
    gradients, others = per_example(MODEL.loss), mean_grad(MODEL.loss)
    with pytest.raises(TypeError):
        dataclasses.replace(gradients, fn=others)
    with pytest.raises(AttributeError):
        functools.update_wrapper(gradients, others)
    wrapper = functools.wraps(gradients)(lambda params, batch: gradients(params, batch))
    assert type(wrapper) is not RecordGradients


def test_a_wrapper_of_gradients_takes_the_batch_that_they_take():
    random = mean_grad(lambda params, example, key: jax.random.normal(key) * params["w"])
    for gradients in (random, mean_grad(MODEL.loss), per_example(MODEL.loss)):
        wrapper = functools.wraps(gradients)(lambda *args, given=gradients: given(*args))
        assert needs_keys(wrapper) == needs_keys(gradients) == (gradients is random)


def params_of(model):
    return filled(model.init, 1.0)


def one_by_one(l2, model=MODEL):
    """The gradient of every record, as a tree with leaves [B, ...]."""

    def loss(params, example):
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        return model.loss(params, example) + l2 / 2 * square

    gradient, params = jax.jit(jax.grad(loss)), params_of(model)
    examples = [jax.tree.map(lambda leaf, j=j: leaf[j], BATCH) for j in range(B)]
    each = [gradient(params, e) for e in examples]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


PARAMS = params_of(MODEL)


def weights_of(norms):
    """Others for every tensor."""
    return jax.tree.map(lambda n: WEIGHTS * n.ndim + jnp.sum(n) / 100, norms)


HOW = [
    ("two hidden layers", 0.3, True),
    ("logistic regression", 0.3, False),
    ("two hidden layers", 0.0, False),
    ("logistic regression", 0.0, True),
]


@tiers.every("how", HOW, kind=lambda how: how[-1])
def test_norms_and_weighted_sums(how):
    name, l2, closed = how
    model = MODELS[name]
    gradients = per_example(model.loss, l2, closed_form=closed)

    @jax.jit
    def found(params, batch):
        norms, weighted, each = gradients(params, batch)
        return norms, weighted(weights_of(norms)), each()

    norms, total, each = found(params_of(model), BATCH)
    expected = one_by_one(l2, model)
    assert_close(
        norms,
        jax.tree.map(lambda g: np.linalg.norm(g.reshape(B, -1), axis=1), expected),
        1e-4,
    )
    assert_close(
        total,
        jax.tree.map(lambda w, g: np.tensordot(w, g, 1), weights_of(norms), expected),
        1e-4,
    )
    assert_close(each, expected, 1e-4)


def test_terms_that_cancel_leave_no_norm_too_small():
    """x e^T next to -l2 W: the kernel's gradient is 5e-4 x e^T, the terms of its squared norm are 4e6 times larger."""
    l2, error = 0.05, jnp.array([-0.7, 0.7])

    def ratio(key):
        """Norm of the gradient in a sum over the norm that clipping goes by."""
        x = jax.random.normal(key, (20,))
        x = x / jnp.linalg.norm(x)
        kernel = -(1 + 5e-4) / l2 * jnp.outer(x, error)
        bias = (
            jnp.log(jnp.array([0.3, 0.7])) - kernel.T @ x
        )  # so that softmax - onehot is the error
        params = {"params": {"Dense_0": {"kernel": kernel, "bias": bias}}}
        batch = {"image": x[None, :, None, None], "label": jnp.zeros(1, int)}
        norms, weighted, _ = per_example(LINE.loss, l2, closed_form=True)(params, batch)
        gradient = weighted(jax.tree.map(jnp.ones_like, norms))["params"]["Dense_0"]["kernel"]
        return jnp.linalg.norm(gradient) / norms["params"]["Dense_0"]["kernel"][0]

    ratios = jax.jit(jax.vmap(ratio))(jax.random.split(jax.random.key(0), 100))
    assert (ratios <= 1 + 1e-3).all()


def test_a_wrapper_of_a_loss_has_no_closed_form():
    """It is another loss."""
    wrapper = functools.wraps(MODEL.loss)(lambda params, example: 2 * MODEL.loss(params, example))
    with pytest.raises(ValueError, match=r"^closed_form: True"):
        per_example(wrapper, closed_form=True)


def test_every_tensor_clipped_by_itself():
    """Fixed C: each tensor's own sum; median: each tensor's own median."""
    each = one_by_one(0.0, HIDDEN)
    params = params_of(HIDDEN)
    fixed = mechanism(separately(6), isotropic(), clip_norm=0.4, noise_multiplier=0.0)
    for clip, rule in ((0.4, fixed), ("median", MedianClipping(0.0, tensors=6))):
        closed = per_example(HIDDEN.loss, closed_form=True)
        mean = jax.jit(private_mean(closed, rule, 3.0))
        found = mean(jax.random.key(0), params, BATCH, jnp.ones(B, bool))

        def clipped(g, clip=clip):
            norms = np.linalg.norm(g.reshape(B, -1), axis=1)
            bound = np.median(norms) if clip == "median" else clip
            return np.tensordot(bound / np.maximum(norms, bound), g, 1) / 3

        assert_close(found, jax.tree.map(clipped, each), 1e-4)


@pytest.mark.slow
def test_noise_of_every_tensor_follows_its_own_clip():
    noisy = jax.jit(private_mean(CLOSED, MedianClipping(3.0, tensors=2), 4.0))
    bare = jax.jit(private_mean(CLOSED, MedianClipping(0.0, tensors=2), 4.0))
    everyone = jnp.ones(B, bool)
    keys = jax.random.split(jax.random.key(0), 2000)
    total = bare(keys[0], PARAMS, BATCH, everyone)
    drawn = jax.jit(jax.vmap(lambda key: noisy(key, PARAMS, BATCH, everyone)))(keys)
    norms, *_ = CLOSED(PARAMS, BATCH)

    def check(x, mean, n):
        assert_normal(np.asarray(x - mean).reshape(2000, -1), 2 * 1.5 * np.median(n) / 4)

    jax.tree.map(check, drawn, total, norms)


def test_a_batch_without_records_has_no_median():
    mean = jax.jit(private_mean(CLOSED, MedianClipping(1.0), 4.0))
    found = mean(jax.random.key(0), PARAMS, BATCH, jnp.zeros(B, bool))
    assert all(np.abs(leaf).max() < 1e-11 for leaf in jax.tree.leaves(found))


@pytest.mark.filterwarnings(OLD_NAMES)
@tiers.every("how", [(0.1, False), (1.0, True), (5.0, True)])
def test_clipping_against_jax_privacy(how):
    clip_norm, closed = how
    gradients = per_example(MODEL.loss, closed_form=closed)
    mean = jax.jit(private_mean(gradients, gaussian(clip_norm, 0.0), 7.0))
    found = mean(jax.random.key(0), PARAMS, BATCH, jnp.ones(B, bool))

    def loss(params, batch):
        return jnp.sum(jax.vmap(MODEL.loss, in_axes=(None, 0))(params, batch))

    clipped = clipping.clipped_grad(loss, l2_clip_norm=clip_norm, batch_argnums=1)
    theirs = jax.jit(clipped)(PARAMS, BATCH)
    assert_close(found, jax.tree.map(lambda leaf: leaf / 7, theirs), 1e-5)


@tiers.every("closed", [True, False])
def test_masked_and_broken_records_do_not_count(closed):
    gradients = per_example(MODEL.loss, closed_form=closed)
    broken = BATCH | {"image": BATCH["image"].at[3].set(math.nan)}
    mean = jax.jit(private_mean(gradients, gaussian(0.5, 0.0), 1.0))
    mask = jnp.arange(B) < 9
    found = mean(jax.random.key(0), PARAMS, broken, mask)
    kept = jax.tree.map(lambda leaf: leaf[jnp.array([0, 1, 2, 4, 5, 6, 7, 8])], BATCH)
    alone = mean(jax.random.key(0), PARAMS, kept, jnp.ones(8, bool))
    assert_close(found, alone, 1e-5)


def test_noise_of_the_mean():
    mean = jax.jit(private_mean(CLOSED, gaussian(0.5, 3.0), 4.0))
    keys = jax.random.split(jax.random.key(0), 2000)
    nobody = jnp.zeros(B, bool)
    drawn = jax.jit(jax.vmap(lambda key: flatten(mean(key, PARAMS, BATCH, nobody))))(keys)
    assert_normal(np.asarray(drawn), 2 * 0.5 * 1.5 / 4)


@pytest.mark.slow
def test_the_median_of_the_real_records():
    norms = [
        np.linalg.norm(flatten(jax.tree.map(lambda g, j=j: g[j], one_by_one(0.0))))
        for j in range(7)
    ]
    mask = jnp.arange(B) < 7
    found = jax.jit(private_mean(CLOSED, MedianClipping(0.0), 1.0))
    norm = float(np.median(norms))
    fixed = jax.jit(private_mean(CLOSED, gaussian(norm, 0.0), 1.0))
    arguments = (jax.random.key(0), PARAMS, BATCH, mask)
    assert_close(found(*arguments), fixed(*arguments), 1e-6)


def test_without_a_clip_it_is_the_mean_gradient():
    mean = jax.jit(private_mean(CLOSED, gaussian(math.inf, 0.0), B))
    found = mean(jax.random.key(0), PARAMS, BATCH, jnp.ones(B, bool))
    losses = lambda p: jax.vmap(MODEL.loss, (None, 0))(p, BATCH).mean()  # noqa: E731
    assert_close(found, jax.jit(jax.grad(losses))(PARAMS), 1e-5)
