"""Codecs: unbiased or within a bound, their bits counted, idempotent; quantization beneath them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from small import assert_identical, z_bound

from fedpriv import qsgd, top_k
from fedpriv.compression.codecs import UNCODED
from fedpriv.compression.quantization import quantize
from fedpriv.core.trees import flatten
from fedpriv.papers import fixed_interval
from fedpriv.types import Codec, Wire

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DRAWS = 20_000
TREE = {"a": jnp.array([[-0.97, -0.55, -0.13], [0.17, 0.61, 0.93]]), "b": jnp.array([0.32, -0.71])}
X = np.asarray(flatten(TREE), np.float64)
D = X.size


class Entry(NamedTuple):
    """A codec, and what laws ask of it.

    Attributes:
      kind: how it is made.
      unbiased: whether its mean is the message; otherwise it draws nothing.
      values: how many different numbers it can send, each in so many bits; 0 where they are floats.
      bits: of a message of `TREE`'s length, counted by hand.
      error: the largest distance from `TREE`.
    """

    kind: Callable
    codec: Codec
    unbiased: bool
    values: int
    bits: int
    error: float


def levels(bits: int) -> Entry:
    most = 2 ** (bits - 1) - 1
    return Entry(qsgd, qsgd(bits), True, 2**bits, 32 + D * bits, D**0.5 * 0.97 / most)


def interval(bits: int) -> Entry:
    error = D**0.5 * 2 / (2**bits - 1)
    return Entry(fixed_interval, fixed_interval(bits, 1.0), True, 2**bits, D * bits, error)


def largest(k: int) -> Entry:
    """Of d = 8 coordinates, places take 3 bits each, or 8 in all."""
    bits = 32 * k + (min(3 * k, 8) if k < D else 0)
    return Entry(top_k, top_k(k), False, 0, bits, np.linalg.norm(np.sort(np.abs(X))[: D - k]))


CODECS = {
    **{f"qsgd {bits}": levels(bits) for bits in (4, 2, 8)},
    **{f"fixed {bits}": interval(bits) for bits in (4, 2, 8)},
    **{f"top {k}": largest(k) for k in (3, *(k for k in range(1, 9) if k != 3))},
    "uncoded": Entry(Codec, UNCODED, False, 0, 32 * D, 0.0),
}


def coded(codec, message=TREE):
    return jax.jit(codec.code)(jax.random.key(0), message).message


@tiers.every("name", CODECS)
def test_messages_are_unbiased_or_the_same_and_within_the_bound(name):
    """Of 20,000 draws, each coordinate's mean by a z-test; false alarm 1e-6 in all."""
    entry = CODECS[name]
    keys = jax.random.split(jax.random.key(5), DRAWS if entry.unbiased else 2)
    found = jax.jit(jax.vmap(lambda k: entry.codec.code(k, TREE).message))(keys)
    assert [leaf.shape[1:] for leaf in found.values()] == [leaf.shape for leaf in TREE.values()]
    values = np.asarray(jax.vmap(flatten)(found), np.float64)
    assert np.linalg.norm(values - X, axis=1).max() <= entry.error * (1 + 1e-6)
    if entry.unbiased:
        deviation = np.sqrt(np.maximum(values.var(0), 1e-6) / DRAWS)
        assert np.max(np.abs(values.mean(0) - X) / deviation) < z_bound(D)
    else:
        np.testing.assert_array_equal(values[0], values[1])


@tiers.every("name", CODECS)
def test_bits_counted_are_bits_needed(name):
    """Different values that can be decoded: at most 2^B, beside the scale."""
    entry = CODECS[name]
    assert entry.codec.wire(D).bits() == entry.bits
    assert entry.codec.lossy == (name != "uncoded")
    if entry.values:
        x = jax.random.uniform(jax.random.key(0), (50_000,), minval=-1.0)
        assert len(np.unique(coded(entry.codec, x))) <= entry.values


@tiers.every("name", CODECS)
def test_what_is_coded_is_coded_as_it_is(name):
    code = jax.jit(lambda key, message: CODECS[name].codec.code(key, message).message)
    once = code(jax.random.key(0), TREE)
    again = code(jax.random.key(1), once)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), again, once)


