"""Canaries among the records of a client: what a rule does in its private means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.attacks.canary_messages import Canaries, chosen
from fedpriv.attacks.injected import Injected
from fedpriv.attacks.places import Places
from fedpriv.core.jaxprs import bind
from fedpriv.core.random_losses import Keyed
from fedpriv.core.types import Params, PyTree

LANES = "canary_lanes"
"""The axis over which a client is run twice by itself: as ever, and for a canary's gradients alone."""


class RecordsOfClient:
    """Those of client i, the first of which are canaries; in their gradients' sums, noise and canaries are unknown.

    Args:
      lane: i32[], 0 or 1 along `LANES`, where the client is run once more by itself, for what an honest canary adds;
        there nothing is unknown.
    """

    def __init__(
        self, canaries: Canaries, i: jax.Array, injected: Injected, lane: jax.Array | None = None
    ):
        self._canaries, self._i, self._lane = canaries, i, lane
        self._injected = injected if lane is None else injected.for_one_client
        self._means: list[_Worst | _Honest] = []  # private means that are begun, the innermost last

    @property
    def places(self) -> Places:
        """Of the client's program."""

        def of_innermost(name: str) -> Callable[[PyTree], PyTree]:
            return lambda tree: getattr(self._means[-1], name)(tree)

        taps = {name: of_innermost(name) for name in _TAPS}
        own = {"records": self._begin, "batch": self._batch}
        return Places(taps | own, {"record_noise": self._noise})

    def _begin(self, records: PyTree) -> PyTree:
        kind = _Worst if self._canaries.data is None else _Honest
        self._means.append(kind(self._canaries, self._i, self._injected, self._lane))
        return self._means[-1].records(records)

    def _batch(self, batch: tuple) -> tuple:
        """In lane 1 the canary's record comes first, whether it is drawn or not, and no other is a canary."""
        if self._lane is None:
            return batch
        (examples, _), mask = batch
        own = examples.example if isinstance(examples, Keyed) else examples
        every = self._means[-1].examples
        own = jax.tree.map(lambda leaf, other: leaf.at[0].set(other[0]), own, every)
        examples = examples._replace(example=own) if isinstance(examples, Keyed) else own
        first = jnp.arange(len(mask)) == 0
        with_it = (examples, jnp.where(first, 0, self._canaries.per_client)), mask | first
        return jax.tree.map(lambda a, b: jnp.where(self._lane == 1, a, b), with_it, batch)

    def _noise(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        self._means.pop()
        noisy, total = list(bind(eqn, values)), values[-len(eqn.outvars) :]
        if self._lane is None:
            return self._injected.at(0, self._injected.noise(noisy, total))
        noisy, theirs = self._of_lane(0, noisy), self._of_lane(1, total)
        return [*map(jnp.add, noisy, self._injected.of_canary(theirs))]

    def _of_lane(self, lane: int, values: list[Any]) -> list[Any]:
        here = self._lane == lane
        return [lax.psum(jnp.where(here, x, jnp.zeros_like(x)), LANES) for x in values]


_TAPS = ("params", "norms", "each", "weights", "weighted", "bounded")


class _Mean(ABC):
    """A private mean of records, some of which are canaries: what is in its places.

    Attributes:
      examples: all records of the client, honest canaries among them.
    """

    def __init__(
        self, canaries: Canaries, i: jax.Array, injected: Injected, lane: jax.Array | None
    ):
        self._canaries, self._i, self._injected = canaries, i, injected
        self._alone = jnp.bool_(False) if lane is None else lane == 1  # a canary's gradient

    def records(self, own: PyTree) -> PyTree:
        """Of the client, of which a batch is drawn."""
        self.examples = own
        return own

    def params(self, at: tuple[Params, jax.Array]) -> tuple[Params, jax.Array]:
        """Of which a third party knows the value; and which records follow."""
        params, rows = at
        self._params, self._rows = lax.stop_gradient(params), rows
        self._are_canaries = self._canaries_at(rows)
        return self._params, rows

    @abstractmethod
    def norms(self, norms: PyTree) -> PyTree:
        """Of the gradients in each tensor."""

    @abstractmethod
    def each(self, each: PyTree) -> PyTree:
        """The gradients themselves."""

    @abstractmethod
    def weights(self, weights: PyTree) -> PyTree:
        """How much each counts."""

    def weighted(self, total: Params) -> Params:
        """The sum by weights."""
        return total

    def bounded(self, total: Params) -> Params:
        """The sum where clipping does more than scale: canaries are not told from others there."""
        return jax.tree.map(self._injected.part, total, total)

    def _canaries_at(self, rows: jax.Array) -> jax.Array:
        """bool[B]: which of these records of the client are canaries."""
        number = self._i * self._canaries.per_client + rows
        return (rows < self._canaries.per_client) & (number < len(self._canaries.present))


class _Worst(_Mean):
    """Canaries have their directions for gradients, whatever the model is."""

    def params(self, at: tuple[Params, jax.Array]) -> tuple[Params, jax.Array]:
        """As `_Mean`."""
        params, rows = super().params(at)
        of_client = self._canaries.per_client
        self._at = jnp.minimum(rows, of_client - 1)
        self._gradients = jax.vmap(
            lambda p: self._canaries.contribution(self._i * of_client + p, params)
        )(jnp.arange(of_client))
        return params, rows

    def norms(self, norms: PyTree) -> PyTree:
        """As `_Mean`."""
        lengths = jax.tree.map(
            lambda leaf: jnp.linalg.norm(leaf.reshape(len(leaf), -1), axis=1), self._gradients
        )
        return self._replaced(norms, lengths)

    def each(self, each: PyTree) -> PyTree:
        """As `_Mean`."""
        return self._replaced(each, self._gradients)

    def weights(self, weights: PyTree) -> PyTree:
        """As `_Mean`: of the others."""
        self._weights = weights
        return jax.tree.map(lambda w: jnp.where(self._are_canaries, 0.0, w), weights)

    def weighted(self, total: Params) -> Params:
        """As `_Mean`, with the canaries."""

        def add(total: jax.Array, w: jax.Array, canary: jax.Array) -> jax.Array:
            of_each = jnp.zeros(len(canary)).at[self._at].add(jnp.where(self._are_canaries, w, 0.0))
            own = jnp.tensordot(of_each, canary, 1)
            return self._injected.part(total + own, own)

        return jax.tree.map(add, total, self._weights, self._gradients)

    def _replaced(self, own: PyTree, of_canaries: PyTree) -> PyTree:
        theirs = jax.tree.map(lambda leaf: leaf[self._at], of_canaries)
        return chosen(self._are_canaries, theirs, own)


class _Honest(_Mean):
    """Canaries have data of their own; their gradients count where they are there."""

    def records(self, own: PyTree) -> PyTree:
        """As `_Mean`."""
        rows = jnp.arange(len(jax.tree.leaves(own)[0]))
        theirs = self._canaries.data_of(own)
        return super().records(chosen(self._canaries_at(rows), theirs, own))

    def norms(self, norms: PyTree) -> PyTree:
        """As `_Mean`."""
        return _only(~self._are_canaries | self._present, norms)

    def each(self, each: PyTree) -> PyTree:
        """As `_Mean`."""
        return _only(self._counts, each)

    def weights(self, weights: PyTree) -> PyTree:
        """As `_Mean`; those of canaries are unknown."""

        def known(w: jax.Array) -> jax.Array:
            own = jnp.where(self._are_canaries & self._present, w, 0.0)
            return self._injected.part(w, own)

        return jax.tree.map(known, _only(self._counts, weights))

    @property
    def _present(self) -> jax.Array:
        number = self._i * self._canaries.per_client + self._rows
        return self._canaries.present[self._canaries.last(number)] | self._alone

    @property
    def _counts(self) -> jax.Array:
        return jnp.where(self._are_canaries, self._present, ~self._alone)


def _only(whether: jax.Array, tree: PyTree) -> PyTree:
    """The rows for which it is so, and zeros."""
    return chosen(whether, tree, jax.tree.map(jnp.zeros_like, tree))
