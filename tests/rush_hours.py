"""A sampler that fedpriv does not have: in a rush hour everyone takes part, in other rounds each client by chance."""

import jax
import jax.numpy as jnp
from rush_hour_cases import RushHours

import fedpriv as fp


def rush_hours(population: int, rate: float, rush: float) -> fp.Sampler:
    """`rate` and `rush` are multiples of 2^-16, by which is drawn."""
    accounting = RushHours(population, rate, rush)
    ids = jnp.arange(population, dtype=jnp.int32)

    def draw(key: jax.Array) -> fp.types.Draw:
        bits = jax.random.bits(key, (population + 1,), jnp.uint16)
        is_rush = bits[0] < round(rush * 2**16)
        joins = is_rush | (bits[1:] < round(rate * 2**16))
        return fp.types.Draw(jnp.where(joins, ids, population), joins)

    return fp.Sampler(draw, population, population * accounting.inclusion, accounting)
