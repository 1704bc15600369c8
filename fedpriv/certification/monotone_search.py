"""The one search of all calibrations: how far a number may go, on which a cost depends monotonically, for a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from fedpriv.mechanisms.integers import WrapsError

_FAR = 99.0  # a logarithm that stands for all beyond it


class Range(NamedTuple):
    """What may vary: a positive number; which end is the dearest says whether the cost rises or falls with it.

    Attributes:
      dearest, cheapest: the ends, beyond which nothing is tried.
      begin: (dear, cheap), between which the answer is looked for first.
      factor: how far the search goes on where it is not there, and again.
      whole: whether the number is whole, such as of rounds.
    """

    dearest: float
    cheapest: float
    begin: tuple[float, float]
    factor: float
    whole: bool = False

    def towards(self, end: float, number: float) -> float:
        """The next number on the way to an end."""
        rises = end > number
        there = min(number * self.factor, end) if rises else max(number / self.factor, end)
        return math.floor(there) if self.whole else there


class UnreachableError(ValueError):
    """Nothing that may vary has a cost as small as is wanted."""


def search(
    cost: Callable[[float], float],
    target: float,
    numbers: Range,
    refusal: Callable[[float], str],
    *,
    tolerance: float = 0.0,
    below: float = 0.0,
) -> float:
    """The dearest number that costs at most `target`; the dearest of all, where that does.

    The answer errs on the safe side. Where `cost` raises WrapsError, there is so much noise that sums of integers wrap:
    that is more than enough.

    Args:
      cost: of a number; infinite is too much. What it gives is remembered.
      numbers: that are tried.
      refusal: the cheapest number -> what to say where even this costs too much.
      tolerance: of a real number, relative.
      below: aims so far below the target, relative, and takes what still costs at most the target: where the cost, and
        not the number, is to be met closely.

    Raises:
      UnreachableError: even the cheapest number costs too much.
      WrapsError: sums wrap at the answer.
    """
    asked = cache(cost)

    @cache
    def over(number: float) -> float:
        """Above 0 where it costs too much: the logarithm of its cost over the target."""
        try:
            spent = asked(number)
        except WrapsError:
            return -_FAR
        return min(max(math.log(max(spent, 1e-300) / target), -_FAR), _FAR)

    dear, cheap = numbers.begin
    while over(cheap) + below > 0:
        if cheap == numbers.cheapest:
            raise UnreachableError(refusal(cheap))
        dear, cheap = cheap, numbers.towards(numbers.cheapest, cheap)
    while over(dear) + below <= 0 and dear != numbers.dearest:
        dear, cheap = numbers.towards(numbers.dearest, dear), dear
    if over(dear) + below <= 0:
        found = dear
    elif numbers.whole:
        found = _last_whole(lambda number: over(number) <= 0, int(dear), int(cheap))
    else:
        found = _root(lambda number: over(number) + below, dear, cheap, tolerance / 4)
        while over(found) > 0:
            found *= math.exp(math.copysign(tolerance / 4, cheap - dear))
    asked(found)  # raises WrapsError where less noise does not do
    return found


def _last_whole(enough: Callable[[int], bool], dear: int, cheap: int) -> int:
    """The number nearest to `dear`, which is not enough, that is."""
    while abs(dear - cheap) > 1:
        middle = (dear + cheap) // 2
        dear, cheap = (dear, middle) if enough(middle) else (middle, cheap)
    return cheap


def _root(over: Callable[[float], float], dear: float, cheap: float, within: float) -> float:
    """Where `over` is 0, which has one sign at each of the ends; `within` is relative."""
    from scipy.optimize import brentq

    ends = {math.log(number): number for number in (dear, cheap)}  # known, to the last digit

    def number(log: float) -> float:
        return ends.get(log, math.exp(log))

    return number(float(brentq(lambda log: over(number(log)), min(ends), max(ends), xtol=within)))
