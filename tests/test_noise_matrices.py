"""Correlated noise: matrices and streams, against NumPy and jax_privacy."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from tree_nodes import nodes_of

from fedpriv import noise_matrices
from fedpriv.mechanisms.noise_matrices.blt import BufferedToeplitz, _optimized

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROUNDS = 21


class Entry(NamedTuple):
    """A matrix, and which code streams it."""

    kind: str
    make: Callable[[], noise_matrices.Factorization]


MATRICES = {
    "restarts": Entry("tree", lambda: noise_matrices.tree(ROUNDS, restart_every=6)),
    "banded_inverse": Entry("root", lambda: noise_matrices.banded_inverse(ROUNDS, 4)),
    "blt": Entry("buffers", lambda: BufferedToeplitz(ROUNDS, (0.95, 0.5), (0.2, 0.3))),
    "banded_toeplitz": Entry("bands", lambda: noise_matrices.banded_toeplitz(ROUNDS, 4)),
    "identity": Entry("fresh", noise_matrices.identity),
    "tree": Entry("tree", lambda: noise_matrices.tree(ROUNDS)),
    "restarts of a power": Entry("tree", lambda: noise_matrices.tree(ROUNDS, restart_every=8)),
    "one earlier": Entry("root", lambda: noise_matrices.banded_inverse(ROUNDS, 2)),
    "all bands": Entry("root", lambda: noise_matrices.banded_inverse(ROUNDS, ROUNDS)),
    "for momentum": Entry("bands", lambda: noise_matrices.banded_toeplitz(ROUNDS, 4, momentum=0.9)),
    "banded": Entry("bands", lambda: noise_matrices.banded(ROUNDS, 4)),
}
LIKE = {
    "w": jax.ShapeDtypeStruct((3, 2), jnp.float32),
    "b": jax.ShapeDtypeStruct((), jnp.bfloat16),
}


@cache
def made(name):
    return MATRICES[name].make()


def streamed(factorization, z, like=LIKE):
    """The noise of all rounds, one after the other."""

    def of_round(memory, now):
        t, fresh = now
        noise, memory = factorization.next(memory, fresh, t)
        return memory, noise

    rounds = jnp.arange(len(jax.tree.leaves(z)[0]))
    return jax.jit(lambda z: jax.lax.scan(of_round, factorization.init(like), (rounds, z))[1])(z)


def fresh(rounds=ROUNDS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(rng.normal(size=(rounds, *leaf.shape)), jnp.float32)
        for name, leaf in LIKE.items()
    }


@tiers.every("name", MATRICES)
def test_stream_is_the_matrix(name):
    factorization, z = made(name), fresh()
    noise, matrix = streamed(factorization, z), factorization.noising(ROUNDS)
    for leaf in z:
        expected = np.tensordot(matrix, np.asarray(z[leaf], np.float64), axes=1)
        np.testing.assert_allclose(noise[leaf], expected, rtol=0, atol=1e-5)
        assert noise[leaf].dtype == jnp.float32


@tiers.every("name", MATRICES)
def test_noising_is_the_inverse_of_the_strategy_and_begins_as_in_shorter_runs(name):
    factorization = made(name)
    whole, c = factorization.noising(ROUNDS), factorization.strategy(ROUNDS)
    np.testing.assert_allclose(c @ whole, np.eye(ROUNDS), atol=1e-12)
    assert np.array_equal(whole, np.tril(whole))
    np.testing.assert_allclose(factorization.noising(13), whole[:13, :13], atol=1e-12)
    np.testing.assert_allclose(factorization.strategy(13), c[:13, :13], atol=1e-12)
    assert factorization.sensitivity(13, 5, 3) <= factorization.sensitivity(ROUNDS, 5, 3) + 1e-12


def of_nodes_below(nodes):
    """The least variance that prefix sums have when each is put together from below: f64[T, T] covariance."""
    sums, rounds = {}, nodes.shape[1]
    for i, node in enumerate(nodes):
        below = np.flatnonzero((nodes <= node).all(axis=1))
        weights = np.linalg.lstsq(nodes[below].T, node, rcond=None)[
            0
        ]  # of least norm, hence of least variance
        sums[i] = np.zeros(len(nodes))
        sums[i][below] = weights
    prefixes = np.zeros((rounds, len(nodes)))
    for t in range(rounds):
        left = np.arange(rounds) <= t
        while left.any():
            inside = [i for i, node in enumerate(nodes) if (node <= left).all()]
            largest = max(inside, key=lambda i: nodes[i].sum())
            prefixes[t] += sums[largest]
            left = left & (nodes[largest] == 0)
    return prefixes @ prefixes.T


@tiers.every("name", {k: e for k, e in MATRICES.items() if e.kind == "tree"})
def test_tree_has_the_noise_of_the_best_estimates_from_below(name):
    """Found by least squares."""
    expected = of_nodes_below(nodes_of(ROUNDS, made(name).restart_every))
    prefixes = np.cumsum(made(name).noising(ROUNDS), axis=0)
    np.testing.assert_allclose(prefixes @ prefixes.T, expected, atol=1e-10)


def test_nodes_of_a_tree():
    nodes = nodes_of(6, 6)
    rows = {tuple(np.flatnonzero(node)) for node in nodes}
    assert rows == {(0,), (1,), (2,), (3,), (4,), (5,), (0, 1), (2, 3), (4, 5), (0, 1, 2, 3)}
    assert len(nodes) == len(rows)


def test_what_a_tree_releases_protects_more_than_its_nodes():
    tree = noise_matrices.tree(ROUNDS)
    released = np.linalg.inv(tree.noising(ROUNDS))
    nodes = nodes_of(ROUNDS, ROUNDS)
    gap = np.linalg.eigvalsh(nodes.T @ nodes - released.T @ released)
    assert gap.min() > -1e-10


def test_identity_is_plain_noise_to_the_bit():
    z = fresh()
    for limit in (
        noise_matrices.identity(),
        noise_matrices.banded_toeplitz(9, 1),
        noise_matrices.banded(9, 1),
        noise_matrices.banded_inverse(9, 1),
        noise_matrices.tree(9, restart_every=1),
        noise_matrices.tree(1),
    ):
        assert limit == noise_matrices.identity()
        assert limit.init(LIKE) == ()
        for leaf, noise in streamed(limit, z).items():
            np.testing.assert_array_equal(noise, z[leaf])
    assert noise_matrices.identity().sensitivity(10**6, 10, 8) == math.sqrt(8)


def test_memory():
    for name, size in (
        ("identity", 0),
        ("tree", 4),
        ("restarts", 2),
        ("banded_inverse", 4),
        ("blt", 2),
    ):
        factorization = made(name)
        assert factorization.memory_size == size
        memory = jax.eval_shape(lambda f=factorization: f.init(LIKE))
        shapes = [] if size == 0 else [(size, 1), (size, 6)]
        assert [leaf.shape for leaf in jax.tree.leaves(memory)] == shapes
        assert {leaf.dtype for leaf in jax.tree.leaves(memory)} <= {jnp.dtype(jnp.float32)}
        z = jax.tree.map(lambda x: x[0], fresh())
        _, later = jax.eval_shape(factorization.next, memory, z, jnp.int32(0))
        assert jax.tree.map(jnp.shape, later) == jax.tree.map(jnp.shape, memory)


def test_memory_of_64_bits():
    with jax.enable_x64(True):
        like = {"w": jax.ShapeDtypeStruct((3,), jnp.float64)}
        z = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(ROUNDS, 3)))}
        noise = streamed(made("tree"), z, like)["w"]
        assert noise.dtype == jnp.float64
        expected = made("tree").noising(ROUNDS) @ np.asarray(z["w"])
        np.testing.assert_allclose(noise, expected, atol=1e-13)


@pytest.mark.slow
def test_librarys_streams():
    """The same C^-1, as jax_privacy applies it."""
    from jax_privacy.matrix_factorization import banded, buffered_toeplitz, toeplitz

    c = made("banded_toeplitz").strategy(ROUNDS)
    theirs = {"banded_toeplitz": toeplitz.inverse_as_streaming_matrix(jnp.asarray(c[:4, 0]))}
    rows = np.array(made("banded").rows)
    columns = [[rows[t + j, j] if t + j < ROUNDS else 0.0 for j in range(4)] for t in range(ROUNDS)]
    normalized = banded.ColumnNormalizedBanded(params=jnp.asarray(columns))
    theirs["banded"] = normalized.inverse_as_streaming_matrix()
    blt = buffered_toeplitz.BufferedToeplitz.build([0.95, 0.5], [0.2, 0.3], jnp.float32)
    theirs["blt"] = blt.inverse_as_streaming_matrix()
    found = jax.jit(lambda: {name: each.materialize(ROUNDS) for name, each in theirs.items()})()
    for name, matrix in found.items():
        np.testing.assert_allclose(matrix, made(name).noising(ROUNDS), atol=1e-5)


def test_coefficients_of_the_inverse_square_root():
    from jax_privacy.matrix_factorization import toeplitz

    coefficients = noise_matrices.banded_inverse(30, 12).coefficients
    np.testing.assert_allclose(
        coefficients, toeplitz.optimal_max_error_noising_coefs(30)[:12], atol=1e-6
    )
    assert coefficients[:4] == (1, -1 / 2, -1 / 8, -1 / 16)
    c = noise_matrices.banded_inverse(30, 30).strategy(30)
    np.testing.assert_allclose(c @ c, np.tri(30), atol=1e-12)


@pytest.mark.slow
def test_columns_of_norm_one():
    c = made("banded").strategy(ROUNDS)
    np.testing.assert_allclose(np.linalg.norm(c, axis=0), 1, atol=1e-12)
    assert np.array_equal(c, np.tril(c) - np.tril(c, -4))
    assert made("banded").sensitivity(ROUNDS, 4, 3) == pytest.approx(math.sqrt(3), rel=1e-12)
    assert made("banded_toeplitz").sensitivity(ROUNDS, 4, 3) == pytest.approx(math.sqrt(3))


def workload(momentum, rounds=ROUNDS):
    """f64[rounds, rounds]: the model of a server with momentum, round by round, of each round's sum."""
    model = velocity = np.zeros(rounds)
    rows = []
    for t in range(rounds):
        velocity = momentum * velocity + np.eye(rounds)[t]
        model = model + velocity
        rows.append(model)
    return np.array(rows)


