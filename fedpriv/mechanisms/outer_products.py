"""Gradients of a batch's records as factors, and what can be computed of them without forming any.

A record's gradient of a dense layer is a product L^T R of its T rows (one, without a sequence), the layer's inputs and
the errors of its outputs: T (i + o) numbers in place of i o. Its norm follows from the rows' products with each other
(I. Goodfellow, arXiv:1510.01799, for T = 1; X. Li et al., arXiv:2110.05679, for sequences), and a weighted sum over the
records is one product of matrices. Of a table whose rows are looked up, L's rows have a single 1, and only its places
are kept. A tensor that is used several times has the sum of such products.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.mechanisms.entries import Move, composed, moved

EXACT = lax.Precision.HIGHEST
"""Of products that a bound on a record rests on: elsewhere than on CPU the default rounds to ten bits or fewer."""


def rounding(terms: int) -> float:
    """Bound on the relative error of a float32 sum of so many products, each of them rounded too."""
    return (terms + 8) * 2.0**-24


def counted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """values [B, ...] with zeros where the weight is 0: 0 times NaN would be NaN."""
    return jnp.where(weights.reshape(-1, *[1] * (values.ndim - 1)) != 0, values, 0.0)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["places"], meta_fields=["width"])
@dataclass(frozen=True)
class OneHot:
    """Rows f32[B, T, width] that have a single 1.

    Attributes:
      places: i32[B, T], where it is, each in [0, width).
    """

    places: jax.Array
    width: int


Rows: TypeAlias = jax.Array | OneHot
"""[B, T, width], of any float type."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=[])
@dataclass(frozen=True)
class Product:
    """left_b^T right_b for each record b, of rows [B, T, i] and [B, T, o], at most one of them `OneHot`."""

    left: Rows
    right: Rows

    def swapped(self) -> Product:
        """The transposed matrices."""
        return Product(self.right, self.left)

    def formed(self) -> jax.Array:
        """f32[B, i, o]."""
        if isinstance(self.right, OneHot):
            return self.swapped().formed().transpose(0, 2, 1)
        right = _float32(self.right)
        if isinstance(self.left, OneHot):
            zeros = jnp.zeros((self.left.width, right.shape[2]))
            return jax.vmap(lambda places, rows: zeros.at[places].add(rows))(
                self.left.places, right
            )
        return jnp.einsum("bti,bto->bio", _float32(self.left), right, precision=EXACT)

    def weighted(self, weights: jax.Array) -> jax.Array:
        """f32[i, o]: sum_b weights_b left_b^T right_b."""
        if isinstance(self.right, OneHot):
            return self.swapped().weighted(weights).T
        right = weights[:, None, None] * counted(_float32(self.right), weights)
        if isinstance(self.left, OneHot):
            zeros = jnp.zeros((self.left.width, right.shape[2]))
            return zeros.at[self.left.places.reshape(-1)].add(right.reshape(-1, right.shape[2]))
        left = counted(_float32(self.left), weights)
        return jnp.einsum("bti,bto->io", left, right, precision=EXACT)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["products"], meta_fields=["moves"]
)
@dataclass(frozen=True)
class Stacked:
    """A tensor's gradients: a sum of products of one size [i, o], whose entries are put in another order.

    Attributes:
      moves: from [i, o] to the tensor.
    """

    products: tuple[Product, ...]
    moves: tuple[Move, ...] = ()

    def move(self, move: Move) -> Stacked:
        """The same entries in another order."""
        return replace(self, moves=composed(*self.moves, move))

    def formed(self) -> jax.Array:
        """f32[B, ...]."""
        return moved(_sum([p.formed() for p in self.products]), self.moves)

    def weighted(self, weights: jax.Array) -> jax.Array:
        """f32[...]: sum_b weights_b g_b, weights f32[B].

        A gradient of weight 0 does not count, even if it is not finite.
        """
        total = _sum([p.weighted(weights) for p in self.products])
        return moved(total[None], self.moves)[0]

    def norms(self) -> jax.Array:
        """f32[B]; where the sum may cancel, never too small."""
        scaled = [_scaled(p) for p in self.products]
        one = jnp.concatenate([s.unit * s.lengths[0] * s.lengths[1] for s in scaled], 1)
        if one.shape[1] == 1:
            return one[:, 0]
        largest = jnp.clip(jnp.max(one, 1, keepdims=True), 1e-30, 1e30)
        parts = [_times(s, s.unit / largest) for s in scaled]
        squared = _sum(
            [
                (1 if p is q else 2) * _bound_on_product(p, q, 2 * one.shape[1] + len(parts) ** 2)
                for at, p in enumerate(parts)
                for q in parts[at:]
            ]
        )
        return largest[:, 0] * jnp.sqrt(jnp.maximum(squared, 0.0))


