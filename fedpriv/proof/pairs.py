"""What a view sees of a unit, as one value: a pair of laws that no two neighbours exceed, in plain data.

A pair (P, Q) *dominates* that of two neighbouring runs where no hockey-stick divergence of theirs is above its own, in
either direction. Composition keeps the order, also where what is released next depends on all that was seen before
(Zhu, Dong and Wang 2022, arXiv:2106.08567), and so does mixing, where the view is told which case it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

from fedpriv.core.complaints import require
from fedpriv.proof import curves
from fedpriv.proof.cells import Losses, losses_of_curves
from fedpriv.proof.noise import Floats, Noise, law_of

ROUNDING = 1e-9
"""How far chances may be from adding up to 1."""
NEAREST, FARTHEST = 1e-9, 1e9
"""Of distances: within, curves and their squares are computed well."""
DEVIATIONS = 14.0
"""Of Gaussian noise, beyond which a loss counts as infinite: less than 1e-44."""


def check_range(name: str, far: Iterable[float]) -> None:
    """Raises ValueError: distances that are neither in the range nor infinite."""
    fine = all(NEAREST <= d <= FARTHEST or d == math.inf for d in far)
    require(fine, name, far, f"give distances from {NEAREST:g} to {FARTHEST:g}, or infinity")


def check_count(name: str, value: Any) -> None:
    """Raises ValueError: it is none."""
    known = isinstance(value, int) and 1 <= value <= 2**53
    require(known, name, value, "give a whole number from 1 to 2^53")


def check_chances(chances: list[float]) -> None:
    """Raises ValueError: they are none of cases of which one happens."""
    likely = min(chances, default=0) > 0 and abs(math.fsum(chances) - 1) <= ROUNDING
    require(likely, "cases", chances, "give chances above 0 that add up to 1")


class Leaf(ABC):
    """A pair (P, Q) of which nothing is composed: the door for pairs of another kind than `Moved`.

    Values are equal only where their laws are the same: what is known of one is kept for all that are equal to it.
    """

    @property
    @abstractmethod
    def is_symmetric(self) -> bool:
        """Whether losses of P against Q stand for both directions, in a composition, too."""

    @abstractmethod
    def reach(self, deviations: float) -> float:
        """The largest finite loss, nats; of Gaussian noise so many standard deviations away."""

    @abstractmethod
    def losses(self, interval: float, beyond: float) -> tuple[Losses, Losses]:
        """Losses of (P against Q, Q against P), each of a pair that dominates this one: see `losses.losses_of`."""


@dataclass(frozen=True)
class Moved(Leaf):
    """Noise that is moved, or not, which is secret: P = (1 - p) N + p (N + d) against Q = N.

    Attributes:
        noise: N: "gaussian", "laplace", or another law.
        law: ((d, p),): how far, in standard deviations of the noise (Laplace: in its scale, l1; integers: in moves of
            one unit); infinity where a unit is seen that is there.
        replaced: with either neighbour a unit is there, d apart: dominated by the curve of `curves.replace_delta`.
        subset: if replaced: the rate at which units are in a uniform subset of one size, before some of it vanish, of
            which Rényi divergences are known; None: the draw is none. Of no effect here.

    Raises:
        ValueError: a noise that is not known, or a law that is none.
    """

    noise: str | Noise
    law: tuple[tuple[float, float], ...]
    replaced: bool = False
    subset: float | None = None

    def __post_init__(self) -> None:
        law_of(self.noise)
        self.check_law()

    def check_law(self) -> None:
        """Raises ValueError: it is none."""
        require(len(self.law) == 1, "law", self.law, "give one distance, and its chance")
        check_range("law", [self.far])
        likely = 0 < self.rate <= 1 + ROUNDING
        require(likely, "law", self.law, "give chances above 0, of 1 at most altogether")

    @property
    def far(self) -> float:
        """The distance."""
        return self.law[0][0]

    @property
    def rate(self) -> float:
        """Its chance."""
        return self.law[0][1]

    @property
    def is_sure(self) -> bool:
        """Whether the noise is moved, and by how much is known."""
        return self.rate >= 1

    @property
    def is_symmetric(self) -> bool:
        """Noise is moved for sure, or a unit is replaced."""
        return self.is_sure or self.replaced

    def curve(self, epsilon: Floats, with_it: bool) -> Floats:
        """delta(epsilon >= 0), f64[n], with the unit against without it, or the other way."""
        if math.isinf(self.far):
            without_it = not (with_it or self.replaced)
            return curves.seen_delta(epsilon, min(self.rate, 1.0), without_it)
        if self.is_sure:
            return law_of(self.noise).curve(epsilon, self.far)
        secret = curves.remove_delta if with_it else curves.add_delta
        secret = curves.replace_delta if self.replaced else secret
        return secret(epsilon, 1 / self.far, self.rate, self.noise)

    def reach(self, deviations: float) -> float:
        """See `Leaf`."""
        far = self.law[-1][0]
        return law_of(self.noise).largest_loss(far if math.isfinite(far) else 0.0, deviations)

    def losses(self, interval: float, beyond: float) -> tuple[Losses, Losses]:
        """Of its curve."""
        there, back = (partial(self.curve, with_it=way) for way in (True, self.is_symmetric))
        return losses_of_curves(there, back, self.reach(DEVIATIONS), interval, beyond)


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
        check_chances([chance for chance, _ in self.cases])


@dataclass(frozen=True)
class Times:
    """So many of one pair, adaptively composed."""

    of: Pair
    n: int

    def __post_init__(self) -> None:
        check_count("n", self.n)


@dataclass(frozen=True)
class All:
    """Several, adaptively composed; none of them: nothing is seen."""

    of: tuple[Pair, ...]

    def __post_init__(self) -> None:
        require(isinstance(self.of, tuple), "of", self.of, "give several pairs")


Pair: TypeAlias = Leaf | Told | Times | All
NOTHING = All(())
"""Of which nothing is seen."""
SEEN = Moved("gaussian", ((math.inf, 1.0),))
"""Of which all is seen."""


class Rest(ABC):
    """What the end of a run shows of pairs, which is less than all of one, or more: the door for other bounds.

    Values are equal only where their bounds are the same.
    """

    @abstractmethod
    def deltas(self, epsilon: Floats, witness: Any) -> Floats:
        """Upper bounds, f64[n], of delta at epsilons f64[n] from 0 on, for any witness; see `verify.deltas`."""


AnyPair: TypeAlias = Pair | Rest
"""A pair, or what the end of a run shows of one."""


def moved(
    noise: str | Noise,
    law: Iterable[tuple[float, float]],
    replaced: bool = False,
    subset: float | None = None,
) -> Moved:
    """Noise that is moved; what is beyond the range of distances counts as seen, or as moved a little."""
    ((far, rate),) = law
    if far > FARTHEST:
        far, rate = math.inf, min(1.0, rate)
    return Moved(noise, ((max(far, NEAREST), rate),), replaced, subset)


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
    """Several, with one name for what is the same: equal ones are counted."""
    counts: Counter[Pair] = Counter()
    for pair in pairs:
        for each in pair.of if isinstance(pair, All) else (pair,):
            once, n = (each.of, each.n) if isinstance(each, Times) else (each, 1)
            counts[once] += n
    each_one = tuple(times(pair, n) for pair, n in counts.items())
    return each_one[0] if len(each_one) == 1 else All(each_one)


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


def leaves_of(pair: Any) -> list[Any]:
    """What is neither `Told`, `Times` nor `All`, as often as it stands there."""
    found: list[Any] = []
    rest = (lambda *each: None,) * 3
    fold(pair, found.append, *rest)
    return found
