"""How a step's records are drawn where clients hold unequal numbers of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.arguments import Count, Rate, check_fields, checked, require
from fedpriv.core.types import Key
from fedpriv.privacy.sampling import FixedSize, Poisson, Sampling
from fedpriv.rounds.samplers import Draw, Sampler, fixed_size, poisson


@dataclass(frozen=True)
class PublicSizes:
    """Draws each client's batches from its own records, if the number of records of each client is public.

    With `batch`, that many records are drawn uniformly without replacement, or all if the client holds fewer; the sum
    is divided by their number. With `rate`, each record joins independently; the sum is divided by rate times the
    client's number of records. If sizes are secret, use `fp.poisson(largest number of records, rate)`.

    Formal guarantees: bounded for a record that is replaced by another, or by one that counts for nothing. With `batch`
    the records of the smallest client are drawn most often, so its epsilon is the largest; see `certify`.

    Attributes:
      sizes: [clients], such as `federation.size`.
      batch: records of a step.
      rate: probability of each record.
      capacity: as `fp.poisson`, for batches drawn by `rate`.
      places: number of places to draw among: the records of the largest client.

    Raises:
      ValueError: a client without records; both or neither of batch and rate; a capacity beside batch.
    """

    sizes: Sequence[Count]
    batch: Count | None = None
    rate: Rate | None = None
    capacity: Count | None = None
    places: Sampler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = "give the number of records of each client"
        require(len(self.sizes) > 0, "sizes", self.sizes, remedy)
        one = (self.batch is None) != (self.rate is None)
        require(one, "batch", self.batch, f"give one of the two (rate={self.rate})")
        unused = self.batch is not None and self.capacity is not None
        require(not unused, "capacity", self.capacity, "leave it out, as batches have one size")
        most = max(self.sizes)
        if self.batch is not None:
            places = fixed_size(most, min(self.batch, most))
        else:
            places = poisson(most, self.rate, self.capacity)  # type: ignore[arg-type]
        object.__setattr__(self, "places", places)

    @property
    def accounting(self) -> Sampling:
        """That of the smallest client."""
        return self.accounting_of()

    @property
    def public_sizes(self) -> tuple[int, ...]:
        """Number of records of each client, which is public."""
        return tuple(self.sizes)

    @property
    def expected_size(self) -> float:
        """That of a batch of the largest client."""
        return self.places.expected_size

    @property
    def most(self) -> int:
        """Most records that one draw can hold."""
        return self.places.slots

    def accounting_of(self, size: Count | None = None) -> Sampling:
        """Draws among `size` records, as the accountant sees them; by default among those of the smallest client."""
        size = min(self.sizes) if size is None else checked("size", size, Count)
        if self.batch is not None:
            return FixedSize(size, min(self.batch, size))
        assert self.rate is not None
        return Poisson(max(self.sizes), self.rate, self.most, "replaced")

    def divisor(self, size: jax.Array) -> jax.Array | float:
        """Divisor of the sum of a batch that is drawn among `size` (i32[]) records."""
        if self._are_equal:
            return self.places.expected_size
        if self.batch is not None:
            return jnp.minimum(size, self.batch).astype(jnp.float32)
        return jnp.float32(self.rate) * size

    def draw_among(self, key: Key, size: jax.Array) -> tuple[Draw, jax.Array | float]:
        """(A batch among a client's `size` (i32[]) records, what its sum is divided by)."""
        return self.draw(key, size), self.divisor(size)

    def draw(self, key: Key, size: jax.Array) -> Draw:
        """A batch drawn among the first `size` (i32[]) records."""
        if self.batch is None or self._are_equal:
            return self.places.draw(key)
        return _subset(key, size, max(self.sizes), self.most)

    @property
    def _are_equal(self) -> bool:
        return min(self.sizes) == max(self.sizes)


RecordSampler: TypeAlias = Sampler | PublicSizes


def is_record_sampler(given: object) -> bool:
    """Whether it draws records: one of the two, as another class may draw otherwise than its parts say."""
    return type(given) in (Sampler, PublicSizes)


def _subset(key: Key, size: jax.Array, places: int, slots: int) -> Draw:
    """min(size, slots) different ones of the first `size` places, uniformly.

    Those with the smallest of 64 random bits each, of which two are the same once in 2^65 / places^2 draws.
    """
    at = jnp.arange(places, dtype=jnp.int32)
    high, low = jax.random.bits(key, (2, places), jnp.uint32)
    absent = (at >= size).astype(jnp.int32)
    *_, ids = lax.sort((absent, high, low, at), num_keys=3)
    there = jnp.arange(slots) < size
    return Draw(jnp.where(there, ids[:slots], places), there)


def draw_records(
    records: RecordSampler, key: Key, size: jax.Array
) -> tuple[Draw, jax.Array | float]:
    """(A batch among a client's `size` (i32[]) records, what its sum is divided by)."""
    require(
        is_record_sampler(records),
        "records",
        records,
        "give one such as fp.poisson(100, rate=0.1), or fp.PublicSizes",
    )
    remedy = "clients vanish, not records; give the sampler of the clients to fp.dropping"
    require(records.accounting.dropout == 0, "records", records.accounting, remedy)
    drawn, divisor = records.draw_among(key, size)
    if not may_hold_fewer(records):
        return drawn, divisor
    return drawn._replace(mask=drawn.mask & (drawn.ids < size)), divisor


def may_hold_fewer(records: RecordSampler) -> bool:
    """Whether a client may hold fewer records than there are places to draw from."""
    return records.public_sizes is not None or records.accounting.allows_empty_places


def most_records(records: RecordSampler) -> int:
    """Most records that a client may hold, as a record sampler says."""
    return max(records.public_sizes or (records.accounting.population,))


def accounting_of(records: RecordSampler, size: int | None = None) -> Sampling:
    """The draws among a client's records as the accountant sees them.

    Args:
      size: number of records of a client; where sizes are public, the smallest by default.
    """
    return records.accounting_of(size)
