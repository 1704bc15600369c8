"""Samplers that let a client take part in some rounds and rest in others: in turn, in blocks, or as they are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.arguments import Count, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import sealed
from fedpriv.core.types import Key, PyTree
from fedpriv.privacy.sampling import (
    CyclicPoisson,
    MinimumSeparation,
    RandomAllocation,
)
from fedpriv.rounds.samplers import (
    Draw,
    capacity_for,
    poisson,
)
from fedpriv.rounds.scheduled_samplers import ScheduledSampler


def fixed_order(
    population: Count, size: Count, participations: Count | None = None
) -> ScheduledSampler:
    """Cohorts of at most `size` clients by id; each client takes part once in b = ceil(population / size) rounds.

    Cohort sizes differ by at most one, and a mean divides by population / b.

    Args:
      participations: k, the most rounds in which a client takes part; None for no limit.

    Raises:
      ValueError: a number below 1, or a size above the population.
    """
    return _in_turn(population, size, participations, lambda key, ids: ids)


def shuffled_blocks(
    population: Count, size: Count, participations: Count | None = None
) -> ScheduledSampler:
    """As `fixed_order`, but in a random order that is drawn once per run.

    Raises:
      ValueError: as `fixed_order`.
    """
    population = checked("population", population, Count)

    def shuffled(key: Key, ids: jax.Array) -> jax.Array:
        return jax.random.permutation(key, population)[ids]

    return _in_turn(population, size, participations, shuffled)


def _in_turn(
    population: Count,
    size: Count,
    participations: Count | None,
    order: Callable[[Key, jax.Array], jax.Array],
) -> ScheduledSampler:
    population = checked("population", population, Count)
    size = checked("size", size, Count)
    participations = checked("participations", participations, Count | None)
    require(size <= population, "size", size, f"give at most the population, {population}")
    block = -(-population // size)
    begins = np.array([population * i // block for i in range(block + 1)], np.int32)
    slots = int(np.diff(begins).max())
    accounting = MinimumSeparation(population, slots, block, participations)

    def draw(key: Key, t: jax.Array, memory: PyTree) -> tuple[Draw, PyTree]:
        turn, place = t // block, t % block
        at = jnp.asarray(begins)[place] + jnp.arange(slots, dtype=jnp.int32)
        mask = at < jnp.asarray(begins)[place + 1]
        if participations is not None:
            mask &= turn < participations
        ids = order(key, jnp.minimum(at, population - 1)).astype(jnp.int32)
        return Draw(jnp.where(mask, ids, population), mask), memory

    return sealed(ScheduledSampler(draw, slots, population / block, accounting))


def cyclic_poisson(
    population: Count, groups: Count, rate: Rate, capacity: Count | None = None
) -> ScheduledSampler:
    """Groups of clients take turns; each member of the group joins independently with probability `rate`.

    C. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", NeurIPS 2023, Algorithm 2.

    Args:
      groups: b; client i is in group i modulo b.
      capacity: as `fp.poisson`, for the group.

    Raises:
      ValueError: a number below 1, groups that do not divide the population, or a rate outside (0, 1].
    """
    population = checked("population", population, Count)
    groups = checked("groups", groups, Count)
    drawn = CyclicPoisson(population, groups, rate, capacity).of_a_round
    of_group = poisson(drawn.population, drawn.rate, capacity)
    accounting = CyclicPoisson(population, groups, drawn.rate, of_group.slots)

    def draw(key: Key, t: jax.Array, memory: PyTree) -> tuple[Draw, PyTree]:
        members = of_group.draw(jax.random.fold_in(key, t))
        ids = jnp.where(members.mask, t % groups + groups * members.ids, population)
        return Draw(ids, members.mask), memory

    return sealed(ScheduledSampler(draw, of_group.slots, of_group.expected_size, accounting))


_MOST_BLOCK = 2**16  # above it, `jax.random.randint` is less even than by 2^-48


def random_allocation(
    population: Count, block: Count, capacity: Count | None = None
) -> ScheduledSampler:
    """In every block of `block` rounds each client takes part once, in a round that it draws independently.

    V. Feldman, M. Shenfeld, "Privacy amplification by random allocation", 2025 (arXiv:2502.08202). A mean divides by
    population / block.

    Args:
      block: b, number of rounds.
      capacity: as `fp.poisson`, for a round; clients that are cut take part in no round of the block.

    Raises:
      ValueError: a number below 1, or a block above 65,536 rounds.
    """
    population = checked("population", population, Count)
    block = checked("block", block, Count)
    capacity = checked("capacity", capacity, Count | None)
    require(block <= _MOST_BLOCK, "block", block, f"give at most {_MOST_BLOCK} rounds")
    if capacity is None:
        capacity = capacity_for(population / block, 1 / block)
    slots = min(capacity, population)
    accounting = RandomAllocation(population, block, slots)

    def draw(key: Key, t: jax.Array, memory: PyTree) -> tuple[Draw, PyTree]:
        whose_turn, whose_place = jax.random.split(jax.random.fold_in(key, t // block))
        rounds = jax.random.randint(whose_turn, (population,), 0, block)
        order = jax.random.permutation(whose_place, population)
        members = rounds[order] == t % block
        (first,) = jnp.nonzero(members, size=slots, fill_value=population)
        ids = order.at[first].get(mode="fill", fill_value=population).astype(jnp.int32)
        return Draw(ids, ids < population), memory

    return sealed(ScheduledSampler(draw, slots, population / block, accounting))


class TookPart(NamedTuple):
    """What `random_availability` remembers of the rounds before.

    Attributes:
      last: i32[clients], the last round in which each took part, or one long ago.
      times: i32[clients], how often.
    """

    last: jax.Array
    times: jax.Array


def random_availability(
    population: Count,
    size: Count,
    separation: Count,
    availability: Rate,
    participations: Count | None = None,
) -> ScheduledSampler:
    """Clients check in at random, and the server takes at most `size` of those that have rested.

    In every round each client is available independently with probability `availability`. An available client is
    eligible if its last participation was at least `separation` rounds ago, and if it took part in fewer than
    `participations` rounds. Of the eligible clients `size` are drawn uniformly without replacement, or all if they are
    fewer. Devices' timers work this way in P. Kairouz et al., "Practical and Private (Deep) Learning without Sampling
    or Shuffling", ICML 2021, and Z. Xu et al., "Federated Learning of Gboard Language Models with Differential
    Privacy", ACL 2023.

    A mean divides by `size`, which is public; so a smaller cohort moves the model less, with the same noise. The engine
    remembers 8 bytes per client.

    Formal guarantees: `MinimumSeparation(population, size, separation, participations)` for every outcome of the draws,
    and so for any availability that does not depend on data.

    *Proof.* Whoever takes part in round t is remembered with last = t, and is not drawn again while t' - last is below
    the separation, nor once it was counted `participations` times.

    Args:
      separation: b; with 1 a client may take part in consecutive rounds.
      availability: in (0, 1], rounded to a multiple of 2^-32.
      participations: k, the most rounds in which a client takes part; None for no limit.

    Raises:
      ValueError: a number below 1, an availability outside (0, 1], or a population too small for this size and
        separation, so that cohorts could never be full.
    """
    population = checked("population", population, Count)
    size = checked("size", size, Count)
    separation = checked("separation", separation, Count)
    availability = checked("availability", availability, Rate)
    participations = checked("participations", participations, Count | None)
    accounting = MinimumSeparation(population, size, separation, participations)
    remedy = f"cohorts of {size} from {population} clients are never full; give at most {population // size}"
    require(size * separation <= population, "separation", separation, remedy)
    reached = np.uint32(max(round(availability * 2**32), 1) - 1)  # by 32 random bits
    most = participations or np.iinfo(np.int32).max

    def init() -> TookPart:
        times = jnp.zeros(population, jnp.int32)
        return TookPart(times - separation, times)

    def draw(key: Key, t: jax.Array, memory: TookPart) -> tuple[Draw, TookPart]:
        checks_in, lot = jax.random.bits(jax.random.fold_in(key, t), (2, population), jnp.uint32)
        may = (checks_in <= reached) & (t - memory.last >= separation) & (memory.times < most)
        ids, mask = least_lots(may, lot, size)
        last = memory.last.at[ids].set(t, mode="drop")
        return Draw(ids, mask), TookPart(last, memory.times.at[ids].add(1, mode="drop"))

    return sealed(ScheduledSampler(draw, size, float(size), accounting, init))


def least_lots(may: jax.Array, lot: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """(ids i32[size], mask bool[size]): of the clients that may, those with the least lots (u32[clients]) win.

    As floats, of which XLA finds the largest without sorting them all; least are exact.
    """
    place, ids = lax.top_k(jnp.where(may, -lot.astype(jnp.float32), -jnp.inf), size)
    mask = place > -jnp.inf
    return jnp.where(mask, ids, may.shape[0]), mask
