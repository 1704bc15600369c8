"""What travels: a message's size, and the codecs that shrink it.

Levels are drawn in quantization.py, without bias: Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy
Enhancement Scheme with Dynamic Quantization for Federated Learning", eq. 18.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.compression import sparsification
from fedpriv.compression.quantization import FloatBound, Levels, SignedLevels, quantize
from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, CountOrZero, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.coordinates import scatter
from fedpriv.core.provenance import sealed
from fedpriv.core.trees import flatten, unflatten
from fedpriv.core.types import Key, PyTree


@checking_fields
class Wire(NamedTuple):
    """Size of one message: `values` numbers of `bits_per_value` bits each, plus `overhead` bits.

    The numbers are integers (or i32[] arrays), to be multiplied on the host, where they do not overflow. Values without
    a codec count 32 bits each, whatever their type. So do values with a share of the noise: if a round reports an
    uplink without room for the shares of its sums, its certificate has the server add the noise, as with a lossy codec.
    """

    values: CountOrZero | jax.Array
    bits_per_value: CountOrZero | jax.Array = 32
    overhead: CountOrZero | jax.Array = 0

    def bits(self) -> int:
        """Size of the whole message."""
        return int(self.values) * int(self.bits_per_value) + int(self.overhead)

    def beside(self, other: Wire) -> Wire:
        """The size of both messages."""
        total = self.bits() + other.bits()
        unit = 32 if total < 2**36 else 2**30  # so that no field leaves 32 bits
        values, rest = divmod(total, unit)
        return Wire(values, unit, rest)


class Coded(NamedTuple):
    """A message after coding and decoding.

    Attributes:
      message: what its receiver decodes, a pytree like what was sent.
      diagnostics: name -> f32[], what a codec measured of itself, such as the fraction of values out of its range.
    """

    message: PyTree
    diagnostics: dict[str, jax.Array]


@checking_fields
class Codec(NamedTuple):
    """How a client's message is coded. Encoding and decoding are one step, as nothing happens between them.

    Attributes:
      code: (key, message) -> `Coded`. A codec that draws random numbers derives its own stream from the key, the
        client's.
      wire: d -> size of a coded message of d values.
      lossy: whether the decoded message may differ from the original.
      seal: see `fedpriv.core.provenance`; leave it out of a codec of your own.
    """

    code: Callable[[Key, PyTree], Coded]
    wire: Callable[[int], Wire]
    lossy: bool
    seal: tuple = ()


def _as_it_is(key: Key, message: PyTree) -> Coded:
    return Coded(message, {})


UNCODED = sealed(Codec(_as_it_is, Wire, False))
"""What was sent; 32 bits per value."""

ALREADY_CODED = "integers are coded already; leave it out"
"""Why a codec is refused beside a mechanism of integers."""


def fixed_interval(bits: Levels, bound: FloatBound) -> Codec:
    """2^B levels from -bound to bound (eq. 18) for every message; values outside move to the nearest end.

    The diagnostic `saturated` is the fraction of values outside.

    Raises:
      ValueError: bits outside 1..22, or a bound that is not positive or beyond float32.
    """
    bits = checked("bits", bits, Levels)
    bound = checked("bound", bound, FloatBound)
    ends = jnp.float32(-bound), jnp.float32(bound)

    def code(key: Key, message: PyTree) -> Coded:
        key = jax.random.fold_in(key, random_streams.QUANTIZER)
        values, _, outside = quantize(key, flatten(message), *ends, bits)
        return Coded(unflatten(values, message), {"saturated": jnp.mean(outside)})

    return Codec(code, lambda d: Wire(d, bits), True)


def qsgd(bits: SignedLevels) -> Codec:
    """QSGD-style: sign and 2^(B - 1) - 1 levels of |v| / max |v|, stochastically rounded; max |v| travels in 32 bits.

    D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NIPS 2017, scaled by
    the largest entry instead of the l2 norm, as is usual for dense codes; without the Elias coding of the levels.
    It is unbiased, and no value is ever outside.

    Raises:
      ValueError: bits outside 2..22.
    """
    bits = checked("bits", bits, SignedLevels)
    levels = 2 ** (bits - 1) - 1

    def code(key: Key, message: PyTree) -> Coded:
        v = flatten(message)
        largest = jnp.max(jnp.abs(v))
        share = jnp.where(largest > 0, jnp.abs(v) / jnp.where(largest > 0, largest, 1.0), 0.0)
        u = jax.random.uniform(jax.random.fold_in(key, random_streams.QUANTIZER), v.shape, v.dtype)
        rounded = jnp.minimum(jnp.floor(share * levels + u), levels) / levels
        return Coded(unflatten(jnp.sign(v) * rounded * largest, message), {})

    return Codec(code, lambda d: Wire(d, bits, overhead=32), True)


def top_k(k: Count) -> Codec:
    """Each client's k largest coordinates, unrounded; the others become 0.

    S. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, arXiv:1809.07599. A value takes 32
    bits. Its place takes ceil(log2 d) bits; or places take one bit for each of d coordinates, if that is less, or none
    if all values travel. The choice is biased. With error feedback a client keeps what is left out, as its row of the
    store `own` of `Cohort.sum`, and adds it to its next update.

    Args:
      k: number of coordinates to keep, of d; among equal ones the first travel.

    Raises:
      ValueError: k below 1; in a round, above d.
    """
    k = checked("k", k, Count)

    def code(key: Key, message: PyTree) -> Coded:
        v = flatten(message)
        require(k <= v.size, "k", k, f"a message has {v.size} coordinates, give at most as many")
        kept = sparsification.top_k(jnp.abs(v), k)
        return Coded(scatter(v[kept], kept, message), {})

    def wire(d: int) -> Wire:
        indices = k * (d - 1).bit_length()
        return Wire(k, overhead=min(indices, d) if k < d else 0)

    return Codec(code, wire, True)
