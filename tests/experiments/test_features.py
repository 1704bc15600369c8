"""Preprocessing against NumPy, and the clients that are made of images."""

import numpy as np
import pytest

from fedpriv.data.datasets import Dataset
from fedpriv.experiments.papers.dp_scaffold_images import (
    Images,
    clients_of,
    projected,
    standardised,
    unit_norm,
)

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (30, 5)) * [1, 10, 0, 1, 1] + 1


def test_standardised():
    found = standardised(X, X[:20])
    np.testing.assert_allclose(found[:20].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(found[:20].std(0), [1, 1, 0, 1, 1], atol=1e-12)
    assert (found[:, 2] == 0).all()  # constant


def test_projected_is_the_singular_vectors():
    found = projected(X, X[:20], 2)
    centred = X[:20] - X[:20].mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    expected = (X - X[:20].mean(0)) @ axes[:2].T
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)
    with pytest.raises(ValueError, match="components: 6 is not between 1 and 5"):
        projected(X, X, 6)


def test_unit_norm():
    rows = np.vstack([X, np.zeros(5)])
    norms = np.linalg.norm(unit_norm(rows), axis=1)
    np.testing.assert_allclose(norms, [1] * 30 + [0])


def pool(n=120):
    label = np.repeat(np.arange(4, dtype=np.int32), n // 4)
    image = RNG.integers(0, 255, (n, 3, 3, 1)).astype(np.uint8)
    return Dataset("four", {"image": image, "label": label}, {}, 4)


def config(**changes):
    return Images(**{"clients": 6, "records": 20, "local_steps": 1} | changes)


@pytest.mark.parametrize("gamma", [0.0, 50.0, 100.0])
@pytest.mark.parametrize("components", [None, 3])
def test_clients_of_images(gamma, components):
    data = clients_of(config(gamma=gamma), pool(), components)
    d = components or 9
    assert data.train["image"].shape == (96, d, 1, 1)
    assert data.test["image"].shape == (24, d, 1, 1)
    assert np.bincount(data.keys).tolist() == [16] * 6
    for part in (data.train, data.test):
        norms = np.linalg.norm(part["image"].reshape(-1, d), axis=1)
        np.testing.assert_allclose(norms, 1, rtol=1e-5)
    labels = data.train["label"].reshape(6, 16)
    classes = np.mean([len(set(own)) for own in labels])
    assert classes <= 2 if gamma == 0 else classes > 2


def test_no_image_is_given_twice_and_tests_come_from_the_same_clients():
    marked = pool()
    marked.train["image"][:, 0, 0, 0] = np.arange(120)
    data = clients_of(config(gamma=0.0, clients=4, records=30, client_rate=0.5), marked)
    both = np.concatenate([data.train["image"], data.test["image"]]).reshape(120, 9)
    assert len(np.unique(both.round(6), axis=0)) == 120
    assert data.test["label"].reshape(4, 6).tolist() == [[c] * 6 for c in range(4)]


def test_wrong_input():
    with pytest.raises(ValueError, match="records: 6 clients of 30 need 180 images, four has 120"):
        clients_of(config(records=30), pool())
