"""How one round's cohort is drawn: what every sampling says of itself, which is all that anybody asks of one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from fedpriv.core.arguments import Count, CountOrZero, LargeCount, require
from fedpriv.pairs.curves import Floats

Adjacency: TypeAlias = Literal["add_or_remove", "replace_one", "zero_out"]
"""What neighbouring data sets differ in: a unit is missing, or another, or its contributions are zero."""

SELDOM = 1e-6
"""In a round: how often a cut may show who made room for whom, and still be counted so."""

_ROUNDING = 1e-9  # of probabilities


class Accounting(ABC):
    """What a sampler says of its draws, whether one is as the other (`Sampling`) or the round's number decides.

    What is not said is taken for what costs most.

    Attributes:
        population: number of units.
    """

    population: LargeCount
    if TYPE_CHECKING:

        @property
        def most(self) -> int:
            """Most units that one draw can hold."""
            ...

    has_turns: bool = False
    """Whether the number of a round decides who may take part."""
    of_whom: str = ""
    """Of which assignment of clients to persons the draws are; "": of any."""
    not_by_hand: str = ""
    """What to use instead, where draws by somebody's own function cannot be measured against this."""

    @property
    def is_secret(self) -> bool:
        """Whether certificates towards a third party count on nobody's knowing who is drawn."""
        return True

    @property
    def takes_all(self) -> bool:
        """Whether every draw holds a unit, the likeliest one, equally often, however that is said."""
        return False

    @property
    def has_one_size(self) -> bool:
        """Whether every draw holds `most` units, before some may vanish."""
        return False

    @property
    def block_rounds(self) -> int | None:
        """Of how many rounds a unit takes part in one, by one draw for all of them; None where each has its own."""
        return None

    @property
    def most_bands(self) -> int | None:
        """Most bands of correlated noise under which each turn is released, and amplified, by itself; None: none is."""
        return None

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the public groups that are drawn, or count, each in its own way; (): all units are alike."""
        return ()

    def of_group(self, name: str) -> Accounting:
        """As a unit of this group is drawn."""
        return self

    @property
    def largest_weight(self) -> float:
        """Times how far a unit moves the sum, at most: what its clip norm, and then its message, are scaled by."""
        return 1.0

    def weight_of(self, group: str) -> float:
        """`largest_weight` of the units of this group."""
        return self.of_group(group).largest_weight

    @property
    def counts_equally(self) -> bool:
        """Whether all messages count 1, clipped to the same norm."""
        return self.largest_weight == 1.0

    @property
    @abstractmethod
    def of_a_round(self) -> Sampling:
        """The draw of those whose turn it is."""

    @property
    @abstractmethod
    def joining(self) -> float:
        """Probability that a unit whose turn it is takes part in a round, as an audit plays it."""

    @abstractmethod
    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """How many draws of so many rounds may hold a unit, at most."""

    @property
    @abstractmethod
    def window(self) -> int:
        """Of so many rounds in a row one is a unit's at most."""

    @abstractmethod
    def in_words(self, rounds: CountOrZero) -> str:
        """Which rounds of a run are a unit's; empty where all may be."""

    def turn(self, units: Any, t: Any) -> Any:
        """Whether it is the units' turn in round t, as everybody knows, bool[k]; None: who takes part is known."""
        return None

    def as_schedule(self) -> ParticipationSchema | None:
        """The rounds of a unit, where they are known beforehand; None where any may be."""
        return None


class ParticipationSchema(Accounting):
    """Which rounds of a run may be a client's, by their numbers."""

    has_turns = True
    if TYPE_CHECKING:

        @property
        def separation(self) -> int:
            """Fewest rounds from one of a client to the next."""
            ...

    @property
    def participations(self) -> int | None:
        """Most rounds of a client; None: as many as the separation allows."""
        return None

    @property
    def joining(self) -> float:
        """Probability that a client whose turn it is takes part."""
        return self.of_a_round.joining

    @property
    def window(self) -> int:
        """Of so many rounds in a row one is a client's at most."""
        return self.separation

    def as_schedule(self) -> ParticipationSchema:
        """Itself."""
        return self


class DrawCase(NamedTuple):
    """A case that does not depend on whether the unit is there: with it, the unit moves the sum at `rate`.

    Attributes:
        chance: probability of the case.
        rate: probability that the unit is in the cohort, given the case.
        distance: how far it then moves the sum, in its clip norms (of a unit that is replaced, in twice those);
            infinity where it is seen.
        times: of a person with several units, (n, probability that so many are in the cohort) for each n above 0, in
            rising order; they then move it n times as far. (): of a single unit.
    """

    chance: float
    rate: float
    distance: float
    times: tuple[tuple[float, float], ...] = ()

    @property
    def farthest(self) -> float:
        """How far the sum is moved at most."""
        return self.distance * (self.times[-1][0] if self.times else 1.0)


