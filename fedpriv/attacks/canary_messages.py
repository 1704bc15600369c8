"""What canaries send, or have for gradients: the mechanism's worst, or what honest training on data of theirs gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.attacks.places import Places
from fedpriv.core.trees import dimension, flatten, same_structure, unflatten
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_functions import asked, gives

FAR = 100.0
"""Clip norms that a canary contributes before it is clipped."""

Data: TypeAlias = Callable[[PyTree], PyTree]
"""Records of a client, leaves [n, ...] -> those that a canary in its place has instead."""


class Canaries(NamedTuple):
    """Who takes the places of clients, or of records, and what they send.

    Attributes:
      key: of their directions, which are drawn when they are needed: all together would be far larger than the model.
      present: bool[k].
      length: of what they contribute before it is clipped.
      per_client: records of a client that are canaries; 0 where clients are.
      worst: (d) -> the direction of a single canary, as `WorstCase.worst`.
      data: on what a single canary trains honestly; None: it contributes its direction.
      drawn: how their records are drawn, as they are scored.
    """

    key: Key
    present: jax.Array
    length: float
    per_client: int
    worst: Callable[[int], PyTree] | None = None
    data: Data | None = None
    drawn: Any = None

    def direction(self, j: jax.Array, like: PyTree) -> PyTree:
        """That of canary j (i32[]), of length 1, in the shapes of `like`.

        Random signs on coordinates of its own, so that all are orthogonal; more canaries than coordinates have random
        directions, a single one the worst.
        """
        count, d = len(self.present), dimension(like)
        if count == 1 and self.worst:
            z = flatten(self.worst(d))
            if len(z) > d:  # that of a joint mechanism, whose other parts come on top
                z = flatten(self.worst(2 * d - len(z)))
        elif count > d:
            z = jax.random.normal(jax.random.fold_in(self.key, j), (d,))
        else:
            order_key, sign_key = jax.random.split(self.key)
            own = jax.random.permutation(order_key, d) % count == j
            z = jnp.where(own, jax.random.rademacher(sign_key, (d,), jnp.float32), 0.0)
        return unflatten(_unit(z), like)

    def away(self, i: jax.Array | int) -> jax.Array:
        """bool[]: whether client i is a canary that is not there."""
        i = jnp.asarray(i)
        return (i < len(self.present)) & ~self.present[self.last(i)]

    def of_client(self, i: jax.Array, plain: bool) -> Places:
        """The places of the program of client i (i32[]), whose message is a canary's if its number is among theirs.

        One that is away has no weight, and sends zeros, coded as such if that is `plain`.
        """
        away = self.away(i)

        def message(own: PyTree) -> PyTree:
            if self.data is not None:
                return chosen(away, jax.tree.map(jnp.zeros_like, own), own)
            return chosen(i < len(self.present), self.contribution(i, own), own)

        def coded(own: PyTree) -> PyTree:
            return own if plain else jax.tree.map(lambda leaf: jnp.where(away, 0.0, leaf), own)

        def size(own: jax.Array) -> jax.Array:
            return jnp.where(away, 0, own)

        return Places({"message": message, "coded": coded, "size": size})

    def records_of_client(self, i: jax.Array, records: PyTree) -> PyTree:
        """The records of client i, who may be an honest canary."""
        if self.data is None:
            return records
        return chosen(i < len(self.present), self.data_of(records), records)

    def data_of(self, examples: PyTree) -> PyTree:
        """What a canary has in place of these.

        Raises:
          ValueError: `data` is no function of examples, or gives back something of another shape.
        """
        assert self.data is not None
        theirs = asked("data", self.data, "(examples)", examples)
        shapes = jax.tree.map(jnp.shape, examples)
        fits = same_structure(theirs, examples) and jax.tree.map(jnp.shape, theirs) == shapes
        gives(fits, "data", self.data, theirs, f"give back records of the shapes {shapes}")
        return theirs

    def contribution(self, j: jax.Array, like: PyTree) -> PyTree:
        """What canary j (i32[]) sends, or has for a gradient: a tree as `like`, zeros where it is not there."""
        length = self.present[self.last(j)] * self.length
        return jax.tree.map(lambda leaf: length * leaf, self.direction(j, like))

    def last(self, j: jax.Array) -> jax.Array:
        """i32[]: j (i32[]), or the last canary where j is none."""
        return jnp.minimum(j, len(self.present) - 1)


def chosen(whether: jax.Array, yes: PyTree, no: PyTree) -> PyTree:
    """Leaf by leaf, row by row where `whether` is bool[B]."""

    def of_leaf(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(whether.reshape(whether.shape + (1,) * (b.ndim - whether.ndim)), a, b)

    return jax.tree.map(of_leaf, yes, no)


def _unit(v: jax.Array) -> jax.Array:
    return v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(jnp.float32).tiny)
