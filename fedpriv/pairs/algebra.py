"""What a view sees of a unit, as one value: a pair of laws that no two neighbours exceed, in plain data.

A pair (P, Q) *dominates* that of two neighbouring runs where no hockey-stick divergence of theirs is above its own, in
either direction. Composition keeps the order, also where what is released next depends on all that was seen before
(Zhu, Dong and Wang 2022, arXiv:2106.08567), and so does mixing, where the view is told which case it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from fedpriv.core.arguments import require
from fedpriv.pairs.integer_noise import IntegerNoise

ROUNDING = 1e-9
"""How far chances may be from adding up to 1."""
_HUGE = 10**300  # numbers of JSON may be larger than floats
_NEAREST, _FARTHEST = 1e-9, 1e9
_SMALL = 0.2  # largest separation of a piece: its losses fit the finest grid

Noise: TypeAlias = str | IntegerNoise
"""Real noise of a name in `curves.CURVES`, or noise of integers, of which Rényi divergences alone are known."""
REAL = ("gaussian", "laplace")

_COUNT = "a whole number from 1 to 2^53"


def _number(value: Any) -> float:
    """Raises ValueError: it is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    require(known and (value == math.inf or abs(value) <= _HUGE), "pair", value, "give a number")
    return value


def _check_noise(noise: Any) -> None:
    known = isinstance(noise, IntegerNoise) or noise in REAL
    require(known, "noise", noise, f"give one of {REAL}, or of integers")


def _check_range(name: str, far: Iterable[float]) -> None:
    """Where curves and their squares are computed well; infinity aside."""
    fine = all(_NEAREST <= d <= _FARTHEST or d == math.inf for d in far)
    require(fine, name, far, f"give distances from {_NEAREST:g} to {_FARTHEST:g}, or infinity")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**53


@dataclass(frozen=True)
class Moved:
    """Noise that is moved, or not, which is secret: P = (1 - sum_j p_j) N + sum_j p_j (N + d_j) against Q = N.

    Attributes:
        noise: N.
        law: (d_j, p_j), d rising: how far, in standard deviations of the noise (Laplace: in its scale, l1; integers: in
            moves of one unit); infinity, alone, where a unit is seen that is there.
        replaced: with either neighbour a unit is there, d apart: dominated by the curve of `curves.replace_delta`.
        in_place: if replaced: whether all else is the same with either unit, whether it is drawn or not: P = (1 - sum_j
            p_j) N + sum_j p_j (N + d_j / 2) against Q = (1 - sum_j p_j) N + sum_j p_j (N - d_j / 2).
        subset: if replaced: the rate at which units are in a uniform subset of one size, before some of it vanish, of
            which Rényi divergences are known; None: the draw is none.

    Raises:
        ValueError: a noise that is not known, or a law that is none.
    """

    noise: Noise
    law: tuple[tuple[float, float], ...]
    replaced: bool = False
    subset: float | None = None
    in_place: bool = False

    def __post_init__(self) -> None:
        _check_noise(self.noise)
        far = [_number(d) for d, _ in self.law]
        rises = all(a < b for a, b in pairwise([0.0, *far])) and len(far) > 0
        require(rises, "law", self.law, "give distances above 0 that rise")
        require(len(far) == 1 or far[-1] < math.inf, "law", self.law, "give infinity alone")
        _check_range("law", far)
        chances = [_number(p) for _, p in self.law]
        likely = min(chances) > 0 and math.fsum(chances) <= 1 + ROUNDING
        require(likely, "law", self.law, "give chances above 0, of 1 at most altogether")
        require(isinstance(self.replaced, bool), "replaced", self.replaced, "give true or false")
        placed = self.in_place is False or (self.in_place is True and self.replaced)
        require(placed, "in_place", self.in_place, "give true of a unit that is replaced alone")
        least = math.fsum(chances) * (1 - ROUNDING)
        rate = self.subset is None or (self.replaced and least <= _number(self.subset) <= 1)
        remedy = (
            "give the rate of being drawn, no less than that of the law, of a unit that is replaced"
        )
        require(rate, "subset", self.subset, remedy)

    @property
    def is_sure(self) -> bool:
        """Whether the noise is moved, and by how much is known."""
        return len(self.law) == 1 and self.law[0][1] >= 1


