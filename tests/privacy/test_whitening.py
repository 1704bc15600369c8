"""Multipliers from clip set, map and covariance."""

import math

import numpy as np
import pytest
from haar import haar
from scipy.optimize import minimize

from fedpriv.privacy import joint_multiplier, whitened_multiplier


@pytest.mark.parametrize("m", [2, 8, 32])
def test_haar(m):
    """Clipped coefficients, a gradient clipped before the transform, and clipped levels."""
    sigma, clip = 1.3, 0.7
    transform, weights = haar(m)
    noise = sigma * clip / weights
    assert whitened_multiplier(noise, clip) == pytest.approx(sigma / m)
    assert whitened_multiplier(noise, clip, transform) == pytest.approx(sigma / math.sqrt(m))
    levels = [
        whitened_multiplier(noise[weights == w][:1], clip / w) for w in sorted({*weights[1:]})
    ]
    base = whitened_multiplier(noise[:1], clip / m)
    joint = joint_multiplier([base, *levels])
    assert joint == pytest.approx(sigma / math.sqrt(1 + math.log2(m)))


def test_orthonormal_haar_is_the_plain_gaussian():
    transform, _ = haar(16)
    orthonormal = transform / np.linalg.norm(transform, axis=1, keepdims=True)
    np.testing.assert_allclose(orthonormal @ orthonormal.T, np.eye(16), atol=1e-12)
    assert whitened_multiplier(np.full(16, 1.3), 1.0, orthonormal) == pytest.approx(1.3)


def test_the_worst_direction_is_found():
    """Against a search over directions."""
    rng = np.random.default_rng(0)
    transform, noise = rng.normal(size=(4, 3)), rng.uniform(0.5, 2, 4)

    def shift(u):
        return -np.linalg.norm(transform @ (2.0 * u / np.linalg.norm(u)) / noise)

    worst = max(-minimize(shift, rng.normal(size=3)).fun for _ in range(5))
    assert whitened_multiplier(noise, 2.0, transform) == pytest.approx(1 / worst, rel=1e-6)


def test_limits():
    assert whitened_multiplier(2.0, 1.0) == 2.0
    assert whitened_multiplier([2.0, 0.0], 1.0) == 0.0
    assert whitened_multiplier([2.0, 1.0], math.inf) == 0.0
    assert whitened_multiplier([2.0, 0.0], 1.0, [[1.0], [0.0]]) == 2.0  # nothing moves the other
    assert whitened_multiplier([2.0], 1.0, [[0.0]]) == math.inf
    assert whitened_multiplier([1e-320], 1.0, [[1.0]]) == 0.0  # not infinity, by overflow
    assert whitened_multiplier([1e-200], 1.0, [[1e200]]) == 0.0
    assert joint_multiplier([1e-200, 1.0]) == pytest.approx(1e-200)
    assert joint_multiplier([]) == math.inf
    assert joint_multiplier([3.0, 0.0]) == 0.0
    assert joint_multiplier([2.0, math.inf]) == 2.0
    assert joint_multiplier([2.0, 2.0]) == pytest.approx(math.sqrt(2))
