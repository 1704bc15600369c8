"""What may happen to a unit in one draw, and the pairs of laws that it leads to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from fedpriv.core.complaints import require
from fedpriv.proof.noise import Noise
from fedpriv.proof.pairs import NOTHING, SEEN, Pair, moved

Neighbour: TypeAlias = Literal["zeroed", "removed", "emptied", "replaced"]
"""What a neighbouring data set is: a unit contributes zeros, and whoever looks may know how often it is drawn; it is
missing; its place is empty; another unit stands in its place."""
Adjacency: TypeAlias = Literal["zero_out", "add_or_remove", "replace_one"]
"""The name of the relation between neighbours, as it is printed."""
ADJACENCIES: dict[Neighbour, Adjacency] = {
    "zeroed": "zero_out",
    "removed": "add_or_remove",
    "emptied": "add_or_remove",
    "replaced": "replace_one",
}
"""In the order in which certificates prefer them."""

_ROUNDING = 1e-9  # of probabilities
_NEVER = 1e-45  # rarer draws count as seen


class Why(str):
    """A line that says why nothing is proved."""

    __slots__ = ()


class Pairs(NamedTuple):
    """For each kind of neighbour the pair that dominates theirs, or a line that says why there is none."""

    zeroed: Pair | Why
    removed: Pair | Why
    emptied: Pair | Why
    replaced: Pair | Why

    def of(self, neighbour: Neighbour) -> Pair | Why:
        """For such neighbours."""
        found: Pair | Why = getattr(self, neighbour)
        return found

    def map(self, change: Callable[[Pair], Pair]) -> Pairs:
        """Each pair changed."""
        return Pairs(*(each if isinstance(each, Why) else change(each) for each in self))


@dataclass(frozen=True)
class Noisy:
    """Noise, and how far a unit that is zeroed moves the sum when it is drawn once.

    Attributes:
        noise: real noise of that name; noise from outside comes with a subclass of this.
        far: in deviations of the noise (Laplace: in its scale, l1).
    """

    noise: str | Noise
    far: float = 1.0
    words = "the noise is real-valued; a simulator's seeded float32 noise is not"
    no_part = "Laplace noise with missing shares is no longer Laplace"

    @property
    def kind(self) -> str:
        """Of noise."""
        return self.noise if isinstance(self.noise, str) else self.noise.kind

    @property
    def multiplier(self) -> float:
        """Of a unit that is zeroed."""
        return 1 / self.far if self.far else math.inf

    def moved(self, by: float) -> Noisy:
        """Of a unit that moves the sum so many times as far."""
        return replace(self, far=self.far * by)

    def left(self, part: float) -> Noisy | None:
        """Of which this part of the variance is there; None: nothing hides that is known.

        A part of Gaussian shares is Gaussian; a part of Laplace noise is not Laplace.
        """
        if part == 1:
            return self
        return replace(self, far=self.far / math.sqrt(part)) if self.noise == "gaussian" else None

    def share(self, members: int) -> Noisy | None:
        """Of one of so many members alone; None: it is of another kind."""
        return self.moved(math.sqrt(members)) if self.noise == "gaussian" else None

    @property
    def bare(self) -> Noisy:
        """Without noise."""
        return Noisy(self.kind, math.inf)

    @property
    def least(self) -> float:
        """The multiplier below which floats are no bound: dp-accounting fails where e^(1 / b) overflows."""
        return 5e-3 if self.noise == "laplace" else 1e-4


@dataclass(frozen=True)
class Case:
    """A case that does not depend on whether the unit is there; given it, the noise of the sum is moved, or not.

    Attributes:
        chance: probability of the case.
        law: (n, probability that n of the units are drawn), n above 0 and rising, given the case.
        far: how far each of them then moves the sum, in its clip norms (of a unit that is replaced, in twice those);
            infinity where it is seen.

    Raises:
        ValueError: numbers that cannot be.
    """

    chance: float
    law: tuple[tuple[float, float], ...]
    far: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.chance <= 1 + _ROUNDING, "chance", self.chance, "give one in [0, 1]")
        rises = all(a < b for a, b in pairwise([0.0, *(n for n, _ in self.law)]))
        require(rises, "law", self.law, "give numbers of units above 0 that rise")
        likely = all(p >= 0 for _, p in self.law) and self.rate <= 1 + _ROUNDING
        require(likely, "law", self.law, "give probabilities, of 1 at most altogether")
        require(self.far > 0, "far", self.far, "give a number above 0")

    @property
    def rate(self) -> float:
        """Probability that any of the units is drawn."""
        return math.fsum(p for _, p in self.law)

    def shown(self, noisy: Noisy) -> list[tuple[float, Pair]]:
        """(chance, pair) of each number of units, of which the view is told: n of them move the sum n times as far."""
        found: list[tuple[float, Pair]] = [(self.chance * max(0.0, 1 - self.rate), NOTHING)]
        for n, p in self.law:
            seen = math.isinf(self.far) or 0 < p * self.chance < _NEVER
            far = n * self.far * noisy.far
            found.append((self.chance * p, SEEN if seen else moved(noisy.noise, [(far, 1.0)])))
        return found

    def secret(self, noisy: Noisy, replaced: bool, subset: float | None = None) -> Pair:
        """Of a view that is told the case, and not whether the unit is drawn; `subset` as of `Moved`."""
        if self.rate == 0:
            return NOTHING
        ((n, p),) = self.law  # numbers of several units are of a case from outside
        far = n * self.far * noisy.far
        if p >= 1 and math.isfinite(far):
            return moved(noisy.noise, [(far, p)])
        return moved(noisy.noise, [(far, p)], replaced, subset)


Cases: TypeAlias = tuple[Case, ...]