def error_by_hand(factorization, momentum):
    """f64[rounds]: the deviation of the noise in the model, at sensitivity 1."""
    left = workload(momentum) @ factorization.noising(ROUNDS)
    return np.linalg.norm(left, axis=1) * factorization.sensitivity(ROUNDS, 5, 3)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_error_of_prefix_sums_and_of_momentum(momentum):
    for name in ("tree", "banded_toeplitz", "banded_inverse"):
        told = error_by_hand(made(name), momentum)
        found = noise_matrices.error(made(name), ROUNDS, 5, 3, momentum)
        assert found.root_mean_square == pytest.approx(math.sqrt(np.mean(told**2)))
        assert found.largest == pytest.approx(told.max())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.slow
def test_the_candidate_of_least_error(momentum):
    """By hand; which one it is depends on the momentum."""
    candidates = [made(name) for name in ("identity", "tree", "banded_toeplitz", "for momentum")]
    errors = [np.mean(error_by_hand(each, momentum) ** 2) for each in candidates]
    found = noise_matrices.least_error(candidates, ROUNDS, 5, 3, momentum)
    assert found == candidates[int(np.argmin(errors))]
    assert found == made("for momentum" if momentum else "banded_toeplitz")
    assert noise_matrices.least_error(candidates[:1], ROUNDS) == noise_matrices.identity()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["banded_toeplitz", "banded"])
