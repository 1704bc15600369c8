"""Subsets of records: exactly the size asked for, and every one equally likely."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats
from small import FALSE_ALARM, assert_uniform

from fedpriv import subsets
from fedpriv.privacy import FixedSize

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def drawn(population, size, count, seed=0):
    """bool[count, population], after checking that each row has `size` different records."""
    sampler = subsets(population, size)
    keys = jax.random.split(jax.random.key(seed), count)
    cohorts = jax.jit(lambda keys: jax.lax.map(sampler.draw, keys))(keys)
    ids, mask = np.asarray(cohorts.ids), np.asarray(cohorts.mask)
    assert ids.shape == (count, sampler.slots)
    taken = np.zeros((count, population), int)
    rows, slots = np.nonzero(mask)
    np.add.at(taken, (rows, ids[rows, slots]), 1)
    assert taken.max() == 1
    assert (taken.sum(1) == size).all()
    return taken.astype(bool)


@pytest.mark.parametrize(
    ("population", "size"), [(1, 1), (2, 1), (5, 5), (7, 6), (33, 20), (1000, 999), (4000, 800)]
)
def test_exactly_as_many_as_asked_for(population, size):
    drawn(population, size, 50)
    assert subsets(population, size).accounting == FixedSize(population, size)
    assert subsets(population, size).expected_size == size


def test_every_record_is_equally_likely():
    """33 needs 6 bits, of which almost half the values are rejected."""
    taken = drawn(33, 12, 20_000)
    assert_uniform(taken.sum(0), 20_000, 12 / 33)


def test_every_subset_is_equally_likely():
    taken = drawn(6, 3, 40_000)
    codes = taken @ (1 << np.arange(6))
    of_three = [sum(1 << i for i in c) for c in itertools.combinations(range(6), 3)]
    counts = [np.sum(codes == code) for code in of_three]
    assert sum(counts) == 40_000
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_draws_of_different_keys_are_independent():
    """Consecutive draws overlap as two independent ones do: hypergeometric."""
    taken = drawn(40, 10, 8_000)
    overlap = (taken[::2] & taken[1::2]).sum(1)
    law = stats.hypergeom(40, 10, 10)
    expected = 4000 * law.pmf(np.arange(7))
    counts = np.array([np.sum(overlap == k) for k in range(7)])
    rest = 4000 - counts.sum(), 4000 - expected.sum()
    counts, expected = np.append(counts, rest[0]), np.append(expected, rest[1])
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


def test_few_slots_are_wasted():
    assert subsets(4000, 800).slots < 1.3 * 800
    assert subsets(4000, 3900).slots == subsets(4000, 4000).slots == 4000


def test_of_more_than_half_every_subset_is_equally_likely():
    taken = drawn(6, 4, 40_000)
    codes = taken @ (1 << np.arange(6))
    counts = [np.sum(codes == sum(1 << i for i in c)) for c in itertools.combinations(range(6), 4)]
    assert sum(counts) == 40_000
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize("size", [0, 6])
def test_wrong_size(size):
    with pytest.raises(ValueError, match=f"size = {size}: give"):
        subsets(5, size)
