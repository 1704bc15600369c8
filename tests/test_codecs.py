"""Codecs: unbiased, their bits counted, what does not fit reported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import z_bound

from fedpriv import Wire, fixed_interval, qsgd
from fedpriv.compression.codecs import UNCODED
from fedpriv.core.trees import dimension

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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: qsgd(1), "bits: 1; give"),
        (lambda: fixed_interval(23, 1.0), "bits: 23; give"),
        (lambda: fixed_interval(8, 0.0), "bound: 0.0; give"),
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
