"""Codecs: unbiased, their bits counted, what does not fit reported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import assert_identical, refused, z_bound

from fedpriv import qsgd, top_k
from fedpriv.compression.codecs import UNCODED
from fedpriv.core.trees import dimension
from fedpriv.papers import fixed_interval
from fedpriv.types import Wire

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DRAWS = 20_000

TREE = {"a": jnp.array([[-0.97, -0.55, -0.13], [0.17, 0.61, 0.93]]), "b": jnp.array([0.32, -0.71])}


@pytest.mark.parametrize(
    "codec", [qsgd(4), qsgd(2), fixed_interval(4, 1.0)], ids=["qsgd 4", "qsgd 2", "fixed"]
)
def test_codecs_are_unbiased(codec):
    keys = jax.random.split(jax.random.key(5), DRAWS)
    coded = jax.vmap(lambda k: codec.code(k, TREE).message)(keys)
    for name, x in TREE.items():
        values = np.asarray(coded[name], np.float64)
        assert values.shape[1:] == x.shape
        deviation = np.sqrt(np.maximum(values.var(0), 1e-6) / DRAWS)
        assert np.max(np.abs(values.mean(0) - x) / deviation) < z_bound(8)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bits_counted_are_bits_needed(bits):
    """Different values that can be decoded: at most 2^B, beside the scale."""
    x = jax.random.normal(jax.random.key(0), (50_000,))
    for codec in (qsgd(bits), fixed_interval(bits, 4.0)):
        values = np.unique(np.asarray(codec.code(jax.random.key(1), x).message))
        assert len(values) <= 2**bits
        assert codec.wire(100).bits() - codec.wire(0).bits() == 100 * bits
    assert qsgd(bits).wire(0).bits() == 32
    assert fixed_interval(bits, 4.0).wire(0).bits() == 0


def test_uncoded_is_what_was_sent():
    assert UNCODED.code(jax.random.key(0), TREE).message is TREE
    assert UNCODED.wire(dimension(TREE)).bits() == 8 * 32
    assert not UNCODED.lossy


def test_nothing_but_zeros():
    coded = qsgd(8).code(jax.random.key(0), jnp.zeros(5))
    np.testing.assert_array_equal(coded.message, np.zeros(5))


def test_a_fixed_interval_reports_what_lies_outside():
    coded = fixed_interval(8, 0.6).code(jax.random.key(0), TREE)  # -0.97, 0.61, 0.93 and -0.71
    assert coded.diagnostics == {"saturated": 0.5}


@pytest.mark.parametrize("k", range(1, 9))
def test_the_largest_coordinates_travel(k):
    """Of all leaves together, with their signs; what is left out is the rest of the message, to the bit."""
    coded = top_k(k).code(jax.random.key(0), TREE).message
    flat, sent = (np.concatenate([np.ravel(tree["a"]), tree["b"]]) for tree in (TREE, coded))
    kept = np.sort(np.argsort(-np.abs(flat))[:k])
    np.testing.assert_array_equal(np.flatnonzero(sent), kept)
    np.testing.assert_array_equal(sent[kept], flat[kept])
    left_out = jax.tree.map(jnp.subtract, TREE, coded)
    assert_identical(jax.tree.map(jnp.add, coded, left_out), TREE)


def test_a_message_that_is_not_finite_stays_so():
    spoilt = jnp.array([5.0, jnp.nan, 7.0, -jnp.inf])
    coded = top_k(2).code(jax.random.key(0), spoilt).message
    np.testing.assert_array_equal(coded, [0, jnp.nan, 0, -jnp.inf])


@pytest.mark.parametrize(
    ("k", "d", "for_places"),
    [
        (1, 1, 0),
        (1, 2, 1),
        (1, 1000, 10),
        (1, 1024, 10),
        (1, 1025, 11),
        (99, 1000, 990),
        (100, 1000, 1000),
        (999, 1000, 1000),
        (1000, 1000, 0),
        (10**6, 10**8, 27 * 10**6),
    ],
)
def test_the_bits_of_sparse_messages(k, d, for_places):
    """Places in numbers, or in a bit for each coordinate; none where all coordinates travel."""
    assert top_k(k).wire(d).bits() == 32 * k + for_places


def test_more_coordinates_than_there_are():
    with refused("k: 9; a message has 8 coordinates, give at most as many"):
        top_k(9).code(jax.random.key(0), TREE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: qsgd(1), "bits: 1; give"),
        (lambda: fixed_interval(23, 1.0), "bits: 23; give"),
        (lambda: fixed_interval(8, 0.0), "bound: 0.0; give"),
        (lambda: top_k(0), "k: 0; give"),
        (lambda: top_k(2.5), "k: 2.5; give"),
    ],
)
def test_wrong_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("of", [int, np.int32, jnp.int32])
def test_bits_of_a_message(of):
    assert Wire(of(10)).bits() == 320
    assert Wire(of(10), of(4), of(64)).bits() == 104
    bits = Wire(of(2**30), of(32), of(1)).bits()  # beyond 32 bits and beyond float32
    assert bits == 2**35 + 1
    assert type(bits) is int
