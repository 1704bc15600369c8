"""Objective, its minimum, and heterogeneity, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import gradient, records, regression, squared, start, vector

import fedpriv as fp
from fedpriv import ModelState, measures
from fedpriv.devices.layout import Strategy

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = [3, 5, 4]
FEDERATION = regression(SIZES)
L2 = 0.2


def by_hand(theta):
    """F, grad F_i of each client, by NumPy."""
    values, gradients = [], []
    for i in range(len(SIZES)):
        x, y = records(FEDERATION, i)
        residual = x @ theta[1:] + theta[0] - y
        values.append(np.mean(residual**2) / 2 + L2 / 2 * theta @ theta)
        gradients.append(gradient(theta, x, y) + L2 * theta)
    return np.mean(values), np.array(gradients)


@pytest.mark.parametrize("clients", ["map", 2, "vmap"])
def test_heterogeneity(clients):
    from fedpriv.devices.layout import use

    state = ModelState(start(), jnp.int32(0))
    with use(Strategy(clients)):
        found = jax.jit(measures.heterogeneity(squared, L2, minimum=0.01))(state, FEDERATION)
    value, each = by_hand(vector(start()))
    squares, of_mean = np.mean(np.sum(each**2, 1)), np.sum(each.mean(0) ** 2)
    assert found["objective"] == pytest.approx(value, rel=1e-5)
    assert found["log_gap"] == pytest.approx(np.log10(value - 0.01), rel=1e-5)
    assert found["dissimilarity"] == pytest.approx(squares - of_mean, rel=1e-4)
    assert found["log_dissimilarity"] == pytest.approx(np.log(squares / of_mean), rel=1e-4)


def test_minimum_of_least_squares():
    """The normal equations; every client counts equally, whatever its size."""
    a, b = L2 * np.eye(4), np.zeros(4)
    for i in range(len(SIZES)):
        x, y = records(FEDERATION, i)
        z = np.column_stack([np.ones(len(y)), x])
        a, b = a + z.T @ z / len(y) / len(SIZES), b + z.T @ y / len(y) / len(SIZES)
    least = by_hand(np.linalg.solve(a, b))[0]
    assert measures.minimum_of(squared, start(), FEDERATION, L2) == pytest.approx(least, rel=1e-10)
    assert jnp.zeros(1).dtype == jnp.float32  # double precision was for this alone


@pytest.mark.slow
def test_the_minimum_of_large_data_is_found_without_a_word(capfd):
    """With the data as constants XLA says on standard error how long it takes to compute with them."""
    rng, n = np.random.default_rng(0), 400_000
    features = rng.normal(size=(n, 4)).astype(np.float32)
    examples = {"image": features, "label": rng.integers(0, 2, n).astype(np.int32)}
    rows = np.array_split(np.arange(n), 100)
    federation = fp.Federation.from_arrays(examples, rows, num_classes=2)
    model = fp.models.classifier(fp.models.LogisticRegression(2), (4,))
    params = model.init(jax.random.key(0))
    assert 0.69 < measures.minimum_of(model.loss, params, federation, 1e-3) < np.log(2)
    assert capfd.readouterr().err == ""
