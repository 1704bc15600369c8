"""What a batch's gradients of one tensor may be, besides factors: formed, by layers, or only what is asked of them.

Each has a `norms`, f32[B], and a `weighted` sum, or is one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.mechanisms.entries import Move, composed, moved
from fedpriv.mechanisms.formed_gradients import weighted_sum
from fedpriv.mechanisms.outer_products import OneHot, Product, Stacked


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=[])
@dataclass(frozen=True)
class Formed:
    """Gradients, record by record.

    Attributes:
      values: [B, ...].
    """

    values: jax.Array

    def move(self, move: Move) -> Formed:
        """The same entries in another order."""
        return Formed(moved(self.values, (move,)))

    def formed(self) -> jax.Array:
        """[B, ...]."""
        return self.values

    def norms(self) -> jax.Array:
        """f32[B]."""
        rows = self.values.reshape(self.values.shape[0], -1)
        return jnp.linalg.norm(rows.astype(jnp.float32), axis=1)

    def weighted(self, weights: jax.Array) -> jax.Array:
        """[...]: the sum, as of `Stacked`."""
        return weighted_sum(self.values, weights)


@partial(jax.tree_util.register_dataclass, data_fields=["each"], meta_fields=["moves"])
@dataclass(frozen=True)
class Layers:
    """Gradients of a tensor [layers, ...]: a layer's after another's, by which only one is computed at a time.

    Attributes:
      each: such gradients, whose arrays have a leading axis of the layers.
      moves: from [layers, ...] to the tensor.
    """

    each: Stacked | Formed | Layers
    moves: tuple[Move, ...] = ()

    def move(self, move: Move) -> Layers:
        """The same entries in another order."""
        return replace(self, moves=composed(*self.moves, move))

    def formed(self) -> jax.Array:
        """[B, layers, ...]."""
        each = jax.vmap(lambda layer: layer.formed())(self.each)
        return moved(jnp.moveaxis(each, 0, 1), self.moves)

    def norms(self) -> jax.Array:
        """f32[B]."""
        return _together(lax.map(lambda layer: layer.norms(), self.each))

    def weighted(self, weights: jax.Array) -> jax.Array:
        """[layers, ...]: the sum, as of `Stacked`."""
        each = lax.map(lambda layer: layer.weighted(weights), self.each)
        return moved(each[None], self.moves)[0]


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=[])
@dataclass(frozen=True)
class Norms:
    """Only the norms of gradients, f32[B], or those of each layer's, f32[..., B]."""

    values: jax.Array

    def move(self, move: Move) -> Norms:
        """Norms do not depend on the order of entries."""
        del move
        return self

    def together(self) -> jax.Array:
        """f32[B]: of all layers."""
        return _together(self.values.reshape(-1, self.values.shape[-1]))


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=[])
@dataclass(frozen=True)
class Total:
    """Only a weighted sum of gradients, [...]."""

    values: jax.Array

    def move(self, move: Move) -> Total:
        """The same entries in another order."""
        return Total(moved(self.values[None], (move,))[0])


OfRecords: TypeAlias = Stacked | Layers | Formed
OfLeaf: TypeAlias = OfRecords | Norms | Total


def of_layers(each: OfLeaf) -> OfLeaf:
    """Gradients of a tensor [layers, ...], of what a loop over its layers gave, with a leading axis."""
    return each if isinstance(each, Norms | Total) else Layers(each)


def over_steps(each: Any) -> OfLeaf:
    """Gradients of a tensor that every step of a loop uses, of its gradients in each, with a leading axis."""
    if not isinstance(each, Stacked):
        return Formed(jnp.sum(jax.vmap(lambda step: step.formed())(each), 0))

    def joined(x: Any) -> Any:
        if isinstance(x, OneHot):
            return OneHot(joined(x.places), x.width)
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], -1, *x.shape[3:])

    products = [Product(joined(p.left), joined(p.right)) for p in each.products]
    return Stacked(tuple(products), each.moves)


def _together(norms: jax.Array) -> jax.Array:
    """f32[B], of f32[layers, B], also where their squares are 0 or infinite."""
    largest = jnp.clip(jnp.max(norms, 0, initial=0.0), 1e-30, 1e30)
    return largest * jnp.linalg.norm(norms / largest, axis=0)
