"""Cohorts of everyone, of one size, and of a random size: each a value that gives its own cases."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.core.complaints import require
from fedpriv.core.kinds import LargeCount, Rate, number
from fedpriv.proof.cases import Case, Cases, Neighbour, Noisy, Why
from fedpriv.proof.draws import Sampling, Single
from fedpriv.proof.pairs import Pair, Told

NEVER = 1e-250
"""Cuts rarer than this are left out; the margin for rounding covers them."""
NOT_REMOVED = Why("another unit takes the place of one that is not there, so that one is replaced")
NOT_REPLACED = Why("how many units there are is hidden, so that one is added or removed")
REPLACED_IN_WORDS = "replacing a unit moves a sum by at most twice its clipped norm"


def as_numbers(self: Any, **kinds: Any) -> None:
    """Fields as Python's numbers. Raises ValueError: one is not of its kind."""
    for name, kind in kinds.items():
        object.__setattr__(self, name, number(name, getattr(self, name), kind))


@dataclass(frozen=True)
class Everyone(Sampling):
    """All `population` clients take part in every round; there is no amplification by sampling.

    Raises:
        ValueError: a population below 1.
    """

    population: LargeCount
    full = attained = independent = True
    secret = False
    together = 1.0

    def __post_init__(self) -> None:
        as_numbers(self, population=LargeCount)

    @property
    def most(self) -> int:
        """All of them."""
        return self.population

    def cases_of_one(self, neighbour: Neighbour) -> Cases:
        """It is there."""
        return (Case(1.0, ((1.0, 1.0),)),)

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Nothing has to hold."""
        return ()


@dataclass(frozen=True)
class FixedSize(Sampling):
    """A cohort of exactly `size` of the `population` clients, uniform without replacement.

    Raises:
        ValueError: a size below 1 or above the population.
    """

    population: LargeCount
    size: LargeCount
    full = uniform = attained = True

    def __post_init__(self) -> None:
        as_numbers(self, population=LargeCount, size=LargeCount)
        remedy = f"give at most the population, {self.population}"
        require(self.size <= self.population, "size", self.size, remedy)

    @property
    def most(self) -> int:
        """Each has this size."""
        return self.size

    @property
    def together(self) -> float | None:  # type: ignore[override]
        """Once one is drawn, the other is one of size - 1 among the rest."""
        return self.inclusion * (self.size - 1) / max(self.population - 1, 1)

    def cases_of_one(self, neighbour: Neighbour) -> Cases | Why:
        """One.

        *Proof.* `curves.replace_delta`: given that the unit is drawn, or not, the two sums differ by one member.
        """
        if neighbour in ("removed", "emptied"):
            return NOT_REMOVED
        return (Case(1.0, ((1.0, self.size / self.population),)),)

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Uniform, and how far a sum moves."""
        if neighbour == "zeroed":
            return ()
        size = "a number fixed beforehand" if self.vanish else "their size"
        uniform = f"draws are uniform without replacement, and sums are divided by {size}"
        return uniform, REPLACED_IN_WORDS


class Cut(Sampling):
    """What draws of a random size have in common: a cohort above the capacity is cut down."""

    capacity: LargeCount | None

    @property
    def most(self) -> int:
        """Most units that one draw, or a round of it, can hold."""
        return self.population if self.capacity is None else min(self.capacity, self.population)

    @property
    def can_be_cut(self) -> bool:
        """Whether a cohort can exceed the capacity."""
        return self.capacity is not None and self.capacity < self.population

    @property
    @abstractmethod
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""

    @property
    def attained(self) -> bool:  # type: ignore[override]
        """Where no cut makes a unit rarer than its rate."""
        return not self.is_cut

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """What holds of the cut."""
        texts = [REPLACED_IN_WORDS] if neighbour == "replaced" else []
        if self.can_be_cut:
            texts.append(
                f"draws of more than {self.capacity} units are cut down uniformly at random"
            )
        if self.can_be_cut and neighbour == "removed":
            texts.append(f"the larger of two neighbouring populations has {self.population} units")
        return tuple(texts)