class Sampling(Accounting):
    """How units are drawn, once in each round, independently of other rounds and of data: a draw is its cases.

    A sampling of somebody's own is a frozen dataclass that inherits from this one, with `population`, `most` and `rate`
    as fields or properties, and with the four that are abstract. Certificates are as true as they are.
    """

    if TYPE_CHECKING:

        @property
        def rate(self) -> float:
            """Probability that a draw holds a unit, the likeliest one, or a bound on it."""
            ...

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency | None:
        """Under which neighbouring relation it is certified while it is secret who is drawn; None: under any.

        Zero-out: the secrecy is not used, the view is taken to know how often each unit is drawn.
        """

    @abstractmethod
    def cases(self) -> tuple[DrawCase, ...]:
        """By what happens to the others of the cohort, under `adjacency`; their chances add up to 1.

        Formal guarantees: the pair of sums with and without the unit is dominated, in each direction, by the pair that
        shows the case and has noise moved by `distance` at `rate`, or not moved; replaced, by that of
        `curves.replace_delta` of each case. Of a block see `pairs.blocks`. The proof belongs beside the cases.
        """

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """As `cases`, of so many units that are one person's, with their `times`.

        Formal guarantees: as `mixture_curves.several_delta`, and `replaced_delta` where units are replaced.

        Raises:
            ValueError: how many of several units one draw holds is not known.
        """
        raise ValueError(
            f"sampling: {self!r}; how many of a person's {units} units it draws at once is not known, so nothing is "
            "certified; draw by fp.poisson, fp.fixed_size or fp.everyone, or keep one of each person (per_person=1)"
        )

    def of_one_that_stays(self) -> Sampling:
        """The same draws, of a unit that is there with either neighbour, and contributes something else.

        Raises:
            ValueError: nothing is known of it.
        """
        known = self.adjacency == "replace_one"
        remedy = "give one of fp.poisson, fp.fixed_size and fp.everyone"
        require(known, "sampling", self, f"clients hold records of several persons; {remedy}")
        return self

    @abstractmethod
    def times_drawn(self) -> tuple[Floats, Floats]:
        """(n rising, their probabilities, f64[k] both): how often one draw holds a unit, the likeliest one."""

    @abstractmethod
    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """What has to hold of the draw, in words.

        Args:
            what: is drawn: "cohorts", or "the records of a step".
            some_vanish: whether members of some draws vanish, so that no sum is divided by how many there are.
        """

    def limits(self, what: str) -> tuple[str, ...]:
        """What else has to hold, of cohorts that are cut, as `how_drawn`."""
        return ()

    @property
    def made_by(self) -> tuple[int, float, int] | None:
        """(N, rate, capacity) of a cut Poisson draw of which a unit is removed, for dp-accounting's event of it."""
        return None

    @property
    def most_often(self) -> int:
        """How often one draw can hold a unit."""
        return int(self.times_drawn()[0][-1])

    @property
    def own_noises(self) -> int:
        """How many units of a person carry noise of their own in one draw, at most; 1 where one noise hides them."""
        return 1

    @property
    def is_attained(self) -> bool:
        """Whether `times_drawn` is the law of every unit, and not only a bound."""
        return False

    @property
    def is_without_replacement(self) -> bool:
        """Whether every draw is a uniform subset of one size, before some of it may vanish."""
        return False

    @property
    def is_weighted(self) -> bool:
        """Whether units are drawn by weights of theirs, such as their sizes, which are then public."""
        return self.adjacency == "zero_out"

    @property
    def is_known_with_own_noise(self) -> bool:
        """Whether who takes part is taken to be known where each adds noise of its own, as the sum tells of it.

        Not where another unit takes the place of one, so that there are as many noises either way.
        """
        return not self.has_one_size or self.adjacency in ("add_or_remove", "zero_out")

    @property
    def hides_size(self) -> bool:
        """Whether it is secret how many of the places that are drawn are filled."""
        return False

    @property
    def stands_alone(self) -> bool:
        """Whether nobody's place in a draw depends on another's, so that one's weight is no other's.

        Else a unit may stand where a heavier one would, and moves the sum by the weights of both.
        """
        return False

    @property
    def is_independent(self) -> bool:
        """Whether units are drawn independently of one another, or all are, before any cut."""
        return self.takes_all

    @property
    def together(self) -> float | None:
        """Probability that one draw holds two given units, or a bound on it; None where it is not known."""
        return None

    @property
    def dropout(self) -> float:
        """Probability that a member vanishes after it was drawn."""
        return 0.0

    @property
    def loses_noise(self) -> bool:
        """Whether shares of the noise are lost with members of a cohort that vanish."""
        return False

    def with_whole_noise(self) -> Sampling:
        """The same draws, of whose noise nothing vanishes."""
        return self

    def with_own_noise(self) -> Sampling:
        """The same draws, of whose members each takes noise of its own along when it vanishes."""
        return self

    def if_all_stay(self) -> Sampling:
        """The same draws, of whom nobody vanishes."""
        return self

    def independent(self) -> Sampling:
        """The same draws as those of units that join independently, where they are."""
        return self

    def one_message(self) -> tuple[Sampling, int]:
        """(draw, how many), by which a view that sees every message sees them."""
        return self, 1

    def remembered(self) -> Sampling | None:
        """The same draws, of units that remember when they were drawn, and may show it later; None: as if known.

        Who takes part is taken to be known where whoever takes another's place in a draw tells of it. Where secrecy is
        not used, there is nothing to give away.
        """
        return self if self.adjacency == "zero_out" else None

    def of_places(self) -> Sampling:
        """The draws among places, of which a client fills as many as it has records."""
        return self

    @property
    def allows_empty_places(self) -> bool:
        """Whether a client may hold fewer records than there are places to draw from."""
        return False

    @property
    def joining(self) -> float:
        """Probability that a unit takes part in a round, as an audit plays it."""
        return self.rate

    def as_played(self) -> tuple[DrawCase, ...]:
        """The cases that an audit plays: as it happens, where `cases` count what costs more."""
        return self.cases()

    @property
    def of_a_round(self) -> Sampling:
        """Itself."""
        return self

    def rounds_of_a_unit(self, rounds: CountOrZero) -> int:
        """All of them."""
        return rounds

    @property
    def window(self) -> int:
        """Every round may be a unit's."""
        return 1

    def in_words(self, rounds: CountOrZero) -> str:
        """Nothing, as any round may be."""
        return ""

    def turn(self, units: Any, t: Any) -> Any:
        """It is everybody's."""
        return units >= 0


