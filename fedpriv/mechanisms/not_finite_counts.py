"""How many messages, or gradients of records, are NaN or infinite, and so count as 0 where they are clipped.

A diagnostic: not private, never released, and nothing is trained with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state


class Tally:
    """Counts of what is not finite, added up while a round is traced, outside of loops: a loop carries its own."""

    def __init__(self) -> None:
        self._counts: list[jax.Array] = []
        self._trace = get_opaque_trace_state()

    def add(self, counts: jax.Array) -> None:
        """Counts i32[2]: how many were not finite, out of how many; those of an inner trace are left out."""
        if get_opaque_trace_state() == self._trace:
            self._counts.append(counts)

    def total(self) -> jax.Array:
        """i32[2], likewise."""
        return sum(self._counts, jnp.zeros(2, jnp.int32))

    def share(self) -> jax.Array:
        """f32[] in 0..1; 0 of none."""
        lost, counted = self.total()
        return lost.astype(jnp.float32) / jnp.maximum(counted, 1).astype(jnp.float32)


_RECORDS: ContextVar[Tally | None] = ContextVar("records", default=None)


@contextmanager
def counted_records() -> Iterator[Tally]:
    """A tally of the records' gradients that are clipped in this block."""
    tally = Tally()
    token = _RECORDS.set(tally)
    try:
        yield tally
    finally:
        _RECORDS.reset(token)


def count_records(norms: jax.Array, mask: jax.Array) -> None:
    """Counts gradients by their norms (f32[B]), of those records that `mask` (bool[B]) has in the batch."""
    if tally := _RECORDS.get():
        tally.add(
            jnp.stack([jnp.sum(mask & ~jnp.isfinite(norms)), jnp.sum(mask)]).astype(jnp.int32)
        )


def add_records(counts: jax.Array) -> None:
    """Counts of records that are not finite, i32[2], which a loop carried out, see `Tally.add`."""
    if tally := _RECORDS.get():
        tally.add(counts)
