"""Draws integers by an exact law: from tables of whole numbers, with random bits alone.

The alias method: A. J. Walker, "An Efficient Method for Generating Discrete Random Variables with General
Distributions", ACM TOMS 1977; M. D. Vose, IEEE TSE 1991.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedpriv.core.types import Key
from fedpriv.privacy.integer_noise import DiscreteGaussians, IntegerLaw, Skellam
from fedpriv.privacy.integer_sums import IntegerNoise

_WORDS = 5  # of 32 bits, of a threshold
_DIGITS = 60  # of the numbers that tables are made of
_LEFT_OUT = 2.0**-150  # of the mass, in both tails
_REACH = 108  # nats below the largest mass, which is less than that


class AliasTable(NamedTuple):
    """A law on integers: a column is drawn uniformly, then its own number or the other one.

    Attributes:
      first: the number of column 0; column i has first + i.
      chance: u32[5, columns], the chance of the own number in 160 bits, the highest first.
      other: i32[columns], the other number, less `first`.
    """

    first: int
    chance: NDArray[np.uint32]
    other: NDArray[np.int32]


def draw(key: Key, law: IntegerLaw, shape: tuple[int, ...]) -> jax.Array:
    """i32[shape], independent numbers of that law, within `DRAWN_APART`, which certificates count in delta."""
    table = alias_table(law)
    columns = len(table.other)
    keys = jax.random.split(key, 1 + _WORDS)
    column, drawn = (jax.random.bits(k, shape, jnp.uint32) for k in keys[:2])
    column = column >> (32 - columns.bit_length() + 1) if columns > 1 else jnp.zeros_like(column)
    chance = jnp.asarray(table.chance)
    high = chance[0][column]

    def by_all_bits() -> jax.Array:
        less, tied = drawn < high, drawn == high
        for words, k in zip(chance[1:], keys[2:], strict=True):
            further, limit = jax.random.bits(k, shape, jnp.uint32), words[column]
            less, tied = less | (tied & (further < limit)), tied & (further == limit)
        return less

    own = jax.lax.cond(jnp.any(drawn == high), by_all_bits, lambda: drawn < high)
    number = jnp.where(own, column.astype(jnp.int32), jnp.asarray(table.other)[column])
    return table.first + number


def draw_shares(
    key: Key, noise: IntegerNoise, shape: tuple[int, ...], staying: jax.Array | None = None
) -> jax.Array:
    """i32[shape], the noise of all shares, or of k = `staying` of them (i32[]).

    These come as sums: for each binary digit of k, of so many shares at once.
    """
    if staying is None:
        return draw(key, noise.law, shape)
    total = jnp.zeros(shape, jnp.int32)
    for digit in range(noise.shares.bit_length()):
        drawn = draw(jax.random.fold_in(key, digit), noise.law_of(2**digit), shape)
        total += jnp.where((staying >> digit) & 1, drawn, 0)
    return total


def reach_of_shares(noise: IntegerNoise, some_are_lost: bool) -> int:
    """The largest size of a number that `draw_shares` gives; with a number that stays, if some are lost."""
    if not some_are_lost:
        return -alias_table(noise.law).first
    laws = [noise.law_of(2**digit) for digit in range(noise.shares.bit_length())]
    return -sum(alias_table(law).first for law in laws)


@lru_cache(maxsize=64)
def alias_table(law: IntegerLaw) -> AliasTable:
    """The table of a law: each column holds as much of the mass as another, of two numbers at most."""
    masses = _half_of_masses(law)
    reach = len(masses) - 1
    columns = 2 ** math.ceil(math.log2(2 * reach + 1))
    whole = 2 ** (32 * _WORDS)
    each = [*masses[:0:-1], *masses, *[0] * (columns - 2 * reach - 1)]
    total = sum(each)
    each = [mass * columns * whole // total for mass in each]
    each[reach] += columns * whole - sum(each)
    chance, other = [whole] * columns, list(range(columns))
    small = [i for i, mass in enumerate(each) if mass < whole]
    large = [i for i, mass in enumerate(each) if mass >= whole]
    while small:
        less, more = small.pop(), large[-1]
        chance[less], other[less] = each[less], more
        each[more] -= whole - each[less]
        if each[more] < whole:
            small.append(large.pop())
    each = [min(c, whole - 1) for c in chance]
    words = [[c >> shift & 0xFFFFFFFF for c in each] for shift in range(32 * _WORDS - 32, -1, -32)]
    return AliasTable(-reach, np.array(words, np.uint32), np.array(other, np.int32))


def _half_of_masses(law: IntegerLaw) -> list[int]:
    """Proportional to the masses of 0, 1, 2 ..., up to where `_LEFT_OUT` remains."""
    if isinstance(law, Skellam):
        return _skellam(law.variance)
    assert isinstance(law, DiscreteGaussians)
    if law.is_nearly_one:
        return _discrete_gaussian(law.variance)
    return _convolved(_discrete_gaussian(law.share_variance), law.shares)


def _discrete_gaussian(variance: float) -> list[int]:
    import mpmath  # type: ignore[import-untyped]

    with mpmath.workdps(_DIGITS):
        reach = math.ceil(math.sqrt(2 * variance * _REACH)) + 2
        scale = mpmath.mpf(10) ** _DIGITS
        spread = 2 * mpmath.mpf(variance)
        return [int(scale * mpmath.exp(-mpmath.mpf(x * x) / spread)) for x in range(reach + 1)]


def _skellam(variance: float) -> list[int]:
    import mpmath

    with mpmath.workdps(_DIGITS):
        v, scale = mpmath.mpf(variance), mpmath.mpf(10) ** _DIGITS
        reach = math.ceil(math.sqrt(2 * variance * _REACH) + _REACH)
        ratio, ratios = mpmath.mpf(0), []
        for x in range(2 * reach + 60, 0, -1):
            ratio = 1 / (2 * x / v + ratio)
            ratios.append(ratio)
        mass, masses = scale, [int(scale)]
        for ratio in ratios[: -reach - 1 : -1]:
            mass *= ratio
            masses.append(int(mass))
    return masses


def _convolved(half: list[int], shares: int) -> list[int]:
    """Of the sum of so many."""
    one = np.array([*half[:0:-1], *half], dtype=object)
    total: Any = None
    power = one
    while shares:
        if shares & 1:
            total = power if total is None else _trimmed(np.convolve(total, power))
        shares >>= 1
        if shares:
            power = _trimmed(np.convolve(power, power))
    return list(total[len(total) // 2 :])


def _trimmed(masses: Any) -> Any:
    """Without tails that do not count, in `_DIGITS` digits."""
    scale = masses.max() // 10**_DIGITS + 1
    masses = masses // scale
    tail, cut = 0, 0
    allowed = int(masses.sum() * _LEFT_OUT) // 256
    while tail + masses[cut] <= allowed:
        tail += masses[cut]
        cut += 1
    return masses[cut : len(masses) - cut]