def summed(one: Stacked, other: Stacked) -> Stacked | None:
    """Their sum; None where the entries of their products are in orders that differ otherwise than by transposing."""
    if one.moves != other.moves:
        products = tuple(p.swapped() for p in other.products)
        other = Stacked(products, composed(("transpose", (1, 0)), *other.moves))
    size = [_size(s.products[0]) for s in (one, other)]
    if one.moves != other.moves or size[0] != size[1]:
        return None
    return replace(one, products=(*one.products, *other.products))


def _sum(arrays: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, arrays)


def _float32(x: Rows) -> jax.Array:
    assert not isinstance(x, OneHot)
    return x.astype(jnp.float32)


def _width(x: Rows) -> int:
    return x.width if isinstance(x, OneHot) else x.shape[2]


def length(x: Rows) -> int:
    """T."""
    return x.places.shape[1] if isinstance(x, OneHot) else x.shape[1]


def _size(product: Product) -> tuple[int, int]:
    return _width(product.left), _width(product.right)


class _Scaled(NamedTuple):
    """Rows that float32 can hold squares of.

    Attributes:
      rows: left, right.
      lengths: their norms, f32[B, T].
      unit: f32[B, T], what their products are to be multiplied by.
    """

    rows: tuple[Rows, Rows]
    lengths: tuple[jax.Array, jax.Array]
    unit: jax.Array


def _scaled(product: Product) -> _Scaled:
    """Rows whose largest entry is 1.

    Squares of small numbers would be 0, though the other factor may be large; so would one over large numbers.
    """
    left, right = map(_of_unit, (product.left, product.right))
    return _Scaled((left[0], right[0]), (left[1], right[1]), left[2] * right[2])


def _of_unit(x: Rows) -> tuple[Rows, jax.Array, jax.Array]:
    """(rows, their norms, unit), f32[B, T]."""
    if isinstance(x, OneHot):
        one = jnp.ones(x.places.shape, jnp.float32)
        return x, one, one
    x = _float32(x)
    unit = jnp.clip(jnp.max(jnp.abs(x), 2), 1e-30, 1e30)
    x = x / unit[..., None]
    return x, jnp.linalg.norm(x, axis=2), unit


def _times(scaled: _Scaled, factors: jax.Array) -> _Scaled:
    """With products times f32[B, T]."""
    (left, right), (of_left, of_right), unit = scaled
    if isinstance(left, OneHot):
        right, of_right = _float32(right) * factors[..., None], of_right * factors
    else:
        left, of_left = left * factors[..., None], of_left * factors
    return _Scaled((left, right), (of_left, of_right), unit)


def _bound_on_product(one: _Scaled, other: _Scaled, terms: int) -> jax.Array:
    """f32[B]: <g, h> of the matrices that these are of, plus a bound on what it is rounded by.

    The bound is made of each entry of the Gram matrices: rows of long texts are nearly orthogonal, and one of rows'
    norms alone would exceed the sum.

    Args:
      terms: how many are added up, one after another, to make of entries the sum of all products.
    """
    grams = [_gram(x, y) for x, y in zip(one.rows, other.rows, strict=True)]
    off = [_off(one.rows[i], one.lengths[i], other.rows[i], other.lengths[i]) for i in (0, 1)]
    size = [jnp.abs(gram) + error for gram, error in zip(grams, off, strict=True)]
    error = size[0] * off[1] + size[1] * off[0] + rounding(terms) * size[0] * size[1]
    of_rows = jnp.sum(grams[0] * grams[1] + error, 2)
    # The barrier keeps XLA from adding up both axes at once, which would be T^2 terms.
    return jnp.sum(lax.optimization_barrier(of_rows), 1)


def _off(x: Rows, x_lengths: jax.Array, y: Rows, y_lengths: jax.Array) -> jax.Array:
    """The most that each entry of a Gram matrix can be off by, of rows with these norms, by Cauchy and Schwarz."""
    exact = isinstance(x, OneHot) or isinstance(y, OneHot)
    unit = 0.0 if exact else rounding(_width(x))
    return unit * x_lengths[:, :, None] * y_lengths[:, None, :]


def _gram(one: Rows, other: Rows) -> jax.Array:
    """The products of a record's rows with each other, f32[B, T, S]."""
    if isinstance(one, OneHot) and isinstance(other, OneHot):
        return (one.places[:, :, None] == other.places[:, None, :]).astype(jnp.float32)
    if isinstance(one, OneHot):
        return _gram(other, one).transpose(0, 2, 1)
    if isinstance(other, OneHot):
        return jnp.take_along_axis(one, other.places[:, None, :], axis=2, mode="clip")
    return jnp.einsum("bti,bsi->bts", one, other, precision=EXACT)
