"""How a local step draws its records; the same `Sampler` as for clients, drawn thousands of times a round."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.provenance import sealed
from fedpriv.core.types import Key
from fedpriv.privacy.sampling import FixedSize
from fedpriv.rounds.samplers import Draw, Sampler

_MARGIN = 3.0  # standard deviations of the number of different values: a second draw is rare


def subsets(population: int, size: int) -> Sampler:
    """Exactly `size` of `population` records, every subset equally likely; several times faster than a permutation.

    Records are drawn with replacement; the first `size` different ones are a uniform subset. Enough are drawn for that
    nearly always, and all again where they are not. A draw is the remainder of 32 random bits, rejected beyond the last
    multiple of `population`. Of more than half of the records, those left out are drawn.

    Raises:
      ValueError: size is not between 1 and population.
    """
    accounting = FixedSize(population, size)
    if 2 * size > population:
        all_but = _without(population, population - size)
        return sealed(Sampler(all_but, population, float(size), accounting))
    draws = _draws(population, size)
    last = 2**32 // population * population - 1
    place = jnp.arange(draws, 0, -1, dtype=jnp.int32)  # earlier draws have the larger number

    def attempt(key: Key) -> tuple[jax.Array, jax.Array]:
        bits = jax.random.bits(key, (draws,), jnp.uint32)
        ids = (bits % jnp.uint32(population)).astype(jnp.int32)
        valid = bits <= jnp.uint32(last)
        drawn_at = jnp.zeros(population, jnp.int32).at[ids].max(jnp.where(valid, place, 0))
        first = valid & (drawn_at.at[ids].get(mode="promise_in_bounds") == place)
        rank = jnp.cumsum(first)
        slot = jnp.where(first, rank - 1, size)  # beyond the last one: dropped
        return jnp.zeros(size, jnp.int32).at[slot].set(ids, mode="drop"), rank[-1] >= size

    def draw(key: Key) -> Draw:
        def again(state: tuple) -> tuple:
            key = jax.random.fold_in(state[0], 1)
            return key, *attempt(key)

        _, ids, _ = lax.while_loop(lambda s: ~s[2], again, (key, *attempt(key)))
        return Draw(ids, jnp.ones(size, bool))

    return sealed(Sampler(draw, size, float(size), accounting))


def _without(population: int, count: int) -> Callable[[Key], Draw]:
    """Draws all records but a uniform subset of `count`."""
    everything = jnp.arange(population, dtype=jnp.int32)
    if count == 0:
        return lambda key: Draw(everything, jnp.ones(population, bool))
    left_out = subsets(population, count).draw

    def draw(key: Key) -> Draw:
        mask = jnp.ones(population, bool).at[left_out(key).ids].set(False, mode="drop")
        return Draw(jnp.where(mask, everything, population), mask)

    return draw


def _draws(population: int, size: int) -> int:
    """Draws after which `size` different records have come up but for `_MARGIN` standard deviations.

    After a = draws / population, a share 1 - e^-a has come up, of variance e^-a (1 - (1 + a) e^-a) / population.
    """
    draws = size
    while True:
        a = draws / population
        mean = population * -math.expm1(-a)
        spread = math.sqrt(population * math.exp(-a) * (1 - (1 + a) * math.exp(-a)))
        if mean - _MARGIN * spread >= size or draws > 64 * population:
            return draws
        draws += max(1, size // 100)
