"""Cohorts of one size, drawn without replacement, and such of which members vanish."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.core.arguments import Count, Decay, LargeCount, check_fields, require
from fedpriv.pairs.curves import Floats
from fedpriv.privacy.sampling.everyone import Everyone
from fedpriv.privacy.sampling.poisson import Poisson
from fedpriv.privacy.sampling.protocol import Adjacency, DrawCase, Sampling, any_of, once, several

_SELDOM = 1e-30  # so seldom do so few members stay that the unit counts as seen
_MOST_CASES = 128  # of how many stay


@dataclass(frozen=True)
class FixedSize(Sampling):
    """A cohort of exactly `size` of the `population` clients, uniform without replacement.

    Raises:
        ValueError: a size below 1 or above the population.
    """

    population: LargeCount
    size: LargeCount

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = f"give at most the population, {self.population}"
        require(self.size <= self.population, "size", self.size, remedy)

    @property
    def most(self) -> int:
        """Most units that one draw can hold."""
        return self.size

    @property
    def rate(self) -> float:
        """Probability that a given client takes part in a round: size / population."""
        return self.size / self.population

    @property
    def adjacency(self) -> Adjacency:
        """Another unit takes the place of one that is not there."""
        return "replace_one"

    def cases(self) -> tuple[DrawCase, ...]:
        """One: the unit is drawn at the rate.

        *Proof.* `curves.replace_delta`: given that the unit is drawn, or not, the two sums differ by one member.
        """
        return (DrawCase(1.0, self.rate, 1.0),)

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """One: the number of units that are drawn is hypergeometric.

        *Proof.* `mixture_curves.replaced_delta`: a cohort that holds j of the units is uniform among those that do.
        So it is one without any of them, uniform too, of which a uniform choice of j members was replaced by one of j
        of the units: B_j and A differ in j members, as do B_j and B'_j.
        """
        from scipy.stats import hypergeom

        times = several(hypergeom(self.population, units, self.size), min(units, self.size))
        return (DrawCase(1.0, any_of(times), 1.0, times),)

    def times_drawn(self) -> tuple[Floats, Floats]:
        """Once, or not at all."""
        return once(self.rate)

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """Uniform, and how far a sum moves."""
        size = "a number fixed beforehand" if some_vanish else "their size"
        return (
            f"{what} are uniform without replacement, and sums are divided by {size}",
            "replacing a unit moves a sum by at most twice its clipped norm",
        )

    @property
    def takes_all(self) -> bool:
        """Where it draws everyone, and nobody vanishes."""
        return self.rate == 1

    @property
    def has_one_size(self) -> bool:
        """All have."""
        return True

    @property
    def is_attained(self) -> bool:
        """All are drawn alike."""
        return True

    @property
    def is_without_replacement(self) -> bool:
        """It is."""
        return True

    @property
    def together(self) -> float | None:
        """Once one is drawn, the other is one of size - 1 among the rest."""
        return self.rate * (self.size - 1) / max(self.population - 1, 1)


@dataclass(frozen=True)
class Dropping(FixedSize):
    """A cohort of fixed size whose members vanish after they were drawn, independently of one another and of data.

    Attributes:
        dropout: p, the probability that a member vanishes.
        noise_is_lost: whether each of the s = `size` members adds 1 / s of the noise's variance, and the shares of
            those that vanish are missing; else the noise is whole, whoever vanishes.

    Raises:
        ValueError: as `FixedSize`, or a probability outside [0, 1).
    """

    dropout: Decay = 0.0
    noise_is_lost: bool = False
    not_by_hand = (
        "use fp.dropping to let members vanish"  # how many stay decides how much noise there is
    )

    @property
    def rate(self) -> float:
        """Probability that a given client takes part in a round and stays: (1 - p) size / population."""
        return (1 - self.dropout) * self.size / self.population

    def __repr__(self) -> str:
        """Without the digits by which a multiple of 2^-32 differs from what was meant."""
        p = round(self.dropout, 9)
        size = f"population={self.population}, size={self.size}"
        return f"Dropping({size}, dropout={p}, noise_is_lost={self.noise_is_lost})"

    def cases(self) -> tuple[DrawCase, ...]:
        """Where the noise is whole, one, at the rate of being drawn and staying; where it is lost, see `_of_stayers`.

        *Proof.* Let B be the law of the sum given that the unit is drawn and stays, A of the sum otherwise, and T the
        others of its cohort that stay: of s - 1 others each with probability 1 - p. Otherwise those who stay are T
        alone where the unit is drawn and vanishes. Where it is not drawn there is one other more, j, who stays with
        probability 1 - p: they are T and j, or T. So B and A have a coupling in which the unit is replaced by j or left
        out, which moves the sum by 2 C or C, and those are the pairs that `curves.replace_delta` asks for. For this the
        number of those who stay has to be secret, as the noise does not show it.
        """
        return self._of_stayers() if self.noise_is_lost else super().cases()

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """One, by how many of the units are drawn and stay, where noise is whole.

        *Proof.* As `FixedSize`, if B_j and A have a coupling in which j units are replaced by others or left out. Let H
        of the units be drawn. Given that j of them stay, the law of L = H - j is proportional to C(m - j, L) C(N - m, s
        - j - L) p^L, m = `units`; given that none stays, that of H to the same with j = 0. The ratio of the two falls
        in L, and that of the laws of H itself rises: so in their quantile coupling H' <= H <= H' + j, H' where none
        stays. So A has 0 to j more other members drawn than B_j, all else of the cohort being the same, and of these as
        many stay or fewer: the units are replaced by those, and the rest of the j left out.

        Raises:
            ValueError: noise is lost.
        """
        if self.noise_is_lost:
            return Sampling.cases_of_several(self, units)
        from scipy.stats import binom

        law = dict.fromkeys(range(units + 1), 0.0)
        for drawn, p in super().cases_of_several(units)[0].times:
            for n in range(1, int(drawn) + 1):
                law[n] += p * float(binom.pmf(n, int(drawn), 1 - self.dropout))
        times = tuple((float(n), p) for n, p in law.items() if p > 0)
        return (DrawCase(1.0, any_of(times), 1.0, times),)

    def _of_stayers(self) -> tuple[DrawCase, ...]:
        """The cases where noise is lost: by how many stay, which a sum of many coordinates shows.

        Formal guarantees: as `curves.replace_delta`, of the pair that shows the case, with noise moved by `distance`.

        *Proof.* k ~ Bin(s, 1 - p) members stay, whatever the data. Given k, they are a uniform subset of k of the N
        units, as every subset is equally likely by symmetry, and the noise has variance k / s of the whole: a cohort of
        fixed size k in which a replaced unit moves the sum sqrt(s / k) as far, in units of the noise. Divergences are
        jointly convex, so the mixture is a bound. To a view that is told who stays, so is that of `curves.shown_delta`
        at rate k / N: a unit that sends zeros is drawn as often as one that does not. Given k = 0 nobody adds noise:
        nothing is released.

        Neighbouring k are taken together where there are more than 128, at the largest rate and distance of them, in
        both of which the curves rise. The smallest k, of probability 1e-30 altogether, count as if the unit were seen.
        """
        from scipy.stats import binom

        s, n, stays = self.size, self.population, 1 - self.dropout
        k = np.arange(1, s + 1)
        seldom = int(np.sum(binom.cdf(k, s, stays) < _SELDOM))
        chances = binom.pmf(k, s, stays)
        cases = [
            DrawCase(float(binom.pmf(0, s, stays)), 0.0, 1.0),
            DrawCase(float(chances[:seldom].sum()), seldom / n, math.inf),
        ]
        kept = k[seldom:]
        for group in np.array_split(kept, min(len(kept), _MOST_CASES)):
            chance = float(chances[group - 1].sum())
            cases.append(DrawCase(chance, float(group[-1]) / n, math.sqrt(s / group[0])))
        return tuple(case for case in cases if case.chance > 0)

    @property
    def together(self) -> None:
        """Not measured."""
        return None

    @property
    def loses_noise(self) -> bool:
        """Whether shares of the noise are lost with members of a cohort that vanish."""
        return self.noise_is_lost

    def with_whole_noise(self) -> Sampling:
        """Those who stay make up for lost shares, or whoever sums."""
        return replace(self, noise_is_lost=False)

    def with_own_noise(self) -> Sampling:
        """A subset of any size has as much noise a member as all."""
        return replace(self, noise_is_lost=True)

    def if_all_stay(self) -> Sampling:
        """Those who were drawn."""
        if self.size == self.population:
            return Everyone(self.population)
        return FixedSize(self.population, self.size)

    def independent(self) -> Sampling:
        """Each of everyone stays on its own."""
        if self.size == self.population and not self.noise_is_lost:
            return Poisson(self.population, 1 - self.dropout)
        return self

    def as_played(self) -> tuple[DrawCase, ...]:
        """Without the seldom case in which units count as seen."""
        return tuple(case for case in self.cases() if math.isfinite(case.distance))
