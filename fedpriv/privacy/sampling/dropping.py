"""Cohorts of one size of which members vanish."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedpriv.core.arguments import Decay, check_fields
from fedpriv.privacy.noisy_integers import NoisyIntegers
from fedpriv.privacy.sampling.kinds_of_units import (
    NOT_REMEMBERED,
    NOT_SEVERAL,
    Case,
    law_of_fixed_size,
)
from fedpriv.proof.cases import Cases, Neighbour, Noisy, Why
from fedpriv.proof.draws import Single
from fedpriv.proof.pairs import Pair, told
from fedpriv.proof.samplings import NOT_REMOVED, FixedSize

_SELDOM = 1e-30  # so seldom do so few members stay that the unit counts as seen
_MOST_CASES = 128  # of how many stay


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
    together = None  # not measured
    by_hand = (
        "use fp.dropping to let members vanish"  # how many stay decides how much noise there is
    )

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()

    @property
    def vanish(self) -> float:  # type: ignore[override]
        """That of each member."""
        return self.dropout

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Where everyone is drawn."""
        return self.size == self.population

    @property
    def lossy(self) -> bool:  # type: ignore[override]
        """Where nobody makes up for shares."""
        return self.noise_is_lost

    def __repr__(self) -> str:
        """Without the digits by which a multiple of 2^-32 differs from what was meant."""
        p = round(self.dropout, 9)
        size = f"population={self.population}, size={self.size}"
        return f"Dropping({size}, dropout={p}, noise_is_lost={self.noise_is_lost})"

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """Where the noise is whole, one, by how many of the units are drawn and stay; for lost noise see `_of_stayers`.

        *Proof.* Let B be the law of the sum given that the unit is drawn and stays, A of the sum otherwise, and T the
        others of its cohort that stay: of s - 1 others each with probability 1 - p. Otherwise those who stay are T
        alone where the unit is drawn and vanishes. Where it is not drawn there is one other more, j, who stays with
        probability 1 - p: they are T and j, or T. So B and A have a coupling in which the unit is replaced by j or left
        out, which moves the sum by 2 C or C, and those are the pairs that `curves.replace_delta` asks for. For this the
        number of those who stay has to be secret, as the noise does not show it.

        Of several units, this holds if B_j and A have a coupling in which j units are replaced by others or left out.
        Let H of the units be drawn. Given that j of them stay, the law of L = H - j is proportional to C(m - j, L) C(N
        - m, s - j - L) p^L, m = `units`; given that none stays, that of H to the same with j = 0. The ratio of the two
        falls in L, and that of the laws of H itself rises: so in their quantile coupling H' <= H <= H' + j, H' where
        none stays. So A has 0 to j more other members drawn than B_j, all else of the cohort being the same, and of
        these as many stay or fewer: the units are replaced by those, and the rest of the j left out.

        Where everyone is drawn, each stays independently of the others: a Poisson draw, of which a unit may be removed.
        """
        if who.lost:
            return self._of_stayers(neighbour, who)
        if neighbour == "removed" and self.size == self.population:
            return (Case(1.0, self._law(who.units)),)
        if neighbour in ("removed", "emptied"):
            return NOT_REMOVED
        if neighbour == "replaced" and who.remembers:
            return NOT_REMEMBERED
        return (Case(1.0, self._law(who.units)),)

    def pair(self, cases: Cases, neighbour: Neighbour, noisy: Noisy, who: Single) -> Pair:
        """Where noise is lost, more is known of integers alone, of the subset of those who stay."""
        if neighbour != "replaced" or not who.lost:
            return super().pair(cases, neighbour, noisy, who)
        integers = isinstance(noisy, NoisyIntegers)
        each = ((case, case.rate if integers and case.rate else None) for case in cases)
        return told((case.chance, case.secret(noisy, True, subset)) for case, subset in each)

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """As of a fixed size; or independently."""
        if neighbour == "removed":
            return ("units join independently, and sums are divided by a number fixed beforehand",)
        return super().words(neighbour)

    def _law(self, units: int) -> tuple[tuple[float, float], ...]:
        stays = 1 - self.dropout
        if units == 1:
            return ((1.0, stays * self.size / self.population),)
        from scipy.stats import binom

        law = dict.fromkeys(range(units + 1), 0.0)
        for drawn, p in law_of_fixed_size(self, units):
            for n in range(1, int(drawn) + 1):
                law[n] += p * float(binom.pmf(n, int(drawn), stays))
        return tuple((float(n), p) for n, p in law.items() if p > 0)

    def _of_stayers(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """The cases where noise is lost: by how many stay, which a sum of many coordinates shows.

        Formal guarantees: as `curves.replace_delta`, of the pair that shows the case, with the noise that is left.

        *Proof.* k ~ Bin(s, 1 - p) members stay, whatever the data. Given k, they are a uniform subset of k of the N
        units, as every subset is equally likely by symmetry, and the noise has variance k / s of the whole: a cohort of
        fixed size k in which a replaced unit moves the sum sqrt(s / k) as far, in units of the noise. Divergences are
        jointly convex, so the mixture is a bound. To a view that is told who stays, so is that in which the unit is
        told to be among them, at rate k / N: a unit that sends zeros is drawn as often as one that does not. Given k =
        0 nobody adds noise: nothing is released.

        Neighbouring k are taken together where there are more than 128, at the largest rate and distance of them, in
        both of which the curves rise. The smallest k, of probability 1e-30 altogether, count as if the unit were seen.
        """
        if neighbour in ("removed", "emptied"):
            return NOT_REMOVED
        if who.remembers and neighbour != "zeroed":
            return NOT_REMEMBERED
        if who.units > 1:
            return NOT_SEVERAL
        from scipy.stats import binom

        s, n, stays = self.size, self.population, 1 - self.dropout
        k = np.arange(1, s + 1)
        seldom = int(np.sum(binom.cdf(k, s, stays) < _SELDOM))
        chances = binom.pmf(k, s, stays)
        seen = ((1.0, seldom / n),) if seldom else ()
        cases = [
            Case(float(binom.pmf(0, s, stays)), ()),
            Case(float(chances[:seldom].sum()), seen, math.inf),
        ]
        kept = k[seldom:]
        for group in np.array_split(kept, min(len(kept), _MOST_CASES)):
            chance = float(chances[group - 1].sum())
            law = ((1.0, float(group[-1]) / n),)
            cases.append(Case(min(1.0, chance), law, left=float(group[0]) / s))
        return tuple(case for case in cases if case.chance > 0)
