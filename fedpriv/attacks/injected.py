"""Numbers that are 0 in a round, by which it is differentiated: how far it moves by what an adversary does not know."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.types import PyTree


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

    def at(self, place: int, total: list[jax.Array]) -> list[jax.Array]:
        """The leaves of the noisy sum of a place, with what is added there."""
        added = jax.tree.leaves(self.added[place]) if self.added else []
        return [*map(jnp.add, total, added), *total[len(added) :]]

    def of_canary(self, contribution: PyTree) -> PyTree:
        """0, which grows with `of_honest` as what a canary adds."""
        return jax.tree.map(
            lambda c: self.of_honest.astype(c.dtype) * lax.stop_gradient(c), contribution
        )

    @property
    def for_one_client(self) -> Injected:
        """For a canary's client on its own: nothing there is unknown, or added."""
        return Injected(jnp.zeros(()), [], self.of_honest)
