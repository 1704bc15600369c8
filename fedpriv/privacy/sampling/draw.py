"""How one round's cohort is drawn: facts for the engine, and the cases from which certificates are made."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fedpriv.core.arguments import CountOrZero, LargeCount, require

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


class Why(str):
    """A line that says why nothing is proved."""

    __slots__ = ()


NOT_SEVERAL = Why(
    "how many of a person's units it draws at once is not known; draw by fp.poisson, fp.fixed_size or fp.everyone, or "
    "keep one of each person (per_person=1)"
)
NOT_REMEMBERED = Why("units remember when they were drawn, of which nothing is proved")


class Who(NamedTuple):
    """Of whom cases are.

    Attributes:
        units: how many units are one person's; neighbours differ in all of them.
        remembers: whether units remember when they were drawn, and may show it later.
        stays: whether it is public that something stands in the unit's place, which another may take.
        lost: whether members who vanish take their shares of the noise along; else it is whole.
    """

    units: int = 1
    remembers: bool = False
    stays: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Case:
    """A case that does not depend on whether the unit is there; given it, the noise of the sum is moved, or not.

    Attributes:
        chance: probability of the case.
        law: (n, probability that n of the units are drawn), n above 0 and rising, given the case.
        far: how far each of them then moves the sum, in its clip norms (of a unit that is replaced, in twice those);
            infinity where it is seen.
        left: the part of the noise's variance that is there.
        in_place: of a unit that is replaced: whether all else is the same with either, whether it is drawn or not.

    Raises:
        ValueError: numbers that cannot be.
    """

    chance: float
    law: tuple[tuple[float, float], ...]
    far: float = 1.0
    left: float = 1.0
    in_place: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.chance <= 1 + _ROUNDING, "chance", self.chance, "give one in [0, 1]")
        rises = all(a < b for a, b in pairwise([0.0, *(n for n, _ in self.law)]))
        require(rises, "law", self.law, "give numbers of units above 0 that rise")
        likely = all(p >= 0 for _, p in self.law) and self.rate <= 1 + _ROUNDING
        require(likely, "law", self.law, "give probabilities, of 1 at most altogether")
        require(self.far > 0, "far", self.far, "give a number above 0")
        require(0 < self.left <= 1, "left", self.left, "give a number in (0, 1]")

    @property
    def rate(self) -> float:
        """Probability that any of the units is drawn."""
        return math.fsum(p for _, p in self.law)


Cases: TypeAlias = tuple[Case, ...]


class Turns(NamedTuple):
    """Which rounds of a run may be a client's, by their numbers.

    Attributes:
        apart: fewest rounds from one of a client to the next.
        most: most rounds of a client; None: as many as fit.
        block: of how many rounds in a row one is a client's, by one draw for all of them; None: each has its own draw.
        bands: most bands of correlated noise under which each turn is a release, amplified by its draw; None: none is.
        words: what the rounds of a run are, of their number and that of a client's.
    """

    apart: int
    words: str
    most: int | None = None
    block: int | None = None
    bands: int | None = None

    @property
    def window(self) -> int:
        """Of so many rounds in a row one is a client's at most."""
        return self.block or self.apart

    def of(self, rounds: CountOrZero) -> int:
        """How many of so many rounds are a client's, at most; or how many blocks they have."""
        fit = -(-rounds // self.window)
        return fit if self.most is None else min(fit, self.most)

    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a client's."""
        return self.words.format(turns=self.of(rounds), rounds=rounds)


class Accounting(ABC):
    """What a sampler says of its draws, whether one is as the other (`Sampling`) or the round's number decides.

    What is not said is taken for what costs most. `most` is how many units one draw can hold.

    Attributes:
        population: number of units.
        full: whether every draw holds `most`, before some may vanish.
        turns: which rounds may be a client's; None: any.
        persons: of which assignment of clients to persons the draws are; "": of any.
        by_hand: what to use instead, where draws by somebody's own function cannot be measured against this.
    """

    population: LargeCount
    if TYPE_CHECKING:

        @property
        def most(self) -> int:
            """Of units that one draw can hold."""
            ...

    full: bool = False
    turns: Turns | None = None
    persons: str = ""
    by_hand: str = ""
    group_names: tuple[str, ...] = ()
    """Of public groups that are drawn, or count, each in its own way; (): all units are alike."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Of each client its public class, of which different ones are drawn independently; (): all are alike."""
        return ()

    def of_group(self, name: str) -> tuple[Accounting, float]:
        """(How a unit of this group is drawn, times how far it moves the sum)."""
        return self, 1.0

    @property
    def counts_equally(self) -> bool:
        """Whether all messages count 1, clipped to the same norm."""
        return all(self.of_group(name)[1] == 1 for name in self.group_names)

    @property
    @abstractmethod
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is."""

    @property
    def secret(self) -> bool:
        """Whether certificates towards a third party count on nobody's knowing who is drawn."""
        return self.of_a_round.secret

    def turn(self, units: Any, t: Any) -> Any:
        """Whether it is the units' turn in round t, as everybody knows, bool[k]; None: who takes part is known."""
        return None


class Sampling(Accounting):
    """How units are drawn, once in each round, independently of other rounds and of data.

    One of somebody's own is a frozen dataclass that inherits from this, with the facts of it that differ, as fields or
    properties, and with `cases_of_one` and `words`. Certificates are as true as they are.

    Attributes:
        repeats: how often one draw can hold a unit.
        vanish: probability that a member vanishes after it was drawn.
        lossy: whether shares of the noise are lost with members that vanish.
        uniform: whether every draw is a uniform subset of one size, before some of it may vanish.
        block: of how many rounds a unit takes part in one, by this draw; None: of its own round alone.
        together: probability that one draw holds two given units, or a bound on it; None: it is not known.
        attained: whether the cases are the law of every unit, and not only a bound.
        independent: whether units are drawn independently of one another, before a cut.
        made_by: (N, rate, capacity) of a cut Poisson draw, which dp-accounting has an event for.
    """

    repeats: int = 1
    vanish: float = 0.0
    lossy: bool = False
    uniform: bool = False
    block: int | None = None
    together: float | None = None
    attained: bool = False
    independent: bool = False
    made_by: tuple[int, float, int] | None = None

    def units_of(self, who: Who) -> int:
        """How many units are the person's."""
        return who.units

    def cases(self, neighbour: Neighbour, who: Who) -> Cases | Why:
        """By what happens to the others of the cohort; their chances add up to 1. The proof belongs beside them.

        Formal guarantees: "zeroed", a view is told the case and how many of the units are drawn, and so many move the
        sum of the one neighbour. Else it is told the case alone: the pair of sums with and without the units is
        dominated, in each direction, by the pair in which noise is moved by n times `far` with the probabilities of
        `law`, or not moved; "replaced", by that of `curves.replace_delta`, of several `mixture_curves.replaced_delta`,
        in place `mixture_curves.in_place_delta`.
        Of a block see `pairs.blocks`.
        """
        if who.units > 1:
            return NOT_SEVERAL
        if who.remembers and neighbour != "zeroed":
            return NOT_REMEMBERED
        if who.lost and self.vanish:
            return Why("what members who vanish take along is not known; say it in `cases`")
        return self.cases_of_one(neighbour)

    def cases_of_one(self, neighbour: Neighbour) -> Cases | Why:
        """As `cases`, of one unit that does not remember when it was drawn: all that one of somebody's own says."""
        return Why("it has no cases")

    @abstractmethod
    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """What has to hold of the draw."""

    @property
    def neighbour(self) -> Neighbour:
        """For which it is certified by itself, towards a third party."""
        every: tuple[Neighbour, ...] = ("removed", "replaced")
        of = (each for each in every if not isinstance(self.cases(each, Who()), Why))
        return next(of, "zeroed") if self.secret else "zeroed"

    @property
    def secret(self) -> bool:
        """Whether certificates towards a third party count on nobody's knowing who is drawn."""
        return True

    @property
    def inclusion(self) -> float:
        """Inclusion probability: that a draw holds a unit, the likeliest one, or a bound on it."""
        return min(1.0, math.fsum(p for n, p in told_law(self, Who()) if n))

    @property
    def joining(self) -> float:
        """The same, as an audit plays it: of whom it is secret, after a cut."""
        cases = self.cases(self.neighbour, Who())
        return math.fsum(case.chance * case.rate for case in cases)  # type: ignore[union-attr]

    @property
    def everyone(self) -> bool:
        """Whether every draw holds a unit, the likeliest one, equally often."""
        always = len(told_law(self, Who())) == 1 and self.inclusion == 1
        return always and self.block in (None, 1) and self.most >= self.population

    @property
    def alone(self) -> bool:
        """Whether nobody's place in a draw depends on another's, so that one's weight is no other's.

        Else a unit may stand where a heavier one would, and moves the sum by the weights of both.
        """
        cases = self.cases("removed", Who())
        return not self.secret or not (isinstance(cases, Why) or any(c.far > 1 for c in cases))

    @property
    def known_by_noise(self) -> bool:
        """Whether a sum in which each adds noise of its own tells who takes part: how many they are varies.

        Not where another unit takes the place of one, so that there are as many noises either way.
        """
        return not (self.full and (self.everyone or self.neighbour == "replaced"))

    @property
    def complete(self) -> Sampling:
        """The same draws, of whom nobody vanishes."""
        return self

    @property
    def of_a_round(self) -> Sampling:
        """Itself."""
        return self

    def turn(self, units: Any, t: Any) -> Any:
        """It is everybody's."""
        return units >= 0


@lru_cache(maxsize=256)
def told_law(drawn: Sampling, who: Who) -> tuple[tuple[float, float], ...]:
    """((n, probability that a draw holds n of the units), ...), n rising from 0, where something is left to chance.

    Raises:
        ValueError: it is not known.
    """
    cases = drawn.cases("zeroed", who)
    if isinstance(cases, Why):
        raise ValueError(f"sampling: {drawn!r}; {cases}")
    law: dict[float, float] = {}
    for case in cases:
        for n, p in case.law:
            law[n] = law.get(n, 0.0) + case.chance * p
    none = 1 - math.fsum(law.values())
    return ((0.0, none),) * (none > 1e-15) + tuple(sorted(law.items()))


@lru_cache(maxsize=64)
def check_sampling(sampling: Sampling) -> None:
    """Raises ValueError: facts of a sampling of somebody's own contradict its cases."""

    def check(good: Any, field: str, value: Any, remedy: str) -> None:
        require(bool(good), f"{type(sampling).__name__}.{field}", value, remedy)

    for name in ("population", "most"):
        value = getattr(sampling, name, None)
        check(isinstance(value, int) and value >= 1, name, value, "give a whole number from 1 on")
    every = {each: sampling.cases(each, Who()) for each in ADJACENCIES}
    for neighbour, cases in every.items():
        if isinstance(cases, Why):
            continue
        words = sampling.words(neighbour)
        texts = isinstance(words, tuple) and all(isinstance(text, str) for text in words)
        check(texts, "words", words, "give a tuple of texts")
        several = isinstance(cases, tuple) and all(isinstance(case, Case) for case in cases)
        check(several, "cases", cases, "give a tuple of fp.privacy.Case, or an fp.privacy.Why")
        chances = [case.chance for case in cases]
        sure = abs(math.fsum(chances) - 1) < _ROUNDING
        check(sure, "cases", chances, f"give chances that add up to 1 for {neighbour}")
    often = max(n for n, _ in told_law(sampling, Who()))
    check(
        often <= sampling.repeats,
        "repeats",
        sampling.repeats,
        f"give {often:g}, as the cases of `zeroed`",
    )
    told_law(sampling, Who())
    told: Any = every["zeroed"]
    plain = all(case.far == case.left == 1 for case in told)
    check(
        plain,
        "cases",
        told,
        "who is told moves the sum by its number alone; leave `far` and `left` out of `zeroed`",
    )
    two = sampling.cases("zeroed", Who(units=2))
    mean = math.fsum(case.chance * n * p for case in told for n, p in case.law)
    if not isinstance(two, Why):
        of_two = math.fsum(case.chance * n * p for case in two for n, p in case.law)
        twice = math.isclose(of_two, 2 * mean, rel_tol=1e-6)
        check(twice, "cases", of_two, "give those of `who.units`, or a Why where there are several")
    over = sampling.inclusion - sampling.most / sampling.population
    likely = over <= _ROUNDING and (sampling.vanish > 0 or over >= -_ROUNDING)
    remedy = "draws that are uniform have a rate of most / population"
    check(likely or not sampling.uniform, "cases", sampling.inclusion, remedy)


def several(law: Any, most: int) -> tuple[tuple[float, float], ...]:
    """`Case.law` by a law of scipy's, of 1 to `most` units."""
    n = np.arange(1, most + 1)
    return tuple((float(k), float(p)) for k, p in zip(n, law.pmf(n), strict=True) if p > 0)


PLAIN = ((1.0, 1.0),)
"""A unit is there."""