def test_optimised_under_momentum(name):
    """Better under it than the matrix for prefix sums, by at least 5 %, and worse for these."""
    other = getattr(noise_matrices, name)(ROUNDS, 4, momentum=0.9)
    assert repr(other) == f"fp.noise_matrices.{name}(rounds={ROUNDS}, bands=4, momentum=0.9)"
    np.testing.assert_allclose(np.linalg.norm(other.strategy(ROUNDS), axis=0)[:-3], 1, atol=1e-9)
    for momentum, more in ((0.9, 1.05), (0.0, 1 / 1.05)):
        errors = [np.mean(error_by_hand(each, momentum) ** 2) for each in (made(name), other)]
        assert (errors[0] > errors[1] * more) == (momentum > 0)


def test_the_root_of_the_workload_of_momentum():
    """With all bands C C is the workload."""
    c = noise_matrices.banded_inverse(ROUNDS, ROUNDS, momentum=0.9).strategy(ROUNDS)
    np.testing.assert_allclose(c @ c, workload(0.9), rtol=1e-9)


@pytest.mark.slow
def test_order_of_errors():
    """Optimised matrices are the better, the more general they are; all are better than independent noise."""

    def error(name):
        return noise_matrices.error(made(name), ROUNDS, 5, 3).root_mean_square

    assert error("banded") < error("banded_toeplitz") < error("identity")
    assert error("banded_inverse") < error("identity")
    long = (noise_matrices.banded_inverse(500, 20), noise_matrices.tree(500), made("identity"))
    errors = [noise_matrices.error(f, 500, 100, 5).root_mean_square for f in long]
    assert errors == sorted(errors)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_a_blt_is_optimised_for(momentum, monkeypatch):
    """The mean variance in the model, up to a factor; found without optimising: any matrix has it."""
    from jax_privacy.matrix_factorization import buffered_toeplitz

    seen = []
    with jax.enable_x64():
        c = buffered_toeplitz.BufferedToeplitz.build([0.95, 0.5], [0.2, 0.3], jnp.float64)

    def found(loss, **_):
        seen.append(float(loss.error_for_inv(c.inverse())))
        return c, 0.0

    monkeypatch.setattr(buffered_toeplitz, "optimize_loss", found)
    _optimized.__wrapped__(ROUNDS, 5, 3, 2, momentum)
    noise = workload(momentum) @ made("blt").noising(ROUNDS)
    expected = np.mean(np.linalg.norm(noise, axis=1) ** 2) * (1 - momentum) ** 2
    assert seen == [pytest.approx(expected)]


