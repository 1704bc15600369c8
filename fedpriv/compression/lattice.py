"""Subtractive dithered quantization on a lattice: an error that is uniform whatever the input.

R. Zamir, M. Feder, "On Universal Quantization by Randomized Uniform/Lattice Quantizers", IEEE Trans. Inf. Theory 1992.
Sender and receiver share the dither z, uniform on the lattice's cell: what is decoded, Q(x + z) - z, differs from x by
an error uniform on the cell and independent of x, as long as x + z is inside the quantizer's range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.compression.quantization import SignedLevels
from fedpriv.core.arguments import Range, checked
from fedpriv.core.types import Key

Reach: TypeAlias = Annotated[
    float,
    Range("one from 1e-30 to 1e30, which float32 can square, by bound or epsilon", 1e-30, 1e30),
]
Dimension: TypeAlias = Annotated[int, Range("1 or 2", 1, 2, integer=True)]


class Lattice(NamedTuple):
    """A lattice in `dim` dimensions.

    Attributes:
      dim: 1 or 2.
      nearest: f32[..., dim] -> its nearest point.
      dither: (key, shape) -> f32[*shape, dim], uniform on the points nearest to 0.
      variance: of a coordinate of the dither.
    """

    dim: int
    nearest: Callable[[jax.Array], jax.Array]
    dither: Callable[[Key, tuple[int, ...]], jax.Array]
    variance: float


def scalar(step: float) -> Lattice:
    """The multiples of `step`; the cell is [-step / 2, step / 2]."""

    def dither(key: Key, shape: tuple[int, ...]) -> jax.Array:
        return step * jax.random.uniform(key, (*shape, 1), jnp.float32, -0.5, 0.5)

    return Lattice(1, lambda x: step * jnp.round(x / step), dither, step**2 / 12)


def hexagonal(step: float) -> Lattice:
    """The plane's densest lattice, neighbours `step` apart; the cell is a hexagon."""
    sides = step * jnp.array([1.0, math.sqrt(3)], jnp.float32)
    basis = step * jnp.array([[1.0, 0.0], [0.5, math.sqrt(3) / 2]], jnp.float32)

    def nearest(x: jax.Array) -> jax.Array:
        # The union of a rectangular lattice and the same moved by half a diagonal.
        here = sides * jnp.round(x / sides)
        there = sides * (jnp.floor(x / sides) + 0.5)
        closer = jnp.sum((x - here) ** 2, -1) <= jnp.sum((x - there) ** 2, -1)
        return jnp.where(closer[..., None], here, there)

    def dither(key: Key, shape: tuple[int, ...]) -> jax.Array:
        # Uniform on a parallelogram, which tiles the plane as the hexagon does; then back into the hexagon.
        x = jax.random.uniform(key, (*shape, 2), jnp.float32) @ basis
        return x - nearest(x)

    return Lattice(2, nearest, dither, 5 * step**2 / 72)


def lattice_for(bits: SignedLevels, largest: Reach, dim: Dimension) -> tuple[Lattice, float]:
    """(lattice, limit): the finest one of which `bits` per value number all points of [-limit, limit]^dim.

    2^B - 1 rows from -limit to limit = largest minus half the distance of rows; rows of the hexagonal lattice are
    sqrt(3) / 2 of a step apart, and have fewer points than there are rows.

    Raises:
      ValueError: bits outside 2..22, a range that is not positive, or dim other than 1 and 2.
    """
    bits = checked("bits", bits, SignedLevels)
    largest = checked("largest", largest, Reach)
    dim = checked("dim", dim, Dimension)
    row = 2 * largest / (2**bits - 1)
    lattice = scalar(row) if dim == 1 else hexagonal(row * 2 / math.sqrt(3))
    return lattice, largest - row / 2


def dithered(key: Key, x: jax.Array, lattice: Lattice, limit: float) -> tuple[jax.Array, jax.Array]:
    """(decoded f32[n], fraction outside): Q(x + z) - z of f32[n], in groups of `dim`, padded with zeros.

    Values of x + z beyond +-`limit` are moved there first, so that their code exists; they are counted.
    """
    n = x.shape[0]
    groups = jnp.pad(x, (0, -n % lattice.dim)).reshape(-1, lattice.dim)
    z = lattice.dither(key, groups.shape[:1])
    wanted = groups + z
    inside = jnp.clip(wanted, -limit, limit)
    decoded = (lattice.nearest(inside) - z).reshape(-1)[:n]
    return decoded, jnp.mean(jnp.abs(wanted) > limit)
