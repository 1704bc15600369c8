"""Sensitivity under minimum separation, against every participation of short runs."""

import itertools
import math

import numpy as np
import pytest
import tiers
from tree_nodes import nodes_of, tree_sensitivity_squared

import fedpriv as fp
from fedpriv.privacy.strategy_sensitivity import block_sensitivity, most_participations, sensitivity

SCHEMAS = [(2, 2), (2, None), (1, 1), (1, 3), (1, None), (3, 2), (4, 3), (5, None), (9, None)]


def patterns(rounds, separation, most, start=0):
    """All sets of one or more rounds from `start` that a unit may take part in."""
    if most == 0:
        return
    for first in range(start, rounds):
        yield [first]
        later = None if most is None else most - 1
        for rest in patterns(rounds, separation, later, first + separation):
            yield [first, *rest]


def by_force(c, separation, most):
    """sup ||C u||^2 over patterns, for equal contributions."""
    of = (c[:, p].sum(axis=1) for p in patterns(c.shape[1], separation, most))
    return max(float(column @ column) for column in of)


def by_force_with_signs(c, separation, most):
    """sup ||C u||^2 over patterns and u of -1 and 1."""
    best = 0.0
    for p in patterns(c.shape[1], separation, most):
        signs = np.array(list(itertools.product([-1, 1], repeat=len(p))))
        best = max(best, float((np.square(c[:, p] @ signs.T)).sum(axis=0).max()))
    return best


def toeplitz(*coefficients, rounds=9):
    column = np.append(coefficients, np.zeros(rounds - len(coefficients)))
    return np.array(
        [[column[i - j] if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)]
    )


def matrices():
    """Of 9 rounds."""
    rng = np.random.default_rng(0)
    yield from (rng.normal(size=(9, 9)) * np.tri(9) for _ in range(4))
    yield from (rng.uniform(size=(12, 9)) for _ in range(2))
    yield toeplitz(1, 0.2, 0.7)
    yield toeplitz(1, -0.5, 0.3, -0.1)
    yield np.linalg.inv(toeplitz(*0.6 ** np.arange(9)))
    yield np.linalg.inv(fp.noise_matrices.tree(9).noising(9))


@tiers.every("schema", SCHEMAS, kind=lambda schema: schema[1] is None)
def test_no_participation_is_beyond_the_bound(schema):
    separation, most = schema
    rng = np.random.default_rng(1)
    for c in matrices():
        bound = sensitivity(c, separation, most) ** 2
        assert by_force_with_signs(c, separation, most) <= bound * (1 + 1e-12)
        for p in itertools.islice(patterns(9, separation, most), 0, None, 7):
            u = rng.normal(size=(9, 3))
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            assert np.square(c[:, p] @ u[p]).sum() <= bound * (1 + 1e-12)


@tiers.every("schema", SCHEMAS, kind=lambda schema: schema[1] is None)
@pytest.mark.parametrize(
    "coefficients", [(1,), (1, 0.5), (1, 0.5, 0.375, 0.3125), (1, 1, 1), tuple(0.9 ** np.arange(9))]
)
def test_exact_for_coefficients_that_fall(coefficients, schema):
    separation, most = schema
    c = toeplitz(*coefficients)
    exact = by_force(c, separation, most)
    assert sensitivity(c, separation, most) ** 2 == pytest.approx(exact, rel=1e-12)


@tiers.every("given", [(3, 1), (3, 2), (3, None), (4, 2), (9, None)])
def test_exact_for_bands_within_the_separation(given):
    separation, most = given
    rng = np.random.default_rng(2)
    for _ in range(5):
        c = rng.normal(size=(9, 9)) * (np.tri(9) - np.tri(9, k=-3))
        exact = by_force(c, separation, most)
        assert sensitivity(c, separation, most) ** 2 == pytest.approx(exact, rel=1e-12)


def test_limits():
    c = next(matrices())
    once = np.linalg.norm(c, axis=0).max()
    for schema in ((1, 1), (9, None), (9, 4), (50, None)):
        assert sensitivity(c, *schema) == pytest.approx(once, rel=1e-12)
    every = math.sqrt(np.abs(c.T @ c).sum())
    assert sensitivity(c, 1) == pytest.approx(every, rel=1e-12)
    assert sensitivity(np.eye(9), 2, 3) == pytest.approx(math.sqrt(3), rel=1e-12)
    assert sensitivity([[2.0]], 1) == pytest.approx(2.0)


