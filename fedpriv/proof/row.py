"""A row of the table of views, what a view sees of a unit in rounds that are alike, and the pairs that come of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fedpriv.proof.cases import ADJACENCIES, Neighbour, Noisy, Pairs, Why
from fedpriv.proof.drawn import Drawn
from fedpriv.proof.pairs import NOTHING, SEEN, times
from fedpriv.proof.seen import NOTHING_HIDES, Adder, Seen, Unit, View
from fedpriv.proof.words import words

GONE = Why("noise that clients add themselves is gone with one that is removed")


class AnyRow(ABC):
    """A row, of this package or of others: what `seen_of` asks.

    Attributes:
        view, unit: as of `Seen`.
        noisy: the noise that is counted, if all who add it are honest.
        drawn: the draws of the unit, a `Drawn` or one like it.
        reason: why nothing hides the unit, where nothing does.
        releases: the marks of what is released, which it is made of.
    """

    view: View
    unit: Unit
    noisy: Noisy
    drawn: Any
    reason: str
    releases: tuple[Any, ...]

    @property
    def parts(self) -> tuple[Any, ...]:
        """This, and what is seen beside it."""
        return (self,)

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there are no rounds."""

    @property
    @abstractmethod
    def attained(self) -> bool:
        """Whether some neighbours are as far apart as the pair."""

    @property
    @abstractmethod
    def event(self) -> str:
        """The rounds in words."""

    @abstractmethod
    def counted(self, honest: float) -> AnyRow:
        """With this fraction of the shares of noise, the rest not being added, or known."""

    @abstractmethod
    def pairs(self) -> Pairs:
        """Of all rounds."""

    @abstractmethod
    def words(self, neighbour: Neighbour, honest: float) -> Iterable[str]:
        """What has to hold, for such neighbours."""


@dataclass(frozen=True)
class Row(AnyRow):
    """A client's row where members add shares of the noise, in so many rounds.

    Attributes:
        adder: who adds the noise that is counted: "shares", or "own" where only that of the unit's holder is.
        rounds: how many there are.
    """

    view: View
    unit: Unit
    noisy: Noisy
    adder: Adder
    drawn: Drawn
    rounds: int
    reason: str = ""
    releases: tuple[Any, ...] = field(default=(), compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rounds."""
        return self.rounds == 0

    @property
    def counts_others(self) -> bool:
        """Whether noise of others than the unit's holder is counted, which they may leave out or tell."""
        return self.adder == "shares"

    @property
    def attained(self) -> bool:
        """Whether some neighbours are as far apart as the pair: a third party need not know who takes part."""
        shown = self.view != "third_party" or self.drawn.by.everyone
        return self.counts_others and shown and self.drawn.by.attained and type(self.noisy) is Noisy

    @property
    def event(self) -> str:
        """The rounds in words."""
        noise = f"{self.noisy.kind} noise of multiplier {self.noisy.multiplier:.4g}"
        return f"{self.rounds} x {noise} on {self.drawn.by}"

    def counted(self, honest: float) -> Row:
        """With this fraction of the shares of noise."""
        part = honest if self.counts_others else 1.0
        noisy, why = noise_left(self.noisy, part, self.drawn.by.repeats * self.drawn.who.units)
        return replace(self, noisy=noisy, reason=why or self.reason)

    def pairs(self) -> Pairs:
        """Rounds draw independently, and compose. Noise of its own is gone with a client that is removed."""
        found = self.drawn.pairs(self.noisy if 0 < self.noisy.far < math.inf else Noisy("gaussian"))
        found = found.map(lambda pair: times(pair, self.rounds) if self.noisy.far else NOTHING)
        return found if self.counts_others else found._replace(removed=GONE, emptied=GONE)

    def words(self, neighbour: Neighbour, honest: float) -> Iterable[str]:
        """What has to hold."""
        return words(self, neighbour, honest)


def noise_left(noisy: Noisy, part: float, often: int) -> tuple[Noisy, str]:
    """(The noise of which this part is there, and why nothing is).

    Args:
        often: how often a draw can hold the unit: below a multiplier of `least`, floats bound nothing.
    """
    if noisy.far in (0, math.inf):
        return noisy, ""
    left = noisy.left(part)
    if left is None:
        return noisy.bare, noisy.no_part
    if 0 < left.multiplier < left.least * often:
        why = f"the noise is {left.multiplier:.3g} of what it hides, too little for a finite number"
        return left.bare, why
    return left, ""


def seen_of(row: AnyRow, honest: float = 1.0) -> Seen:
    """What the view sees, of which only this fraction of shares of noise is added and stays unknown to it.

    Without noise all is seen, by whatever neighbours; of what is never released nothing is.
    """
    row = row.counted(honest)
    parts = row.parts
    nothing = row.is_empty or all(each.noisy.far == 0 for each in parts)
    bare = [each for each in parts if math.isinf(each.noisy.far) and not nothing]
    pairs = row.pairs()
    if bare or nothing:
        pairs = pairs.map(lambda pair: NOTHING if nothing else SEEN)
    if bare and all(isinstance(pair, Why) for pair in pairs):
        pairs = Pairs(*[SEEN] * 4)
    known = [n for n in ADJACENCIES if not isinstance(pairs.of(n), Why)]
    said = {n: tuple(text for each in parts for text in each.words(n, honest)) for n in known}
    reason = "; ".join(dict.fromkeys(each.reason or NOTHING_HIDES for each in bare))
    event, attained = " + ".join(each.event for each in parts), all(p.attained for p in parts)
    return Seen(row.view, row.unit, pairs, event, said, reason, attained, (row,))
