"""Which rows each client holds, one client's after another's: a large client makes no other's room larger."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from fedpriv.data.held_out import Rows


@flax.struct.dataclass
class ClientRows:
    """Row numbers on the device, n of them in all. Several of one shape can have a leading axis of seeds.

    Attributes:
      order: i32[n + room], the rows of the first client, then of the next; `room` is at least the capacity.
      start: i32[clients], where in `order` each client's rows start.
      size: i32[clients], how many they are.
      capacity: the largest number of rows that a client can hold.
    """

    order: jax.Array
    start: jax.Array
    size: jax.Array
    capacity: int = flax.struct.field(pytree_node=False)

    @classmethod
    def on_device(cls, rows: Rows) -> ClientRows:
        """A client may have none."""
        capacity = int(rows.size.max())
        start = np.minimum(np.cumsum(rows.size) - rows.size, len(rows.rows) - 1)
        arrays = np.pad(rows.rows, (0, capacity)), start, rows.size
        order, starts, size = (jnp.asarray(array.astype(np.int32)) for array in arrays)
        return cls(order, starts, size, capacity)

    def on_host(self) -> Rows:
        """Without padding."""
        order, start, size = map(np.asarray, (self.order, self.start, self.size))
        before = np.cumsum(size) - size
        return Rows(size, order[np.repeat(start - before, size) + np.arange(size.sum())])

    def each_on_host(self) -> list[Rows]:
        """As `on_host`, of each seed; of one, where there is no axis of seeds."""
        if self.start.ndim == 1:
            return [self.on_host()]
        of_seeds = zip(self.order, self.start, self.size, strict=True)
        return [ClientRows(*arrays, self.capacity).on_host() for arrays in of_seeds]

    def of_client(self, client: jax.Array) -> jax.Array:
        """i32[capacity], the rows of one client (i32[]), filled with its first; with any row where it has none."""
        # A slice, as it is read faster than single numbers.
        found = lax.dynamic_slice_in_dim(self.order, self.start[client], self.capacity)
        return jnp.where(jnp.arange(self.capacity) < self.size[client], found, found[0])

    @property
    def table(self) -> jax.Array:
        """i32[clients, capacity], as `of_client`, of all clients at once."""
        place = jnp.arange(self.capacity, dtype=jnp.int32)
        place = jnp.where(place < self.size[..., None], place, 0) + self.start[..., None]
        flat = place.reshape(*place.shape[:-2], -1)
        return jnp.take_along_axis(self.order, flat, axis=-1).reshape(place.shape)


def stacked(several: list[ClientRows]) -> ClientRows:
    """The rows of several partitions with a leading axis, and with the largest capacity."""
    capacity = max(each.capacity for each in several)
    room = max(len(each.order) - each.capacity for each in several) + capacity
    orders = [np.pad(np.asarray(each.order), (0, room - len(each.order))) for each in several]
    return ClientRows(
        stack(*orders),
        stack(*(each.start for each in several)),
        stack(*(each.size for each in several)),
        capacity,
    )


def stack(*arrays: ArrayLike) -> jax.Array:
    """Stacks rows on the host: on the device, every shape would be a program to compile."""
    return jnp.asarray(np.stack([np.asarray(array) for array in arrays]))