@tiers.every("name", [name for name, entry in CODECS.items() if entry.kind is top_k])
def test_the_largest_coordinates_travel(name):
    """Of all leaves together, with their signs; what is left out is the rest of the message, to the bit."""
    entry = CODECS[name]
    found = coded(entry.codec)
    sent, k = np.asarray(flatten(found)), entry.codec.wire(D).values
    kept = np.sort(np.argsort(-np.abs(X))[:k])
    np.testing.assert_array_equal(np.flatnonzero(sent), kept)
    np.testing.assert_array_equal(sent[kept], np.asarray(flatten(TREE))[kept])
    left_out = jax.tree.map(jnp.subtract, TREE, found)
    assert_identical(jax.tree.map(jnp.add, found, left_out), TREE)


def test_messages_of_nothing_outside_and_not_finite():
    np.testing.assert_array_equal(coded(qsgd(8), jnp.zeros(5)), np.zeros(5))
    outside = jax.jit(fixed_interval(8, 0.6).code)(
        jax.random.key(0), TREE
    )  # -0.97, 0.61, 0.93 and -0.71
    assert outside.diagnostics == {"saturated": 0.5}
    spoilt = jnp.array([5.0, jnp.nan, 7.0, -jnp.inf])
    np.testing.assert_array_equal(coded(top_k(2), spoilt), [0, jnp.nan, 0, -jnp.inf])


def test_the_bits_of_sparse_messages():
    """Places in numbers, or in a bit for each coordinate; none where all coordinates travel."""
    for k, d, for_places in (
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
    ):
        assert top_k(k).wire(d).bits() == 32 * k + for_places


@pytest.mark.parametrize("kind", [int, np.int32, jnp.int32])
def test_bits_of_a_message(kind):
    assert Wire(kind(10)).bits() == 320
    assert Wire(kind(10), kind(4), kind(64)).bits() == 104
    bits = Wire(kind(2**30), kind(32), kind(1)).bits()  # beyond 32 bits and beyond float32
    assert bits == 2**35 + 1
    assert type(bits) is int


@pytest.mark.parametrize("bits", tiers.cases([2, 1, 8]))
def test_quantization_is_unbiased_inside_the_interval(bits):
    x = jax.random.uniform(jax.random.key(99), (13,), minval=-1.0, maxval=2.0)
    keys = jax.random.split(jax.random.key(bits), DRAWS)
    drawn = jax.jit(jax.vmap(lambda k: quantize(k, x, -1.0, 2.0, bits).values))(keys)
    values = np.asarray(drawn, np.float64)
    step = 3 / (2**bits - 1)
    error = values.mean(0) - np.asarray(x)
    deviation = np.sqrt(np.maximum(values.var(0), (step / 100) ** 2) / DRAWS)
    assert np.max(np.abs(error) / deviation) < z_bound(13)
    assert np.all(values.var(0) <= step**2 / 4 + 1e-6)  # Lemma 11
    assert np.all(np.abs(values - np.asarray(x)) <= step * (1 + 1e-5))  # (19), (35)


@pytest.mark.parametrize("bits", tiers.cases([3, 1, 16]))
def test_codes_are_numbers_of_levels(bits):
    x = 3 * np.random.default_rng(0).normal(size=1000).astype(np.float32)
    low, high = np.full(1000, -1.5, np.float32), np.linspace(1.0, 2.0, 1000, dtype=np.float32)
    drawn = jax.jit(quantize, static_argnums=4)(jax.random.key(1), x, low, high, bits)
    values, codes, outside = map(np.asarray, drawn)
    assert codes.min() == 0
    assert codes.max() == 2**bits - 1
    step = (high - low) / (2**bits - 1)
    np.testing.assert_allclose(values, low + codes * step, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(outside, (x < low) | (x > high))
    np.testing.assert_allclose(values[x < low], -1.5)
    np.testing.assert_allclose(values[x > high], high[x > high], rtol=1e-6)


def test_limits_of_quantization():
    """What is on the grid stays, and an empty interval has one level."""
    grid = jnp.linspace(-1.0, 1.0, 16)
    rounded = jax.jit(quantize, static_argnums=4)
    values = rounded(jax.random.key(0), grid, -1.0, 1.0, 4).values
    np.testing.assert_allclose(values, grid, atol=1e-6)
    values, codes, outside = rounded(jax.random.key(0), jnp.array([1.0, 2.0]), 1.0, 1.0, 4)
    np.testing.assert_array_equal(values, [1, 1])
    np.testing.assert_array_equal(codes, [0, 0])
    np.testing.assert_array_equal(outside, [False, True])
