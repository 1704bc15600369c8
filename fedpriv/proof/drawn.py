"""From draws to pairs: what a view that knows who is drawn, or does not, can tell of a unit."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.proof.cases import ADJACENCIES, Cases, Neighbour, Noisy, Pairs, Why
from fedpriv.proof.draws import ONE, Sampling, Single
from fedpriv.proof.pairs import Pair, told

NOT_EMPTIED = Why("without its unit there is no client, and no place that is empty")
NOT_A_BLOCK = Why("one draw is for a block of rounds, of which this one is no more than a part")


@dataclass(frozen=True)
class Drawn:
    """The draws of a unit in one round, as a view is taken to know them.

    Attributes:
        by: how units are drawn.
        known: whether the view is taken to know who is drawn.
        who: of whom.
    """

    by: Sampling
    known: bool = False
    who: Single = ONE

    @property
    def is_told(self) -> bool:
        """Whether who is drawn is known, or taken to be."""
        return self.known or not self.by.secret

    def pairs(self, noisy: Noisy) -> Pairs:
        """Of one draw, for each kind of neighbour."""
        return Pairs(*(self._pair(each, noisy) for each in ADJACENCIES))

    def _pair(self, neighbour: Neighbour, noisy: Noisy) -> Pair | Why:
        """Of one draw. A unit that is replaced moves the sum by both contributions.

        *Told.* A view that knows who is drawn, and how often, sees the pattern B beside the sum Y. B has the same law
        for both neighbours, as cohorts are drawn without looking at the data: so it is told, H_a((B, Y) || (B, Y')) =
        sum_b Pr[b] H_a(Y | b || Y' | b). A draw that holds n units is moved n times as far. Units that are drawn less
        often than the likeliest have stochastically smaller n, and a cohort that is cut counts at the rate before the
        cut: the curve rises in n.

        *Else* who is drawn is secret, and the sampling's cases have their proofs beside them.
        """
        cases = self._cases(neighbour)
        if isinstance(cases, Why):
            return cases
        near = noisy.moved(2) if neighbour == "replaced" else noisy
        if self.is_told:
            return told(each for case in cases for each in case.shown(near))
        return self.by.pair(cases, neighbour, near, self.who)

    def _cases(self, neighbour: Neighbour) -> Cases | Why:
        if neighbour == "emptied":
            return NOT_EMPTIED
        if self.by.block not in (None, 1):
            return NOT_A_BLOCK
        why = not_of(self.by, self.known, neighbour)
        return why or self.by.cases("zeroed" if self.is_told else neighbour, self.who)


def not_of(by: Sampling, known: bool, neighbour: Neighbour, stays: bool = False) -> Why | None:
    """Why a view that is taken to know who is drawn, or not to, has no such neighbours; None: it has."""
    if not known and by.secret:
        if neighbour != "zeroed":
            return None
        return Why(
            "that it is secret who is drawn is used, for which units are removed or replaced"
        )
    if neighbour == "replaced" and not (known or by.everyone or stays):
        return Why(
            "how often each unit is drawn is taken to be known, of which one contributes zeros"
        )
    if neighbour in ("removed", "emptied") and not by.everyone:
        return Why(
            "who takes part is taken to be known, among whom a unit that is removed would be missing"
        )
    return None
