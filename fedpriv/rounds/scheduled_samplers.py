"""Samplers that decide by the round who may take part, so that a client rests between its rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Positive, Rate, checked, require
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.provenance import sealed
from fedpriv.core.types import Key
from fedpriv.core.user_functions import asked
from fedpriv.privacy.participation_schemas import (
    CyclicPoisson,
    MinimumSeparation,
    ParticipationSchema,
    RandomAllocation,
)
from fedpriv.privacy.sampling import Dropping, Poisson
from fedpriv.rounds.samplers import (
    Draw,
    Sampler,
    capacity_for,
    check_draw,
    drawn_from,
    poisson,
)


@checking_fields
class ScheduledSampler(NamedTuple):
    """Draws each round's cohort by the number of the round; made together with its accounting.

    Attributes:
      draw: (key of the run, rounds done t: i32[]) -> Draw.
      slots: length of a draw's arrays.
      expected_size: what a mean over the cohort divides by.
      accounting: which rounds a client may take part in.
      seal: see `fedpriv.core.provenance`; whoever makes a sampler by hand leaves it out.
    """

    draw: Callable[[Key, jax.Array], Draw]
    slots: Count
    expected_size: Positive
    accounting: ParticipationSchema
    seal: tuple = ()

    @property
    def most(self) -> int:
        """Most clients that one draw can hold."""
        return self.accounting.most


AnySampler: TypeAlias = Sampler | ScheduledSampler


def has_full_cohorts(sampler: AnySampler) -> bool:
    """Whether every draw has a client in each of its slots."""
    drawn = sampler.accounting
    if isinstance(drawn, MinimumSeparation):
        return drawn.participations is None and drawn.most * drawn.separation == drawn.population
    varies = isinstance(drawn, Poisson | CyclicPoisson | RandomAllocation | Dropping)
    return not varies and sampler.slots == drawn.most


def cohort_drawn(sampler: AnySampler, key: Key, schedule: Key, t: jax.Array) -> Draw:
    """Who takes part in a round.

    Args:
      key: for the draw of this round.
      schedule: the key for who takes part when, of the whole run.
      t: i32[], rounds done.

    Raises:
      ValueError: as `drawn_from`.
    """
    if not isinstance(sampler, ScheduledSampler):
        return drawn_from(sampler, key)
    drawn = asked("draw", sampler.draw, "(key of the run, round)", schedule, t)
    check_draw(sampler, drawn)
    return drawn


def fixed_order(
    population: Count, size: Count, participations: Count | None = None
) -> ScheduledSampler:
    """Cohorts of at most `size` clients by number, everyone once in b = ceil(population / size) rounds.

    Cohorts differ by one client at most, and a mean divides by population / b.

    Args:
      participations: k, after which a client takes part no more; None: as long as the run lasts.

    Raises:
      ValueError: a number below 1, or a size above the population.
    """
    return _in_turn(population, size, participations, lambda key, ids: ids)


def shuffled_blocks(
    population: Count, size: Count, participations: Count | None = None
) -> ScheduledSampler:
    """As `fixed_order`, in a random order that is drawn once for the whole run.

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

    def draw(key: Key, t: jax.Array) -> Draw:
        turn, place = t // block, t % block
        at = jnp.asarray(begins)[place] + jnp.arange(slots, dtype=jnp.int32)
        mask = at < jnp.asarray(begins)[place + 1]
        if participations is not None:
            mask &= turn < participations
        ids = order(key, jnp.minimum(at, population - 1)).astype(jnp.int32)
        return Draw(jnp.where(mask, ids, population), mask)

    return sealed(ScheduledSampler(draw, slots, population / block, accounting))


def cyclic_poisson(
    population: Count, groups: Count, rate: Rate, capacity: Count | None = None
) -> ScheduledSampler:
    """Groups of clients take turns; each member of the group joins on its own with probability `rate`.

    C. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", NeurIPS 2023, Algorithm 2.

    Args:
      groups: b; client i is in group i modulo b.
      capacity: as `fp.poisson`, of the group.

    Raises:
      ValueError: a number below 1, groups that do not divide the population, or a rate outside (0, 1].
    """
    population = checked("population", population, Count)
    groups = checked("groups", groups, Count)
    drawn = CyclicPoisson(population, groups, rate, capacity).of_a_round
    of_group = poisson(drawn.population, drawn.rate, capacity)
    accounting = CyclicPoisson(population, groups, drawn.rate, of_group.slots)

    def draw(key: Key, t: jax.Array) -> Draw:
        ids, mask = of_group.draw(jax.random.fold_in(key, t))
        return Draw(jnp.where(mask, t % groups + groups * ids, population), mask)

    return sealed(ScheduledSampler(draw, of_group.slots, of_group.expected_size, accounting))


_MOST_BLOCK = 2**16  # above it, `jax.random.randint` is less even than by 2^-48


def random_allocation(
    population: Count, block: Count, capacity: Count | None = None
) -> ScheduledSampler:
    """In every block of `block` rounds each client takes part once, in a round that it draws on its own.

    V. Feldman, M. Shenfeld, "Privacy amplification by random allocation", 2025 (arXiv:2502.08202). A mean divides by
    population / block.

    Args:
      block: b, number of rounds.
      capacity: as `fp.poisson`, of a round; those who are left out take part in no round of the block.

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

    def draw(key: Key, t: jax.Array) -> Draw:
        whose_turn, whose_place = jax.random.split(jax.random.fold_in(key, t // block))
        rounds = jax.random.randint(whose_turn, (population,), 0, block)
        order = jax.random.permutation(whose_place, population)
        members = rounds[order] == t % block
        (first,) = jnp.nonzero(members, size=slots, fill_value=population)
        ids = order.at[first].get(mode="fill", fill_value=population).astype(jnp.int32)
        return Draw(ids, ids < population)

    return sealed(ScheduledSampler(draw, slots, population / block, accounting))
