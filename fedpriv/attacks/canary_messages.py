"""What canaries send, or have for gradients: the mechanism's worst, or what honest training on data of theirs gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.attacks.injected import Injected, Place
from fedpriv.core.random_losses import GradientFunction, Keyed, needs_keys, with_keys
from fedpriv.core.trees import dimension, flatten, same_structure, unflatten
from fedpriv.core.types import Key, Params, PyTree
from fedpriv.core.user_functions import asked, gives
from fedpriv.mechanisms.per_example import Gradients, PerExample
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.sent import Client, Sent, sent_by

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

    def clipped(self, j: jax.Array, place: Place) -> PyTree:
        """What canary j adds to a place's sum when it is there, in its direction."""
        u = self.direction(j, place.like)
        if place.mechanism is None:
            return u
        return place.mechanism.clip(jax.tree.map(lambda leaf: self.length * leaf, u))[0]

    def away(self, i: jax.Array | int) -> jax.Array:
        """bool[]: whether client i is a canary that is not there."""
        i = jnp.asarray(i)
        return (i < len(self.present)) & ~self.present[self._last(i)]

    def sent(self, client: Client, key: Key, shard: Shard, *mine: PyTree) -> Sent:
        """What `client` gives back, which is a canary if its number is among theirs; zeros where that is not there."""
        i = jnp.asarray(shard.client_id)
        is_canary = i < len(self.present)
        if self.data is not None:
            own = _chosen(is_canary, self._data_of(shard.examples), shard.examples)
            shard = replace(shard, examples=own)
            sent = sent_by(client, key, shard, *mine)
            nothing = jax.tree.map(jnp.zeros_like, sent.message)
            return sent._replace(message=_chosen(self.away(i), nothing, sent.message))
        sent = sent_by(client, key, shard, *mine)
        worst = self._contribution(i, sent.message)
        return sent._replace(message=_chosen(is_canary, worst, sent.message))

    def gradients(
        self, of_records: Gradients, i: jax.Array, injected: Injected | None = None
    ) -> Gradients:
        """Those of client i, whose first records are canaries; a batch is (examples, their positions i32[B])."""

        def of_batch(params: Params, batch: tuple) -> PerExample:
            examples, positions, *keys = (
                (*batch[0], batch[1]) if isinstance(batch, Keyed) else batch
            )
            number = i * self.per_client + positions
            theirs = (positions < self.per_client) & (number < len(self.present))
            if self.data is not None:
                examples = _chosen(theirs, self._data_of(examples), examples)
            examples = Keyed(examples, *keys) if keys else examples
            at_model = lax.stop_gradient(params) if injected else params
            own = of_records(at_model, examples)
            if self.data is not None:
                return _of_honest(own, theirs, self.present[self._last(number)], injected)
            canaries = jax.vmap(lambda p: self._contribution(i * self.per_client + p, params))(
                jnp.arange(self.per_client)
            )
            at = jnp.minimum(positions, self.per_client - 1)
            return _of_worst(own, theirs, canaries, at, injected)

        return GradientFunction(of_batch, needs_keys(of_records))

    def gradient(self, of_records: Gradients, params: Params, examples: PyTree) -> Params:
        """Of the first of a client's records, if it is an honest canary; of a random loss one of its draws."""
        batch = self._data_of(jax.tree.map(lambda leaf: leaf[:1], examples))
        if needs_keys(of_records):
            batch = with_keys(self.key, batch)
        each = of_records(lax.stop_gradient(params), batch).each()
        return jax.tree.map(lambda leaf: leaf[0], each)

    def _data_of(self, examples: PyTree) -> PyTree:
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

    def _contribution(self, j: jax.Array, like: PyTree) -> PyTree:
        """What canary j (i32[]) sends, or has for a gradient: a tree as `like`, zeros where it is not there."""
        length = self.present[self._last(j)] * self.length
        return jax.tree.map(lambda leaf: length * leaf, self.direction(j, like))

    def _last(self, j: jax.Array) -> jax.Array:
        """i32[]: j (i32[]), or the last canary where j is none."""
        return jnp.minimum(j, len(self.present) - 1)


def _of_worst(
    own: PerExample,
    theirs: jax.Array,
    canaries: PyTree,
    at: jax.Array,
    injected: Injected | None,
) -> PerExample:
    """Gradients of a batch, of which `theirs` (bool[B]) are those of the canaries `at` (i32[B])."""
    norms, weighted, each = own

    def replaced(own: PyTree, of_canaries: PyTree) -> PyTree:
        return _chosen(theirs, jax.tree.map(lambda leaf: leaf[at], of_canaries), own)

    def summed(weights: PyTree) -> Params:
        total = weighted(jax.tree.map(lambda w: jnp.where(theirs, 0.0, w), weights))

        def add(total: jax.Array, w: jax.Array, canary: jax.Array) -> jax.Array:
            w = jnp.zeros(len(canary)).at[at].add(jnp.where(theirs, w, 0.0))
            own = jnp.tensordot(w, canary, 1)
            return injected.part(total + own, own) if injected else total + own

        return jax.tree.map(add, total, weights, canaries)

    lengths = jax.tree.map(
        lambda leaf: jnp.linalg.norm(leaf.reshape(len(leaf), -1), axis=1), canaries
    )
    return PerExample(replaced(norms, lengths), summed, lambda: replaced(each(), canaries))


def _of_honest(
    own: PerExample, theirs: jax.Array, present: jax.Array, injected: Injected | None
) -> PerExample:
    """Gradients of a batch, of which those of canaries (`theirs`, bool[B]) count where they are `present` (bool[B])."""
    norms, weighted, each = own
    counts = ~theirs | present

    def counted(tree: PyTree) -> PyTree:
        return _chosen(counts, tree, jax.tree.map(jnp.zeros_like, tree))

    def summed(weights: PyTree) -> Params:
        total = weighted(counted(weights))
        if not injected:
            return total
        of_canaries = weighted(jax.tree.map(lambda w: jnp.where(theirs & present, w, 0.0), weights))
        return jax.tree.map(injected.part, total, of_canaries)

    return PerExample(counted(norms), summed, lambda: counted(each()))


def _chosen(whether: jax.Array, yes: PyTree, no: PyTree) -> PyTree:
    """Leaf by leaf, row by row where `whether` is bool[B]."""

    def of_leaf(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(whether.reshape(whether.shape + (1,) * (b.ndim - whether.ndim)), a, b)

    return jax.tree.map(of_leaf, yes, no)


def _unit(v: jax.Array) -> jax.Array:
    return v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(jnp.float32).tiny)