@pytest.mark.slow
def test_blt():
    """Better under the momentum than the root of its workload, which takes more vectors."""
    blt = noise_matrices.blt(24, separation=6, participations=4, buffers=2, momentum=0.9)
    assert blt.memory_size == 2
    root = noise_matrices.banded_inverse(24, 3, momentum=0.9)
    errors = [noise_matrices.error(f, 24, 6, 4, 0.9).root_mean_square for f in (blt, root)]
    assert errors[0] < errors[1]


@pytest.mark.slow
def test_values():
    """Equal and hashed by their numbers, and named."""
    for name, entry in MATRICES.items():
        if entry.kind != "bands":  # which take seconds
            assert made(name) == entry.make()
            assert hash(made(name)) == hash(entry.make())
        assert repr(made(name)).startswith("fp.noise_matrices.")
    assert len({made(name) for name in MATRICES}) == len(MATRICES)
    assert repr(made("restarts")) == "fp.noise_matrices.tree(rounds=21, restart_every=6)"
    under = noise_matrices.banded_inverse(4, 2, momentum=0.5)
    assert repr(under) == "fp.noise_matrices.banded_inverse(rounds=4, bands=2, momentum=0.5)"
    assert repr(made("banded")) == "fp.noise_matrices.banded(rounds=21, bands=4)"
    assert {name: made(name).bands for name in ("identity", "tree", "banded", "blt")} == {
        "identity": 1,
        "tree": None,
        "banded": 4,
        "blt": None,
    }
