"""The clip norm of public examples and pseudo-clients, against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from haar import haar
from small import classification, gradient, records, regression, rows_of, squared, start, vector

from fedpriv import full_batch, gaussian, per_example
from fedpriv.mechanisms.clipping import coefficients, flat, per_layer, per_level
from fedpriv.papers import median_norm, median_update_norm

pytestmark = pytest.mark.usefixtures("quick_to_compile")

PUBLIC = 7
FEDERATION = regression([3, 4, 5, 6], public=PUBLIC, features=4)
CLIPPINGS = {
    None: None,
    "flat": flat(),
    "per_layer": per_layer(2),
    "per_level": per_level(5),
    "coefficients": coefficients(5),
}


def public(count=PUBLIC):
    rows = np.asarray(FEDERATION.public)[:count]
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], FEDERATION.examples)


def norm(clipping, g):
    """Of g or, for `coefficients`, of its Haar coefficients."""
    return np.linalg.norm(haar(8)[0] @ np.pad(g, (0, 3)) if clipping == "coefficients" else g)


@tiers.every("name", CLIPPINGS, kind=lambda clipping: clipping is None)
def test_median_over_public_examples(name):
    """Of an odd and an even number; chunks that do and do not divide it."""
    several = [(1, 3), (6, 4), (PUBLIC, 64)]
    for count, chunk in several if name is None else [(PUBLIC, 3)]:
        x, y = rows_of(FEDERATION, FEDERATION.public[:count])
        theta = vector(start(4))
        each = [norm(name, gradient(theta, x[i : i + 1], y[i : i + 1])) for i in range(count)]

        @jax.jit
        def median(params, examples, chunk=chunk):
            gradients = per_example(squared)
            return median_norm(gradients, params, examples, CLIPPINGS[name], chunk=chunk)

        found = median(start(4), public(count))
        assert found.shape == ()
        assert float(found) == pytest.approx(np.median(each), rel=1e-5)


@pytest.mark.slow
def test_closed_forms_and_jit():
    federation, _, model = classification()
    params = model.init(jax.random.key(0))
    examples = jax.tree.map(lambda leaf: leaf[federation.public], federation.examples)
    expected = median_norm(per_example(model.loss), params, examples)
    closed = per_example(model.loss, closed_form=True)
    found = jax.jit(lambda p: median_norm(closed, p, examples))(params)
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


def test_it_is_a_clip_norm():
    median = jax.jit(lambda examples: median_norm(per_example(squared), start(4), examples))
    found = median(public())
    clipped, _ = gaussian(float(found), 1.0).clip(jnp.full(5, 1e3))
    assert float(jnp.linalg.norm(clipped)) == pytest.approx(float(found), rel=1e-6)
    broken = public() | {"y": np.full(PUBLIC, math.nan, np.float32)}
    with pytest.raises(ValueError, match="clip_norm: nan; give"):
        gaussian(float(median(broken)), 1.0)


@tiers.every("name", CLIPPINGS, kind=lambda clipping: clipping is None)
def test_median_over_pseudo_clients(name):
    """One step on all records moves by the rate times the gradient."""
    theta = vector(start(4))
    each = [norm(name, 0.3 * gradient(theta, *records(FEDERATION, i))) for i in range(4)]
    found = median_update_norm(
        jax.random.key(0),
        squared,
        start(4),
        FEDERATION,
        optimizer=optax.sgd(0.3),
        batches=full_batch(),
        clipping=CLIPPINGS[name],
    )
    assert float(found) == pytest.approx(np.median(each), rel=1e-5)


def test_errors():
    with pytest.raises(ValueError, match=r"examples: .*; give public examples"):
        median_norm(per_example(squared), start(4), public(0))
    with pytest.raises(ValueError, match="chunk: 0; give"):
        median_norm(per_example(squared), start(4), public(), chunk=0)
