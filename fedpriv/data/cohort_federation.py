"""What a round sees of a federation whose records are on the host: those of its cohort."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import flax.struct
import jax
import jax.numpy as jnp

from fedpriv.core.leaves import sizes
from fedpriv.core.terminal_text import counted
from fedpriv.core.types import PyTree


def not_here(name: str) -> NoReturn:
    """Raises ValueError: `name` is what only a federation in memory has, not that of a cohort."""
    raise ValueError(
        f"federation.{name}: a streamed federation gives records only to cohorts of `simulate`; use a Federation in "
        "memory"
    )


@flax.struct.dataclass
class CohortFederation:
    """What a round sees of a `StreamedFederation`: a `Federation` with the records of one cohort, on the device.

    Attributes:
      examples: the public ones alone, leaves [p, ...].
      public: i32[p], their rows, which are 0 to p - 1.
      size: i32[clients].
      holders: i32[slots], whose records are here, in increasing order; equal to the number of clients in empty slots.
      holder_records: their records, one holder's after another's, leaves [room, ...].
      capacity: how many records there is room for, for each client that is here.
    """

    examples: PyTree
    public: jax.Array
    size: jax.Array
    holders: jax.Array
    holder_records: PyTree
    capacity: int = flax.struct.field(pytree_node=False)

    def __repr__(self) -> str:
        """Without a record."""
        return (
            f"CohortFederation({counted(self.num_clients, 'client')}, {sizes(self.holder_records)})"
        )

    @property
    def num_clients(self) -> int:
        """How many clients there are, here or not."""
        return int(self.size.shape[0])

    @property
    def rows(self) -> NoReturn:
        """Raises ValueError: the rows are on the host."""
        not_here("rows")

    def records(self, ids: jax.Array, mask: jax.Array) -> Callable[[jax.Array], PyTree]:
        """As `Federation.records`, with ids i32[slots] and mask bool[slots].

        Raises:
          ValueError: outside `simulate`, where no records are here.
        """
        if not len(self.holders):
            not_here("records")
        here = self.holders < self.num_clients
        sizes = jnp.where(here, self.size.at[self.holders].get(mode="clip"), 0)
        starts, place = jnp.cumsum(sizes) - sizes, jnp.arange(self.capacity)

        def of_client(i: jax.Array) -> PyTree:
            slot = jnp.argmax(self.holders == i)
            rows = starts[slot] + jnp.where(place < sizes[slot], place, 0)  # as a Federation pads
            return jax.tree.map(
                lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip"), self.holder_records
            )

        return of_client
