"""The draws of a person's units in several public groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from fedpriv.privacy.sampling.kinds_of_units import Case, changed
from fedpriv.proof.cases import Case as PlainCase
from fedpriv.proof.cases import Cases, Neighbour, Why
from fedpriv.proof.draws import Sampling, Single


@dataclass(frozen=True)
class AcrossGroups(Sampling):
    """The draws of a person's units in several groups, which are independent of one another, in one sum.

    Attributes:
        parts: (draws of the group, the person's units in it, how far one moves the sum) of each group.
        apart: whether each unit carries noise of its own: n of them are as far as sqrt(n).
    """

    parts: tuple[tuple[Sampling, int, float], ...]
    apart: bool = False

    def __repr__(self) -> str:
        return " and ".join(f"{n} units of a person by {drawn!r}" for drawn, n, _ in self.parts)

    @property
    def population(self) -> int:  # type: ignore[override]
        """Of all groups."""
        return sum(drawn.population for drawn, _, _ in self.parts)

    @property
    def most(self) -> int:
        """Of all groups."""
        return sum(drawn.most for drawn, _, _ in self.parts)

    @property
    def secret(self) -> bool:
        """Whether that of some group counts on it."""
        return any(drawn.secret for drawn, _, _ in self.parts)

    @property
    def everyone(self) -> bool:
        """Whether all groups are taken whole."""
        return all(drawn.everyone for drawn, _, _ in self.parts)

    @property
    def repeats(self) -> int:  # type: ignore[override]
        """As far as one draw moves the sum, in moves of a unit, rounded up."""
        return math.ceil(sum(n * far * drawn.repeats for drawn, n, far in self.parts))

    @property
    def units(self) -> int:
        """In all groups."""
        return sum(n for _, n, _ in self.parts)

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """Of each combination of the groups' cases, the law of how far all units together move the sum.

        *Proof.* The cases of different groups, and how many units join given them, are independent. Given the cases of
        all, those who are there instead of the person have the same law on both sides (see the cases of each group), so
        the sum is moved by a vector of norm sum_g n_g far_g at most, n_g of independent laws: `Sampling.cases`, of a
        law of distances. A case in which a group's units are seen counts as if all were. Units that are replaced need a
        coupling over groups, which is not proved.
        """
        if neighbour == "replaced":
            return Why("units in several groups are replaced, of which nothing is proved")
        of_groups = []
        for drawn, units, far in self.parts:
            cases = drawn.cases(neighbour, changed(who, units=units))
            if isinstance(cases, Why):
                return cases
            of_groups.append([(case, far) for case in cases])
        return tuple(self._case(each) for each in product(*of_groups))

    def _case(self, each: tuple[tuple[PlainCase, float], ...]) -> Case:
        law = {0.0: 1.0}
        for case, unit in each:
            far = unit * (case.far if math.isfinite(case.far) else 1.0)
            own = {0.0: max(0.0, 1 - case.rate)} | {
                n * (far**2 if self.apart else far): p for n, p in case.law
            }
            law = _sums(law, own)
        chance = math.prod(case.chance for case, _ in each)
        is_seen = any(math.isinf(case.far) for case, _ in each)
        moves = tuple((d, p) for d, p in sorted(law.items()) if d > 0 and p > 0)
        return Case(min(1.0, chance), moves, math.inf if is_seen else 1.0)

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Of each group."""
        texts = (text for drawn, _, _ in self.parts for text in drawn.words(neighbour))
        return tuple(dict.fromkeys(texts))


def _sums(law: dict[float, float], own: dict[float, float]) -> dict[float, float]:
    """The law of the sum of two independent numbers."""
    total: dict[float, float] = {}
    for (a, p), (b, q) in product(law.items(), own.items()):
        total[a + b] = total.get(a + b, 0.0) + p * q
    return total
