"""Draws integers by an exact law: from tables of whole numbers, with random bits alone.

The alias method: A. J. Walker, "An Efficient Method for Generating Discrete Random Variables with General
Distributions", ACM TOMS 1977; M. D. Vose, IEEE TSE 1991.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedpriv.core.types import Key
from fedpriv.pairs.integer_laws import DiscreteGaussians, IntegerLaw, Skellam
from fedpriv.pairs.integer_noise import IntegerNoise

_WORDS = 5  # of 32 bits, of a threshold
_BITS = 320  # of the numbers that tables are made of
_LEFT_OUT = 2.0**-150  # of the mass, in both tails
_REACH = 108  # nats below the largest mass, which is less than that


class AliasTable(NamedTuple):
    """The law of the size of a number: a column is drawn uniformly, then its own size or the other one.

    Attributes:
      reach: the largest size; column i has i.
      chance: u32[5, columns], the chance of the own size in 160 bits, the highest first.
      other: i32[columns], the other size.
    """

    reach: int
    chance: NDArray[np.uint32]
    other: NDArray[np.int32]


def draw(key: Key, law: IntegerLaw, shape: tuple[int, ...]) -> jax.Array:
    """i32[shape], independent numbers of that law, within `DRAWN_APART`, which certificates count in delta.

    A random word's first bits are the column, its last one the sign.
    """
    table = alias_table(law)
    columns = len(table.other)
    keys = jax.random.split(key, 1 + _WORDS)
    word, drawn = (jax.random.bits(k, shape, jnp.uint32) for k in keys[:2])
    column = word >> (32 - columns.bit_length() + 1)
    chance = jnp.asarray(table.chance)
    high = chance[0][column]

    def by_all_bits() -> jax.Array:
        less, tied = drawn < high, drawn == high
        for words, k in zip(chance[1:], keys[2:], strict=True):
            further, limit = jax.random.bits(k, shape, jnp.uint32), words[column]
            less, tied = less | (tied & (further < limit)), tied & (further == limit)
        return less

    own = jax.lax.cond(jnp.any(drawn == high), by_all_bits, lambda: drawn < high)
    size = jnp.where(own, column.astype(jnp.int32), jnp.asarray(table.other)[column])
    return jnp.where(word & 1, -size, size)


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
        return alias_table(noise.law).reach
    laws = [noise.law_of(2**digit) for digit in range(noise.shares.bit_length())]
    return sum(alias_table(law).reach for law in laws)


@lru_cache(maxsize=64)
def alias_table(law: IntegerLaw) -> AliasTable:
    """The table of a law: each column holds as much of the mass as another, of two sizes at most."""
    masses = _half_of_masses(law)
    reach = len(masses) - 1
    columns = max(2, 1 << reach.bit_length())
    whole = 1 << (32 * _WORDS)
    total = 2 * sum(masses) - masses[0]
    each = [2 * mass * columns * whole // total for mass in masses] + [0] * (columns - reach - 1)
    each[0] = columns * whole - sum(each[1:])
    chance, other = [whole] * columns, list(range(columns))
    small = [i for i, mass in enumerate(each) if mass < whole]
    large = [i for i, mass in enumerate(each) if mass >= whole]
    while small:
        less, more = small.pop(), large[-1]
        chance[less], other[less] = each[less], more
        each[more] -= whole - each[less]
        if each[more] < whole:
            small.append(large.pop())
    return AliasTable(reach, _in_words(chance), np.array(other, np.int32))


def _in_words(chances: list[int]) -> NDArray[np.uint32]:
    """u32[5, columns], of chances in 160 bits; a certain one is 1 less."""
    certain = (1 << (32 * _WORDS)) - 1
    written = b"".join(min(chance, certain).to_bytes(4 * _WORDS, "big") for chance in chances)
    return np.ascontiguousarray(np.frombuffer(written, ">u4").reshape(-1, _WORDS).T, np.uint32)


def _half_of_masses(law: IntegerLaw) -> list[int]:
    """Proportional to the masses of 0, 1, 2 ..., up to where `_LEFT_OUT` remains."""
    if isinstance(law, Skellam):
        return _skellam(law.variance)
    assert isinstance(law, DiscreteGaussians)
    if law.is_nearly_one:
        return _discrete_gaussian(law.variance)
    return _convolved(_discrete_gaussian(law.share_variance), law.shares)


def _discrete_gaussian(variance: float) -> list[int]:
    """By ratios of neighbours, each of which is e^(-1 / variance) times the one before.

    Rounded down in `_BITS` bits, the ratio at x is off by at most 2x units in the last place, and the mass by x^2 and a
    few; all together that is below 2^-200 for deviations below 2^20.
    """
    import mpmath  # type: ignore[import-untyped]

    with mpmath.workprec(_BITS + 32):
        root = mpmath.exp(-1 / (2 * mpmath.mpf(variance)))
        ratio, factor = (int(mpmath.ldexp(number, _BITS)) for number in (root, root**2))
    masses = [1 << _BITS]
    for _ in range(math.ceil(math.sqrt(2 * variance * _REACH)) + 2):
        masses.append(masses[-1] * ratio >> _BITS)
        ratio = ratio * factor >> _BITS
    return masses


def _skellam(variance: float) -> list[int]:
    """By I_(x-1) = I_(x+1) + 2x / v I_x downwards, which is stable, from far beyond where masses count.

    There I_(x+1) is taken as 0, which adds to each mass less than the one of the start, below 2^-200 of the whole
    (J. C. P. Miller's algorithm).
    """
    reach = math.ceil(math.sqrt(2 * variance * _REACH) + _REACH)
    numerator, denominator = variance.as_integer_ratio()
    step = (2 * denominator << _BITS) // numerator
    masses, above, mass = [], 0, 1 << _BITS
    for x in range(6 * reach // 5, -1, -1):
        if x <= reach:
            masses.append(mass)
        above, mass = mass, above + (x * step * mass >> _BITS)
    return masses[::-1]


def _convolved(half: list[int], shares: int) -> list[int]:
    """Of the sum of so many."""
    total = power = [*half[:0:-1], *half]
    for digit in bin(shares)[3:]:
        total = _trimmed(_product(total, total), shares)
        if digit == "1":
            total = _trimmed(_product(total, power), shares)
    return total[len(total) // 2 :]


def _product(one: list[int], other: list[int]) -> list[int]:
    """The convolution of two lists, as the product of two numbers of which they are the digits (L. Kronecker)."""
    largest = max(one) * max(other) * min(len(one), len(other))
    size = largest.bit_length() // 8 + 1
    a, b = (
        int.from_bytes(b"".join(digit.to_bytes(size, "little") for digit in each), "little")
        for each in (one, other)
    )
    count = len(one) + len(other) - 1
    written = (a * b).to_bytes(count * size, "little")
    return [int.from_bytes(written[i : i + size], "little") for i in range(0, count * size, size)]


def _trimmed(masses: list[int], times: int) -> list[int]:
    """Without tails, in `_BITS` bits: a sum of so many in which each was cut lacks `_LEFT_OUT` / 64 at most."""
    beyond = max(0, max(masses).bit_length() - _BITS)
    masses = [mass >> beyond for mass in masses]
    tail, cut = 0, 0
    allowed = int(sum(masses) * _LEFT_OUT) // (256 * times)
    while tail + masses[cut] <= allowed:
        tail += masses[cut]
        cut += 1
    return masses[cut : len(masses) - cut]