@lru_cache(maxsize=64)
def check_law(sampling: Sampling) -> None:
    """Raises ValueError: a sampling of somebody's own does not say a relation, cases and counts that can be."""

    def check(good: Any, field: str, value: Any, remedy: str) -> None:
        require(bool(good), f"{type(sampling).__name__}.{field}", value, remedy)

    known = (None, *get_args(Adjacency))
    check(sampling.adjacency in known, "adjacency", sampling.adjacency, f"give one of {known}")
    cases = sampling.cases()
    chances, rates, far, times = (list(column) for column in zip(*cases, strict=True))
    check(not any(times), "cases", times, "leave `times` out, they are of a person's units")
    likely = min(chances) >= 0 and abs(math.fsum(chances) - 1) < _ROUNDING
    check(likely, "cases", chances, "give chances that add up to 1")
    check(all(0 <= rate <= 1 for rate in rates), "cases", rates, "give rates in [0, 1]")
    check(all(d > 0 for d in far), "cases", far, "give distances above 0")
    n, law = sampling.times_drawn()
    whole = len(n) == len(law) and n[0] >= 0 and (n % 1 == 0).all() and (np.diff(n) > 0).all()
    check(whole, "times_drawn", n, "give whole numbers that rise, and a probability of each")
    likely = law.min() >= 0 and abs(math.fsum(law) - 1) < _ROUNDING
    check(likely, "times_drawn", law, "give probabilities that add up to 1")
    joining = math.fsum(law[n > 0])
    bound = joining - _ROUNDING <= sampling.rate <= 1
    check(bound, "rate", sampling.rate, f"give at least {joining:.6g}, that of `times_drawn`")
    everyone = law[-1] > 1 - _ROUNDING and n[-1] > 0
    check(everyone or not sampling.takes_all, "takes_all", True, "some draws leave units out")
    counted_on = sampling.adjacency in ("add_or_remove", "replace_one")
    remedy = "who is drawn has to be secret under such an adjacency"
    check(sampling.is_secret or not counted_on, "is_secret", False, remedy)
    likely = sampling.rate <= sampling.most / sampling.population + _ROUNDING
    remedy = "draws that are uniform have a rate of most / population"
    check(likely or not sampling.is_without_replacement, "rate", sampling.rate, remedy)


def several(law: Any, most: int) -> tuple[tuple[float, float], ...]:
    """`DrawCase.times` by a law of scipy's, of 1 to `most` units."""
    n = np.arange(1, most + 1)
    return tuple((float(k), float(p)) for k, p in zip(n, law.pmf(n), strict=True) if p > 0)


def any_of(times: tuple[tuple[float, float], ...]) -> float:
    """Probability that any of several units is drawn."""
    return min(1.0, math.fsum(p for _, p in times))


def once(rate: float) -> tuple[Floats, Floats]:
    """`times_drawn` of a unit that one draw holds once, or not at all."""
    return np.arange(2.0), np.array([1 - rate, rate])