@dataclass(frozen=True)
class Told:
    """One of several cases, of which the view is told which; its law is the same for both neighbours.

    Attributes:
        cases: (chance, pair); the chances add up to 1, but for rounding, and count by their share of the sum.
        made_by: (N, rate, capacity) of a cut Poisson draw, which dp-accounting has an event for; of no effect here.
    """

    cases: tuple[tuple[float, Pair], ...]
    made_by: tuple[int, float, int] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        chances = [_number(chance) for chance, _ in self.cases]
        likely = min(chances, default=0) > 0 and abs(math.fsum(chances) - 1) <= ROUNDING
        require(likely, "cases", chances, "give chances above 0 that add up to 1")
        known = self.made_by is None or len(list(map(_number, self.made_by))) == 3
        require(known, "made_by", self.made_by, "give (N, rate, capacity), or leave it out")


@dataclass(frozen=True)
class Block:
    """Rounds, in one of which noise is moved: any with the same chance, and which is secret; see `blocks`.

    Attributes:
        noise: as `Moved`.
        rounds: of a block.
        cases: (chance, far, in how many of the rounds the unit would be seen), of which the view is told which.
    """

    noise: Noise
    rounds: int
    cases: tuple[tuple[float, float, int], ...]

    def __post_init__(self) -> None:
        _check_noise(self.noise)
        require(_is_count(self.rounds), "rounds", self.rounds, f"give {_COUNT}")
        columns = zip(*self.cases, strict=True) if self.cases else ((), (), ())
        chances, far, seen = (list(map(_number, column)) for column in columns)
        likely = min(chances, default=0) > 0 and abs(math.fsum(chances) - 1) <= ROUNDING
        require(likely, "cases", chances, "give chances above 0 that add up to 1")
        _check_range("cases", far)
        require(max(far) < math.inf, "cases", far, "give finite distances")
        some = all(rounds in range(self.rounds + 1) for rounds in seen)
        require(some, "cases", seen, "give numbers of rounds of the block")


@dataclass(frozen=True)
class Times:
    """So many of one pair, adaptively composed."""

    of: Pair
    n: int

    def __post_init__(self) -> None:
        require(_is_count(self.n), "n", self.n, f"give {_COUNT}")


@dataclass(frozen=True)
class All:
    """Several, adaptively composed; none of them: nothing is seen."""

    of: tuple[Pair, ...]

    def __post_init__(self) -> None:
        require(isinstance(self.of, tuple), "of", self.of, "give several pairs")


Pair: TypeAlias = Moved | Told | Block | Times | All
NOTHING = All(())
"""Of which nothing is seen."""
SEEN = Moved("gaussian", ((math.inf, 1.0),))
"""Of which all is seen."""


@dataclass(frozen=True)
class Best:
    """The best of a geometric number of runs, that mean on average, each by one of these pairs, drawn at random."""

    of: tuple[Pair, ...]
    mean: float

    def __post_init__(self) -> None:
        several = isinstance(self.of, tuple) and len(self.of) > 0
        require(several, "of", self.of, "give what a run is seen of, of each setting")
        require(
            1 <= _number(self.mean) < math.inf, "mean", self.mean, "give a finite mean from 1 on"
        )


@dataclass(frozen=True)
class Slack:
    """What is seen is within e^-apart and e^apart, and a total variation of `off`, of what this pair dominates."""

    of: Pair | Best
    apart: float
    off: float

    def __post_init__(self) -> None:
        require(0 <= _number(self.apart) <= 1, "apart", self.apart, "give nats from 0 to 1")
        require(0 <= _number(self.off) <= 1, "off", self.off, "give a number in [0, 1]")


AnyPair: TypeAlias = Pair | Best | Slack
"""A pair, or what is left of one that the end of a run shows."""


def check_parts(pair: Any) -> None:
    """Raises ValueError: a part of the pair is none, or stands where it may not."""
    inside = pair.of if isinstance(pair, Slack) else pair
    for part in inside.of if isinstance(inside, Best) else (inside,):
        _check_pair(part)
        draws = draws_of(part)
        require(draws <= 2**53, "pair", draws, "give one of at most 2^53 draws")


def draws_of(pair: Pair) -> int:
    """How many there are at most."""

    def leaf(draw: Pair) -> int:
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
    if isinstance(pair, Told):
        for _, case in pair.cases:
            _check_pair(case)
    if isinstance(pair, Times):
        _check_pair(pair.of)
    if isinstance(pair, All):
        for each in pair.of:
            _check_pair(each)


