"""Numbers that are 0 in a round, by which it is differentiated: how far it moves by what an adversary does not know."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.trees import flatten
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.mechanisms import Mechanism


class Place(NamedTuple):
    """Where something can be injected into a round, such as canaries: a call of `cohort.sum` or `shard.private_mean`.

    Attributes:
      like: the shapes of what is summed.
      mechanism: as it was given; in a round that of the round, or None of a heuristic of which nothing is certified.
      integers: how messages are summed as integers; None: they are floats.
    """

    like: PyTree
    mechanism: Any
    integers: IntegerSum | None = None

    def in_round(self, t: jax.Array) -> Place:
        """With the mechanism of round t, if it is one."""
        used = self.mechanism.in_round(t)
        return self._replace(mechanism=used if isinstance(used, Mechanism) else None)

    def reach(self, contribution: PyTree) -> jax.Array:
        """f32[]: its length in units of the noise, of the z_t of correlated noise; without noise 1."""
        used = self.mechanism
        if self.integers is not None:
            deviation = self.integers.noise_deviation
            return jnp.linalg.norm(flatten(contribution)) / (deviation or 1.0)
        if used is not None and used.correlation is not None:
            used = used.correlation.mechanism
        if used is None or used.worst_case is None:
            return jnp.float32(1)
        return jnp.linalg.norm(flatten(used.worst_case.whiten(contribution)))


class Injected(NamedTuple):
    """Injected into a round: numbers that are 0.

    Attributes:
      unknown: f32[], multiplies what is random or a canary's.
      added: to the noisy sum of each place; with records to that of every step of every client. Empty: nothing.
      of_honest: f32[], multiplies what an honest canary adds where it takes part, whether it does or not.
    """

    unknown: jax.Array
    added: list[PyTree]
    of_honest: jax.Array

    def noise(self, noisy: PyTree, total: PyTree) -> PyTree:
        """The noisy sum, in which the noise is unknown."""
        return jax.tree.map(lambda n, s: self.part(n, n - s), noisy, total)

    def part(self, value: jax.Array, unknown: jax.Array) -> jax.Array:
        """`value`, of which a part is unknown."""
        return value + self.unknown.astype(value.dtype) * lax.stop_gradient(unknown)

    def at(self, place: int, total: PyTree) -> PyTree:
        """The noisy sum of a place, with what is added there."""
        return jax.tree.map(jnp.add, total, self.added[place]) if self.added else total

    def of_canary(self, contribution: PyTree) -> PyTree:
        """0, which grows with `of_honest` as what a canary adds."""
        return jax.tree.map(
            lambda c: self.of_honest.astype(c.dtype) * lax.stop_gradient(c), contribution
        )

    @property
    def for_one_client(self) -> Injected:
        """For a canary's client on its own: nothing there is unknown, or added."""
        return Injected(jnp.zeros(()), [], self.of_honest)
