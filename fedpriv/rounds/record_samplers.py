"""How a step's records are drawn where clients hold unequal numbers of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.arguments import Count, Rate, check_fields, checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import sealed
from fedpriv.core.types import Key
from fedpriv.data.federation import Federation
from fedpriv.privacy.sampling import FixedSize, Poisson, Sampling, Who, Why
from fedpriv.privacy.sampling.grouped import Grouped
from fedpriv.rounds.group_names import digest_of, labels_of, named, table
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
        return Poisson(max(self.sizes), self.rate, self.most)

    def divisor(self, size: jax.Array) -> jax.Array | float:
        """Divisor of the sum of a batch that is drawn among `size` (i32[]) records."""
        return self.places.expected_size if self._are_equal else self._expected_of(size)

    def _expected_of(self, size: jax.Array) -> jax.Array:
        """Expected size of a batch that is drawn among `size` (i32[]) records, 0 or more, whatever others hold."""
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

    def _draw_among(self, key: Key, size: jax.Array) -> Draw:
        """A batch drawn among the first `size` (i32[]) records, 0 or more, whatever others hold."""
        if self.batch is not None:
            return _subset(key, size, max(self.sizes), self.most)
        drawn = self.places.draw(key)
        return drawn._replace(mask=drawn.mask & (drawn.ids < size))

    @property
    def _are_equal(self) -> bool:
        return min(self.sizes) == max(self.sizes)


@dataclass(frozen=True)
class PublicGroups:
    """Draws each client's batches from its own records, which are in public groups, each with a rate of its own.

    Every group is drawn by itself among the client's records in it, as by `PublicSizes`; a step's batch is all of them
    together, and its sum is divided by the sum of the expected sizes.

    Formal guarantees: bounded for a record that is replaced by another of its group, or by one that counts for nothing:
    the draws of other groups, which are independent, have the same law for both. Groups, and how many records of each a
    client holds, have to be public, fixed, and independent of what records hold.

    Attributes:
      groups: [clients][records], the name of each record's group, a text or a whole number, in the order in which the
        client holds them.
      rate: name -> probability of each record of the group.
      batch: name -> records of the group in a step, or all that the client holds in it.
      parts: (name, how its records are drawn) of each group.
      members: digest of which records are in which.
      places: draws among the places of client 0.

    Raises:
      ValueError: a client without records; a record without a group; both or neither of rate and batch; a group that
        lacks in them, or has no records.
    """

    groups: Sequence[Sequence[str]] = field(repr=False, compare=False)
    rate: Mapping[str, Rate] | None = field(default=None, repr=False, compare=False)
    batch: Mapping[str, Count] | None = field(default=None, repr=False, compare=False)
    parts: tuple[tuple[str, PublicSizes], ...] = field(init=False)
    members: str = field(init=False)
    places: Sampler = field(init=False, repr=False, compare=False)
    _held: jax.Array = field(init=False, repr=False, compare=False)
    _order: jax.Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        several = isinstance(self.groups, Sequence) or getattr(self.groups, "ndim", 0) > 0
        remedy = "give, for each client, the names of its records' groups, in a list of lists"
        fits = several and not isinstance(self.groups, str) and len(self.groups) > 0
        require(fits, "groups", self.groups, remedy)
        labels = [labels_of(f"groups[{i}]", own) for i, own in enumerate(self.groups)]
        one = (self.batch is None) != (self.rate is None)
        require(one, "batch", self.batch, f"give one of the two (rate={self.rate})")
        by_rate = self.rate is not None
        names = dict.fromkeys(name for own in labels for name in dict.fromkeys(own.tolist()))
        what, given = ("rate", self.rate) if by_rate else ("batch", self.batch)
        numbers = named(what, given, names, "a number")
        held = np.array([[np.sum(own == name) for name in names] for own in labels])
        parts = []
        for name, sizes in zip(names, held.T, strict=True):
            kind: Any = Rate if by_rate else Count
            number = checked(f"{what}[{name!r}]", numbers[name], kind)
            some = [int(size) for size in sizes if size]
            parts.append((name, PublicSizes(some, **{what: number})))
        self._set("parts", tuple(parts))
        self._set("members", digest_of(labels))
        number_of = {name: number for number, name in enumerate(names)}
        order = np.full((len(labels), held.sum(1).max()), held.sum(1).max(), np.int32)
        for row, own in zip(order, labels, strict=True):
            row[: len(own)] = np.argsort([number_of[name] for name in own.tolist()], kind="stable")
        self._set("_held", table(held.astype(np.int32)))
        self._set("_order", table(order))
        slots = sum(part.most for _, part in parts)
        expected = sum(part.expected_size for _, part in parts)
        drawn = tuple((name, part.accounting) for name, part in parts)
        told = Grouped(order.shape[1], slots, drawn, (1.0,) * len(names), self.members)
        draw = Sampler(lambda key: self._draw_of(key, 0)[0], slots, expected, told)
        self._set("places", sealed(draw))

    @classmethod
    def of_leaf(cls, federation: Federation, leaf: str, **numbers: Any) -> PublicGroups:
        """Groups by a public leaf of the examples, of whole numbers, such as a ward's or a year.

        Args:
          federation: in memory.
          numbers: `rate` or `batch`, as of the class.

        Raises:
          ValueError: a federation that is not in memory, or has no such leaf of whole numbers; as the class.
        """
        remedy = "give one in memory, fp.Federation.from_arrays(...), or the names themselves"
        require(isinstance(federation, Federation), "federation", federation, remedy)
        leaves = federation.examples if isinstance(federation.examples, Mapping) else {}
        remedy = f"there is no such leaf; give one of {', '.join(map(repr, leaves)) or 'those with names'}"
        require(leaf in leaves, "leaf", leaf, remedy)
        values = np.asarray(leaves[leaf])[np.asarray(federation.rows)]
        whole = values.ndim == 2 and values.dtype.kind in "iu"
        require(whole, "leaf", leaf, "a record has no whole number there; give a leaf of one each")
        sizes = np.asarray(federation.size)
        return cls([own[:n].tolist() for own, n in zip(values, sizes, strict=True)], **numbers)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def accounting(self) -> Sampling:
        """Of each group that of the client with fewest records in it."""
        return self.places.accounting

    @property
    def public_sizes(self) -> tuple[int, ...]:
        """Number of records of each client, which is public."""
        return tuple(np.asarray(self._held).sum(1).tolist())

    @property
    def held(self) -> tuple[dict[str, int], ...]:
        """Of each client, name -> records that it holds in the group, where it holds some."""
        return tuple(
            {name: int(n) for (name, _), n in zip(self.parts, own, strict=True) if n}
            for own in np.asarray(self._held)
        )

    @property
    def expected_size(self) -> float:
        """That of a batch of a client that holds as many records of every group as any."""
        return self.places.expected_size

    @property
    def most(self) -> int:
        """Most records that one draw can hold."""
        return self.places.slots

    def accounting_of(self, size: Count | None = None, group: str = "") -> Sampling:
        """Draws among the `size` records that a client holds in a group; by default the fewest that any does."""
        parts = dict(self.parts)
        known = isinstance(group, str) and group in parts
        require(known, "group", group, f"choose of {', '.join(parts)}")
        return parts[group].accounting_of(size)

    def _draw_of(self, key: Key, client: jax.Array | int) -> tuple[Draw, jax.Array]:
        """(A batch of client i32[], what its sum is divided by)."""
        held, order = self._held[client], self._order[client]
        begins, nowhere = jnp.cumsum(held) - held, order.shape[0]
        ids, masks, divisor = [], [], jnp.float32(0)
        for number, (_, part) in enumerate(self.parts):
            own = held[number]
            drawn = part._draw_among(jax.random.fold_in(key, number), own)
            at = jnp.where(drawn.mask, begins[number] + drawn.ids, nowhere)
            ids.append(order.at[at].get(mode="fill", fill_value=nowhere))
            masks.append(drawn.mask)
            divisor += part._expected_of(own)
        return Draw(jnp.concatenate(ids), jnp.concatenate(masks)), divisor


RecordSampler: TypeAlias = Sampler | PublicSizes | PublicGroups


def is_record_sampler(given: object) -> bool:
    """Whether it draws records: one of these, as another class may draw otherwise than its parts say.

    Not `fp.grouped`, which draws clients.
    """
    if type(given) is Sampler:
        return not given.accounting.group_names
    return type(given) in (PublicSizes, PublicGroups)


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
    records: RecordSampler, key: Key, size: jax.Array, client: jax.Array | int = 0
) -> tuple[Draw, jax.Array | float]:
    """(A batch among the `size` (i32[]) records of a client (i32[]), what its sum is divided by)."""
    require(
        is_record_sampler(records),
        "records",
        records,
        "give one such as fp.poisson(100, rate=0.1), fp.PublicSizes or fp.PublicGroups",
    )
    remedy = "clients vanish, not records; give the sampler of the clients to fp.dropping"
    require(records.accounting.vanish == 0, "records", records.accounting, remedy)
    if isinstance(records, PublicGroups):
        return records._draw_of(key, client)
    drawn, divisor = records.draw_among(key, size)
    if not may_hold_fewer(records):
        return drawn, divisor
    return drawn._replace(mask=drawn.mask & (drawn.ids < size)), divisor


def may_hold_fewer(records: RecordSampler) -> bool:
    """Whether a client may hold fewer records than there are places to draw from."""
    if records.public_sizes is not None:
        return True
    return not isinstance(records.accounting.cases("emptied", Who()), Why)


def most_records(records: RecordSampler) -> int:
    """Most records that a client may hold, as a record sampler says."""
    return max(records.public_sizes or (records.accounting.population,))


def accounting_of(records: RecordSampler, size: int | None = None, group: str = "") -> Sampling:
    """The draws among a client's records as the accountant sees them.

    Args:
      size: number of records of a client, or of a group of its records; where it is public, the smallest by default.
      group: of the records, where these are in groups.
    """
    if isinstance(records, PublicGroups):
        return records.accounting_of(size, group)
    return records.accounting_of(size)