@pytest.mark.slow
def test_no_looser_than_the_librarys():
    from jax_privacy.matrix_factorization import sensitivity as library
    from jax_privacy.matrix_factorization import toeplitz as library_toeplitz

    for c in matrices():
        for schema in ((2, 2), (3, None)):
            theirs = library.get_min_sep_sensitivity_upper_bound(c.astype(np.float32), *schema)
            assert sensitivity(c, *schema) <= theirs * (1 + 1e-5)
    c = toeplitz(*0.9 ** np.arange(10), rounds=200)
    theirs = library_toeplitz.minsep_sensitivity_squared(c[:, 0].astype(np.float32), 30, 5)
    assert sensitivity(c, 30, 5) ** 2 == pytest.approx(float(theirs), rel=1e-5)


def test_how_often():
    assert most_participations(10, 3) == 4
    assert most_participations(9, 3) == 3
    assert most_participations(10, 3, 2) == 2
    assert most_participations(10, 3, 9) == 4
    assert most_participations(10, 50) == 1


@tiers.every("restart_every", [4, 1, 12])
@tiers.every("rounds", [7, 1, 12])
def test_tree_by_force(rounds, restart_every):
    nodes = nodes_of(rounds, restart_every)
    for separation, most in SCHEMAS:
        exact = tree_sensitivity_squared(rounds, restart_every, separation, most)
        assert exact == by_force(nodes, separation, most)
        assert sensitivity(nodes, separation, most) ** 2 >= exact * (1 - 1e-12)


@tiers.every("given", [(5, 4), (3, 5), (8, None)])
def test_tree_of_more_rounds_by_force(given):
    separation, most = given
    nodes = nodes_of(27, 27)
    exact = tree_sensitivity_squared(27, 27, separation, most)
    assert exact == by_force(nodes, separation, most)


@pytest.mark.parametrize(("separation", "most"), [(16, 3), (8, None), (64, 1)])
def test_what_a_tree_releases_moves_less_than_its_nodes(separation, most):
    tree = fp.noise_matrices.tree(64)
    by_nodes = tree_sensitivity_squared(64, 64, separation, most)
    assert tree.sensitivity(64, separation, most) ** 2 < by_nodes


@tiers.every("rounds", [64, 1, 1024])
def test_one_participation_is_dp_accountings_tree(rounds):
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    squared = tree_sensitivity_squared(rounds, rounds, 1, 1)
    ours = dp.GaussianDpEvent(20 / math.sqrt(squared))
    theirs = dp.SingleEpochTreeAggregationDpEvent(20.0, rounds)
    relation = dp.NeighboringRelation.REPLACE_SPECIAL
    of = [
        RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(1e-6)
        for event in (ours, theirs)
    ]
    assert of[0] == pytest.approx(of[1], rel=1e-9)


class TestBlocks:
    """A unit that is in one round of each block, whichever."""

    def patterns(self, rounds, block):
        starts = range(0, rounds, block)
        return itertools.product(*(range(s, min(s + block, rounds)) for s in starts))

    @tiers.every("block", [3, 1, 4, 20])
    def test_no_pattern_is_beyond_the_bound(self, block):
        for c in matrices():
            bound, by_force = block_sensitivity(c, block) ** 2, 0.0
            for p in self.patterns(9, block):
                signs = np.array(list(itertools.product([-1, 1], repeat=len(p))))
                by_force = max(by_force, float(np.square(c[:, p] @ signs.T).sum(0).max()))
            assert by_force <= bound * (1 + 1e-12)
            assert bound <= sensitivity(c, 1, -(-9 // block)) ** 2 * (1 + 1e-12)

    def test_limits(self):
        for c in matrices():
            assert block_sensitivity(c, 1) == pytest.approx(math.sqrt(np.abs(c.T @ c).sum()))
            assert block_sensitivity(c, 9) == pytest.approx(np.linalg.norm(c, axis=0).max())
        for block, blocks in ((2, 5), (3, 3), (4, 3)):
            assert block_sensitivity(np.eye(9), block) == pytest.approx(math.sqrt(blocks))

    def test_less_than_for_as_many_rounds_one_apart(self):
        c = toeplitz(*0.9 ** np.arange(5), rounds=60)
        exactly = block_sensitivity(c, 10)
        assert sensitivity(c, 10, 6) < exactly < 0.9 * sensitivity(c, 1, 6)
