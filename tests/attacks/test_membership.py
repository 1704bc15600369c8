"""Membership inference: rates by hand; power against a model that has learnt by heart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpriv.attacks.membership import infer_membership, losses


def test_losses_are_those_of_every_example():
    params = jnp.float32(3.0)
    examples = {"x": jnp.arange(7, dtype=jnp.float32)}
    found = losses(lambda p, e: (e["x"] - p) ** 2, params, examples, batch_size=3)
    np.testing.assert_array_equal(found, (np.arange(7) - 3.0) ** 2)


def test_rates_by_hand():
    """Of ten others one loses less than any member but the first."""
    members = np.array([0.0, 1.0, 2.0, 3.0])
    others = np.array([0.5, *range(10, 19)])
    found = infer_membership(members, others, (0.1,))
    assert found.tpr == (1.0,)
    pairs = (members[:, None] < others).mean()
    assert found.auc == pytest.approx(pairs)


def test_equal_losses_are_taken_at_random():
    """A model that knows all for sure: every loss is 0, and the attack is a coin."""
    found = infer_membership(np.zeros(50), np.zeros(200), (0.1, 0.01))
    assert found.auc == 0.5
    assert found.tpr == pytest.approx((0.1, 0.01))


def test_equal_distributions_are_a_coin():
    """An AUC further than 0.03 from 0.5 has a chance of 2e-7 (standard deviation 0.0058)."""
    members, others = np.random.default_rng(0).normal(size=(2, 5000))
    found = infer_membership(members, others, (0.1, 0.01))
    assert abs(found.auc - 0.5) < 0.03
    assert 0.05 < found.tpr[0] < 0.15


def test_what_is_learnt_by_heart_is_found():
    """Least squares with as many weights as members: their loss is 0."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(220, 20)), rng.normal(size=220)
    w = jnp.asarray(np.linalg.solve(x[:20], y[:20]), jnp.float32)
    examples = jax.tree.map(jnp.float32, {"x": x, "y": y})
    every = losses(lambda w, e: (e["x"] @ w - e["y"]) ** 2, w, examples)
    found = infer_membership(every[:20], every[20:], (0.1, 0.01))
    assert found.auc > 0.95
    assert found.tpr[1] > 0.9
