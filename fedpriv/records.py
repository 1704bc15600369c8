"""How a local step draws its records; the same `Sampler` as for clients, drawn thousands of times a round."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.cohort import Cohort, Sampler
from fedpriv.privacy.sampling import FixedSize
from fedpriv.types import Key

_MARGIN = (
    5.0  # standard deviations of the number of different values, so that a second draw is rare
)


def subsets(population: int, size: int) -> Sampler:
    """Exactly `size` of `population` records, every subset equally likely; several times faster than a permutation.

    Records are drawn with replacement; the first `size` different ones are a uniform subset. Enough are drawn for that
    nearly always, and all again where they are not, which favours no record. Random bits are cut to the least power of
    two above `population` and rejected beyond it, so that no record is more likely than another. Slots whose record was
    rejected, came before or is not needed are masked. Of more than half of the records, those left out are drawn.

    Raises:
      ValueError: size is not between 1 and population.
    """
    accounting = FixedSize(population, size)
    if 2 * size > population:
        return Sampler(_without(population, population - size), population, float(size), accounting)
    bits = max(1, (population - 1).bit_length())
    slots = _draws(population, size, population / 2**bits)
    place = jnp.arange(slots, 0, -1, dtype=jnp.int32)  # earlier draws have the larger number

    def attempt(key: Key) -> tuple[jax.Array, jax.Array, jax.Array]:
        ids = (jax.random.bits(key, (slots,), jnp.uint32) >> (32 - bits)).astype(jnp.int32)
        drawn_at = jnp.zeros(population, jnp.int32).at[ids].max(place, mode="drop")
        first = (ids < population) & (drawn_at.at[ids].get(mode="clip") == place)
        rank = jnp.cumsum(first)
        return ids, first & (rank <= size), rank[-1] >= size

    def draw(key: Key) -> Cohort:
        def again(state: tuple) -> tuple:
            key = jax.random.fold_in(state[0], 1)
            return key, *attempt(key)

        _, ids, mask, _ = lax.while_loop(lambda s: ~s[3], again, (key, *attempt(key)))
        return Cohort(ids, mask)

    return Sampler(draw, slots, float(size), accounting)


def _without(population: int, count: int) -> Callable[[Key], Cohort]:
    """Draws all records but a uniform subset of `count`."""
    everything = jnp.arange(population, dtype=jnp.int32)
    if count == 0:
        return lambda key: Cohort(everything, jnp.ones(population, bool))
    left_out = subsets(population, count).draw

    def draw(key: Key) -> Cohort:
        ids, mask = left_out(key)
        ids = jnp.where(mask, ids, population)
        return Cohort(everything, jnp.ones(population, bool).at[ids].set(False, mode="drop"))

    return draw


def _draws(population: int, size: int, accepted: float) -> int:
    """Draws after which `size` different records have come up but for `_MARGIN` standard deviations.

    After a = accepted draws / population, a share 1 - e^-a has come up, of variance
    e^-a (1 - (1 + a) e^-a) / population.
    """
    draws = size
    while True:
        a = accepted * draws / population
        mean = population * -math.expm1(-a)
        spread = math.sqrt(population * math.exp(-a) * (1 - (1 + a) * math.exp(-a)))
        rejected = math.sqrt(draws * accepted * (1 - accepted))
        if mean - _MARGIN * (spread + rejected) >= size or draws > 64 * population:
            return draws
        draws += max(1, size // 50)
