"""Gradients of records that are formed: their entries' order and their weighted sums, against JAX's and NumPy's."""

import jax
import numpy as np
import pytest

from fedpriv.mechanisms.formed_gradients import formed, is_formed_last, weighted_sum
from fedpriv.mechanisms.outer_products import Product, Stacked

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    "moves",
    [
        (),
        (("transpose", (1, 0)),),
        (("reshape", (2, 3, 4)),),
        (("reshape", (2, 3, 4)), ("transpose", (2, 0, 1))),
        (("reshape", (2, 3, 4)), ("transpose", (1, 2, 0))),  # which parts the rows' axes
        (("reshape", (6, 2, 2)), ("transpose", (1, 2, 0))),
        (("reshape", (2, 3, 4)), ("transpose", (1, 0, 2))),
        (("transpose", (1, 0)), ("reshape", (2, 2, 6))),
    ],
)
def test_entries_are_where_their_moves_bring_them(moves):
    gradients = Stacked((Product(normal(3, 5, 6), normal(3, 5, 4, seed=1)),), moves)
    ours, plain = jax.jit(lambda: (formed(gradients), gradients.formed()))()
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("records", [1, 7, 32, 37, 80])
def test_weighted_sums(records):
    """What is of weight 0 does not count, though it is not finite."""
    values, weights = normal(records, 3, 2), normal(records, seed=1)
    values[0], weights[0] = np.nan, 0.0
    wanted = np.tensordot(np.float64(weights[1:]), np.float64(values[1:]), 1)
    np.testing.assert_allclose(jax.jit(weighted_sum)(values, weights), wanted, rtol=0, atol=1e-5)


def test_long_rows_are_not_kept():
    few, many = (Stacked((Product(normal(2, t, 8), normal(2, t, 8)),)) for t in (8, 9))
    assert is_formed_last(few)
    assert not is_formed_last(many)
