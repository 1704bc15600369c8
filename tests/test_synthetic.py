"""synthetic(alpha, beta): shapes, laws, splits."""

import numpy as np
import pytest
from scipy import stats
from small import FALSE_ALARM

from fedpriv.data.datasets import synthetic


def raw(alpha, beta, **changes):
    return synthetic(alpha, beta, **{"clients": 200, "records": 50, "preprocess": False} | changes)


def features(data):
    """f64[clients, records, 40]."""
    return data.train["image"].astype(np.float64).reshape(200, -1, 40)


def test_shapes_and_split():
    data = synthetic(0.0, 0.0, clients=7, records=10)
    assert data.train["image"].shape == (56, 40, 1, 1)
    assert data.test["image"].shape == (14, 40, 1, 1)
    assert data.train["image"].dtype == np.float32
    assert data.train["label"].dtype == np.int32
    assert np.bincount(data.keys).tolist() == [8] * 7
    assert np.bincount(data.test["client"]).tolist() == [2] * 7
    assert data.num_classes == 10


def test_features_vary_within_clients_as_j_to_the_minus_1_2():
    x = features(raw(0.0, 0.0))
    within = x - x.mean(1, keepdims=True)
    freedom = 200 * (x.shape[1] - 1)
    statistic = np.sum(within**2, (0, 1)) / np.arange(1, 41) ** -1.2
    low, high = stats.chi2.ppf([FALSE_ALARM / 80, 1 - FALSE_ALARM / 80], freedom)
    assert np.all((low < statistic) & (statistic < high))


@pytest.mark.parametrize("beta", [0.0, 5.0])
def test_beta_is_a_variance_between_clients(beta):
    """A client's mean of feature j has variance beta + 1 + j^-1.2 / records."""
    x = features(raw(0.0, beta))
    variance = beta + 1 + np.arange(1, 41) ** -1.2 / x.shape[1]
    statistic = np.sum(x.mean(1) ** 2 / variance)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 200 * 40)
    assert low < statistic < high


def test_one_label_in_twenty_is_changed_to_another():
    """The same draws without the last step; alpha and beta are variances."""
    rng = np.random.default_rng(3)
    w = rng.normal(rng.normal(0, 2.0, (40, 10)), 1.0)
    b = rng.normal(rng.normal(0, 2.0, 10), 1.0)
    v = rng.normal(rng.normal(0, 3.0, 40), 1.0)
    x = rng.normal(v, np.arange(1, 41) ** -0.6, (20_000, 40))
    data = synthetic(4.0, 9.0, clients=1, records=20_000, seed=3, preprocess=False)
    np.testing.assert_allclose(data.train["image"].reshape(-1, 40), x[:16_000], rtol=1e-6)
    changed = np.sum(data.train["label"] != np.argmax(x[:16_000] @ w + b, 1))
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 16_000, 0.05)
    assert low < changed < high


def test_preprocessing():
    data = synthetic(1.0, 1.0, clients=20, records=50)
    norms = np.linalg.norm(data.train["image"].reshape(-1, 40), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-6)
    before = synthetic(1.0, 1.0, clients=20, records=50, preprocess=False)
    x, test = (
        part["image"].reshape(-1, 40).astype(np.float64) for part in (before.train, before.test)
    )
    standard = (test - x.mean(0)) / x.std(0)  # by the training records alone
    standard /= np.linalg.norm(standard, axis=1, keepdims=True)
    np.testing.assert_allclose(data.test["image"].reshape(-1, 40), standard, atol=1e-5)


def test_seeds():
    first, again, other = (synthetic(0.0, 0.0, clients=3, records=5, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.train["image"], again.train["image"])
    assert not np.array_equal(first.train["image"], other.train["image"])