@dataclass(frozen=True)
class Poisson(Cut):
    """Each of the `population` clients joins with probability `rate`, independently of the others.

    A cohort above `capacity`, the number of slots that the simulator has, is cut down to a uniformly random subset,
    which is accounted for. `None`: no cut. `rate` is the probability of joining before the cut.

    Where a client's records are drawn, `population` is a number of places, of which the client fills as many as it has
    records; empty places are drawn, too.

    Raises:
        ValueError: a population or capacity below 1, or a rate outside (0, 1].
    """

    population: LargeCount
    rate: Rate
    capacity: LargeCount | None = None
    independent = True

    def __post_init__(self) -> None:
        as_numbers(self, population=LargeCount, rate=Rate)
        if self.capacity is not None:
            as_numbers(self, capacity=LargeCount)

    @property
    def is_cut(self) -> bool:
        """Whether a cohort is ever cut down (with a probability above 1e-250)."""
        if not self.can_be_cut:
            return False
        from scipy.special import betainc  # scipy.stats takes a second to import

        size, n = self.capacity, self.population
        assert size is not None
        return bool(betainc(size + 1, n - size, self.rate) > NEVER)  # Pr[Bin(n, rate) > size]

    @property
    def together(self) -> float:  # type: ignore[override]
        """Two join independently."""
        return self.rate**2

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Independently."""
        if neighbour == "zeroed":
            return ()
        text = "units join independently, and sums are divided by a number fixed beforehand"
        return (text, *super().words(neighbour))

    def cases_of_one(self, neighbour: Neighbour) -> Cases | Why:
        """By whether others fill the cohort, where it may be cut, see `cut`.

        *Proof.* Without a cut the unit joins independently of all others: `curves.remove_delta`, `curves.add_delta`. A
        view that is told whether it joins, and cuts nobody, sees more than one that sees the cohort after a cut.
        """
        if neighbour == "replaced":
            return NOT_REPLACED
        if neighbour != "zeroed" and self.is_cut:
            return self.cut(2.0)
        return (Case(1.0, ((1.0, self.rate),)),)

    def cut(self, far: float) -> Cases:
        """Of a unit that is removed: whether others fill the cohort.

        *Proof.* Of the N - 1 other units K ~ Bin(N - 1, q) join, whether or not the unit is there; B is the capacity.
        Let S be the cohort without the unit: all that join where K < B, else a uniform subset of B of them. Given S and
        K < B the unit joins with probability q, and adds u. Given S and K >= B the cohort with the unit is the uniform
        subset of B of K, or K + 1, that joined: it holds the unit with probability q B / (K + 1), which then stands in
        the place of a uniform member y of S, or it is distributed as S. That is, given S and |S| = B, it is with r =
        E[q B / (K + 1) | K >= B] that the sum moves by u - y, of norm at most 2 C, y random. So given S the pair is (1
        - r) P + r Q against P, Q a mixture of P moved by at most 2 C. Its hockey-stick divergences are r H_b(Q || P)
        and (1 - a (1 - r)) H_b'(P || Q) (see `curves.remove_delta`, `curves.add_delta`), and those of Q and P are
        convex in Q, so at most those of P moved by 2 C. S has the same law on both sides; averaging over it gives, by
        joint convexity, the bound.

        These are the cases of dp-accounting (arXiv 2508.15089), which takes a unit replaced, with noise moved to both
        sides, for the second one.

        *How tight.* At 1000 clients of which 100 join on average, multiplier 1.4, 100 rounds and delta = 1e-5, explicit
        neighbours (others all alike, the unit at the worst angle to them tried) have an epsilon of 3.80, 7.87, 6.0 and
        4.5 for capacities of 20, 50, 90 and 100, where this bound gives 3.81, 7.88, 12.2 and 10.6, dp-accounting's
        4.23, 9.47, 15.4 and 12.8, and 3.94 holds without a cut. So cohorts that are nearly always cut have nothing to
        gain: what a client displaces shows as well as itself. Where about half of them are cut, up to a factor of 2.4
        is open.

        Args:
            far: how far a unit that displaces another moves the sum, 2; infinity if whom it displaced shows later.
        """
        from scipy.special import betainc, betaincc  # Pr[Bin(n, q) > k] is betainc(k + 1, n - k, q)

        size, n, rate = self.capacity, self.population, self.rate
        assert size is not None
        chance, fits = (
            float(tail(size, n - size, rate)) for tail in (betainc, betaincc)
        )  # K >= B, K < B
        # E[q B / (K + 1); K >= B] = B / N Pr[Bin(N, q) > B]
        displaced = float(betainc(size + 1, n - size, rate)) * size / n / chance
        cases = (Case(fits, ((1.0, rate),)), Case(chance, ((1.0, min(displaced, rate)),), far))
        return tuple(case for case in cases if case.chance > 0)

    def pair(self, cases: Cases, neighbour: Neighbour, noisy: Noisy, who: Single) -> Pair:
        """With its name at dp-accounting, of one unit that is removed."""
        found = super().pair(cases, neighbour, noisy, who)
        alone = neighbour == "removed" and self.can_be_cut and cases == self.cases_of_one(neighbour)
        if not alone or not isinstance(found, Told):
            return found
        return replace(found, made_by=(self.population, self.rate, self.most))
