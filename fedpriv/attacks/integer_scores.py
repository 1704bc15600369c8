"""What integer noise shows of a unit in the worst integer direction: draws of it, and their likelihood ratios."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.types import Key
from fedpriv.mechanisms.integer_samplers import draw_shares, reach_of_shares
from fedpriv.pairs.integer_noise import IntegerNoise

_NEARLY = (
    1 - 1e-3
)  # of the largest divergence: among directions that reach it the one of fewest coordinates is played
_MOST_MASSES = 2**27  # in tables

Ratios: TypeAlias = Callable[[Key, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""(key, c, times) -> log-likelihood ratios of contributions `times` u and -`times` u against none, of noise + c u."""


@lru_cache(maxsize=64)
def worst_shifts(noise: IntegerNoise) -> dict[int, int]:
    """By shift above 0 the number of coordinates that are shifted so far, of the vector that is hardest to hide.

    Of vectors whose coordinates are all k, as many as the norm and the dimension allow, and what then is left of the
    norm in further ones, it has the largest Rényi divergence of order 2.
    """
    law, most = noise.law, math.isqrt(noise.squared_norm)
    tried = sorted({*range(1, min(law.exact_shifts, most) + 1), most}, reverse=True)
    vectors = [_filled(noise, k) for k in tried]
    of_one = {k: law.divergence(2.0, k) for k in set().union(*vectors)}
    totals = [sum(times * of_one[k] for k, times in v.items()) for v in vectors]
    nearly = [v for v, d in zip(vectors, totals, strict=True) if d >= _NEARLY * max(totals)]
    return min(nearly, key=lambda v: sum(v.values()))


def _filled(noise: IntegerNoise, shift: int) -> dict[int, int]:
    """Coordinates of this shift, then of the largest for which there still is norm."""
    left, room, shifts = noise.squared_norm, noise.dimension, {}
    while left and room:
        shift = min(shift, math.isqrt(left))
        shifts[shift] = times = min(room, left // shift**2)
        left, room = left - times * shift**2, room - times
    return shifts


def integer_ratios(noise: IntegerNoise, shares_are_lost: bool, farthest: int) -> Ratios:
    """Of a unit in the worst direction u: the mechanism's own draws of noise, where u is not zero, and u.

    Contributions are whole multiples of u; or, where shares are lost, `times` is the root of all shares over those that
    are left, of which the noise then is.

    Args:
      farthest: the largest multiple.

    Raises:
      ValueError: masses of too many numbers.
    """
    shifts = worst_shifts(noise)
    u = jnp.asarray(np.repeat(list(shifts), list(shifts.values())), jnp.int32)
    reach = reach_of_shares(noise, shares_are_lost) + 2 * farthest * max(shifts)
    shares = np.arange(0 if shares_are_lost else noise.shares, noise.shares + 1)
    many = len(shares) * (2 * reach + 1)
    remedy = "play fewer members, or fewer bits"
    require(many <= _MOST_MASSES, "release: masses to be tabled", many, remedy)
    table = jnp.asarray(_log_masses(noise, shares.tolist(), reach))

    def ratios(key: Key, c: jax.Array, times: jax.Array) -> tuple[jax.Array, jax.Array]:
        times = jnp.asarray(times, jnp.float32)
        if shares_are_lost:
            left = jnp.floor(noise.shares / jnp.maximum(times, 1) ** 2 + 1e-3).astype(jnp.int32)
            row, own, seen = table[left], jnp.sign(times), jnp.sign(c)
        else:
            left, row, own, seen = None, table[0], times, jnp.asarray(c)
        own, seen = jnp.round(own).astype(jnp.int32), jnp.round(seen).astype(jnp.int32)
        x = draw_shares(key, noise, u.shape, left) + seen * u
        without = row[x + reach]
        both = (row[x - sign * own * u + reach] - without for sign in (1, -1))
        plus, minus = map(jnp.sum, both)
        return plus, minus

    return ratios


def _log_masses(noise: IntegerNoise, shares: list[int], reach: int) -> np.ndarray:
    """f32[shares, 2 reach + 1], from -reach to reach."""
    x = np.arange(reach + 1)
    half = np.array([noise.law_of(k).log_mass(x) if k else 0.0 * x for k in shares], np.float32)
    return np.concatenate([half[:, :0:-1], half], axis=1)
