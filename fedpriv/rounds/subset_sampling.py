"""A uniform subset of a population, at the cost of the subset."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.types import Key

_MARGIN = 3.0  # standard deviations of the number of different values: a second draw is rare
_TABLE = 64  # members of the population for each draw, up to which a table of them all beats sorting the draws


def ordered_subset(population: int, size: int) -> Callable[[Key], jax.Array]:
    """key -> i32[size]: different members of the population, every ordered choice equally likely.

    The first `size` different values of a sequence drawn with replacement. Enough are drawn for that nearly always, and
    all again where they are not. A draw is the remainder of 32 random bits, rejected beyond the last multiple of
    `population`. More than half of the population is the beginning of a permutation.
    """
    if 2 * size > population:
        return lambda key: jax.random.permutation(key, jnp.arange(population, dtype=jnp.int32))[
            :size
        ]
    last = 2**32 // population * population - 1
    draws = _draws(population, size, (last + 1) / 2**32)
    first_of = _first_by_table if population <= _TABLE * draws else _first_by_sorting

    def attempt(key: Key) -> tuple[jax.Array, jax.Array]:
        bits = jax.random.bits(key, (draws,), jnp.uint32)
        ids = (bits % jnp.uint32(population)).astype(jnp.int32)
        valid = bits <= jnp.uint32(last)
        first = valid & first_of(ids, valid, population)
        rank = jnp.cumsum(first)
        slot = jnp.where(first, rank - 1, size)  # beyond the last one: dropped
        return jnp.zeros(size, jnp.int32).at[slot].set(ids, mode="drop"), rank[-1] >= size

    def draw(key: Key) -> jax.Array:
        def once(key: Key) -> tuple:
            own, others = jax.random.split(key)
            return others, *attempt(own)

        return lax.while_loop(lambda s: ~s[2], lambda s: once(s[0]), once(key))[1]

    return draw


def _first_by_table(ids: jax.Array, valid: jax.Array, population: int) -> jax.Array:
    """bool[draws]: whether nobody valid before has the same id."""
    place = jnp.arange(len(ids), 0, -1, dtype=jnp.int32)  # earlier draws have the larger number
    drawn_at = jnp.zeros(population, jnp.int32).at[ids].max(jnp.where(valid, place, 0))
    return drawn_at.at[ids].get(mode="promise_in_bounds") == place


def _first_by_sorting(ids: jax.Array, valid: jax.Array, population: int) -> jax.Array:
    """As `_first_by_table`."""
    own, at = lax.sort(
        (jnp.where(valid, ids, population), jnp.arange(len(ids), dtype=jnp.int32)), num_keys=2
    )
    new = jnp.concatenate([jnp.ones(1, bool), own[1:] != own[:-1]])
    return jnp.zeros(len(ids), bool).at[at].set(new)


def _draws(population: int, size: int, valid: float) -> int:
    """Draws after which `size` different members have come up but for `_MARGIN` standard deviations.

    A share `valid` of the draws counts. After a = draws / population of these, a share 1 - e^-a has come up, of
    variance e^-a (1 - (1 + a) e^-a) / population.
    """
    draws = size
    while True:
        a = draws * valid / population
        mean = population * -math.expm1(-a)
        spread = math.sqrt(
            population * max(0.0, math.exp(-a) * (1 - (1 + a) * math.exp(-a)))
            + draws * valid * (1 - valid)
        )
        if mean - _MARGIN * spread >= size or draws > 64 * population:
            return draws
        draws += max(1, size // 100)