def moved(
    noise: Noise,
    law: Iterable[tuple[float, float]],
    replaced: bool = False,
    subset: float | None = None,
    in_place: bool = False,
) -> Moved:
    """Noise that is moved; what is beyond the range of distances counts as seen, or as moved a little."""
    within: dict[float, float] = {}
    for d, p in law:
        near = max(d, _NEAREST)
        within[near] = within.get(near, 0.0) + p
    if any(d > _FARTHEST for d in within):
        within = {math.inf: min(1.0, math.fsum(within.values()))}
    return Moved(noise, tuple(within.items()), replaced, subset, in_place)


def told(
    cases: Iterable[tuple[float, Pair]], made_by: tuple[int, float, int] | None = None
) -> Pair:
    """Cases that may be; a single one is what it is a case of."""
    merged: dict[Pair, float] = {}
    for chance, pair in cases:
        if chance > 0:
            merged[pair] = merged.get(pair, 0.0) + chance
    if len(merged) == 1:
        return next(iter(merged))
    return Told(tuple((chance, pair) for pair, chance in merged.items()), made_by)


def times(pair: Pair, n: int) -> Pair:
    """So many of it; one of it is it, and of nothing nothing."""
    if isinstance(pair, Times):
        return times(pair.of, pair.n * n)
    return NOTHING if pair == NOTHING or n == 0 else pair if n == 1 else Times(pair, n)


def together(pairs: Iterable[Pair]) -> Pair:
    """Several, with one name for what is the same: equal ones are counted.

    Beside others, sure moves of Gaussian noise become a few equal ones of the same separation altogether, sqrt(sum_k
    d_k^2) (Dong, Roth and Su 2022, Corollary 3.3), whose losses a grid holds better.
    """
    counts: Counter[Pair] = Counter()
    for pair in pairs:
        for each in pair.of if isinstance(pair, All) else (pair,):
            once, n = (each.of, each.n) if isinstance(each, Times) else (each, 1)
            counts[once] += n
    sure = {pair: n for pair, n in counts.items() if _is_sure_gaussian(pair)}
    if sure and len(sure) < len(counts):
        one = _in_pieces(sure)
        rest = (times(pair, n) for pair, n in counts.items() if pair not in sure)
        return All((one, *rest))
    each_one = tuple(times(pair, n) for pair, n in counts.items())
    return each_one[0] if len(each_one) == 1 else All(each_one)


def _is_sure_gaussian(pair: Pair) -> bool:
    return (
        isinstance(pair, Moved)
        and pair.noise == "gaussian"
        and pair.is_sure
        and math.isfinite(pair.law[0][0])
    )


def _in_pieces(sure: dict[Pair, int]) -> Pair:
    squared = math.fsum(n * pair.law[0][0] ** 2 for pair, n in sure.items())  # type: ignore[union-attr]
    pieces = min(sum(sure.values()), math.ceil(squared / _SMALL**2))
    far = math.sqrt(squared / pieces) * (1 + 1e-15)  # rounding never adds noise
    return times(moved("gaussian", [(far, 1.0)]), pieces)


Value = TypeVar("Value")


def fold(
    pair: Any,
    leaf: Callable[[Any], Value],
    mixed: Callable[[list[tuple[float, Value]]], Value],
    repeated: Callable[[Value, int], Value],
    composed: Callable[[list[Value]], Value],
) -> Value:
    """A value of a pair from those of its parts.

    Args:
        leaf: of what is neither `Told`, `Times` nor `All`.
        mixed: of `Told`, from (chance, value); the chances add up to 1.
        repeated: of `Times`.
        composed: of `All`.
    """
    # A function inside would wait for the collection of cycles, with the arrays that these functions hold.
    rules = leaf, mixed, repeated, composed
    if isinstance(pair, Told):
        whole = math.fsum(chance for chance, _ in pair.cases)
        return mixed([(chance / whole, fold(case, *rules)) for chance, case in pair.cases])
    if isinstance(pair, Times):
        return repeated(fold(pair.of, *rules), pair.n)
    if isinstance(pair, All):
        return composed([fold(each, *rules) for each in pair.of])
    return leaf(pair)
