"""What a pair is made of: the check of one that was read, and how many draws it has."""

from __future__ import annotations

from typing import Any

from fedpriv.core.complaints import require
from fedpriv.pairs.divergences import check_subset
from fedpriv.pairs.end_of_run import Best, Slack
from fedpriv.proof.pairs import All, Leaf, Moved, Pair, Times, Told, fold


def check_parts(pair: Any) -> None:
    """Raises ValueError: a part of the pair is none, or stands where it may not."""
    inside = pair.of if isinstance(pair, Slack) else pair
    for part in inside.of if isinstance(inside, Best) else (inside,):
        _check_pair(part)
        draws = draws_of(part)
        require(draws <= 2**53, "pair", draws, "give one of at most 2^53 draws")


def draws_of(pair: Pair) -> int:
    """How many there are at most."""

    def leaf(draw: Leaf) -> int:
        return 1

    def most(cases: list[tuple[float, int]]) -> int:
        return max(n for _, n in cases)

    def repeated(of: int, n: int) -> int:
        return of * n

    def composed(each: list[int]) -> int:
        return sum(each)

    return fold(pair, leaf, most, repeated, composed)


def _check_pair(pair: Any) -> None:
    require(isinstance(pair, Pair), "pair", pair, "give one of fedpriv.pairs")
    if isinstance(pair, Moved):
        check_subset(pair)
    if isinstance(pair, Told):
        known = pair.made_by is None or (
            isinstance(pair.made_by, tuple)
            and len(pair.made_by) == 3
            and all(isinstance(x, int | float) for x in pair.made_by)
        )
        require(known, "made_by", pair.made_by, "give (N, rate, capacity), or leave it out")
        for _, case in pair.cases:
            _check_pair(case)
    if isinstance(pair, Times):
        _check_pair(pair.of)
    if isinstance(pair, All):
        for each in pair.of:
            _check_pair(each)
