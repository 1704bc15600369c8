"""A row of the table of views: what a view sees of a unit, before it is made pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.drawn import Drawn, Noisy, Repeated
from fedpriv.privacy.seen import Adder, Unit, View


class Row(NamedTuple):
    """What a view sees of a unit in rounds that are alike.

    Attributes:
        view, unit: as of `Seen`.
        noisy: the noise that is counted, if all who add it are honest.
        adder: who adds it.
        drawn: the draws of the unit.
        repeated: how often.
        of_records: whether records are drawn, so that no view knows which, and not clients.
        reason: why nothing hides the unit, where nothing does.
        used: the `fp.Mechanism`, for audits.
        beside: what else is seen of the same rounds, of clients who are drawn once for all of it.
        clients: how many clients of the person are seen so, each where it takes part.
        others: what is seen of further clients of the person, who are drawn together with these.
    """

    view: View
    unit: Unit
    noisy: Noisy
    adder: Adder
    drawn: Drawn
    repeated: Repeated
    of_records: bool = False
    reason: str = ""
    used: Any = None
    beside: tuple[Row, ...] = ()
    clients: int = 1
    others: tuple[Row, ...] = ()

    def each(self, change: Callable[[Row], Row]) -> Row:
        """Every part changed, each by itself."""
        beside = tuple(each.each(change) for each in self.beside)
        others = tuple(each.each(change) for each in self.others)
        alone = self._replace(beside=(), others=())
        return change(alone)._replace(beside=beside, others=others)

    @property
    def parts(self) -> tuple[Row, ...]:
        """This, and all that is seen beside it and of others."""
        return (self, *self.beside, *(part for each in self.others for part in each.parts))

    @property
    def counts_others(self) -> bool:
        """Whether noise of others than the unit's holder is counted, which they may leave out or tell."""
        return self.adder in ("shares", "own_summed")

    @property
    def goes_with_its_unit(self) -> bool:
        """Whether noise is gone with a unit that is removed: that which its holder adds."""
        return self.adder in ("own", "own_summed") and not self.of_records

    @property
    def attained(self) -> bool:
        """Whether some neighbours are as far apart as the pair: a third party need not know who takes part."""
        draws = [drawn for drawn in (self.drawn.by, self.repeated.among) if drawn is not None]
        plain = not self.drawn.who.lost and not isinstance(self.noisy.noise, IntegerNoise)
        shown = self.view != "third_party" or all(drawn.everyone for drawn in draws)
        return self.counts_others and plain and shown and all(drawn.attained for drawn in draws)

    @property
    def event(self) -> str:
        """The rounds in words."""
        rounds, steps, among, schedule = self.repeated
        drawn, units = self.drawn.by, self.drawn.who.units
        by = f"{units} units of a person by {drawn}" if units > 1 else str(drawn)
        of = f" of a client in {among}" if among is not None else ""
        often = f"{rounds} x" if steps == 1 else f"{rounds} x {steps} x"
        noise = f"{self.noisy.kind} noise of multiplier {self.noisy.multiplier:.4g}"
        text = f"{often} {noise} on {by}{of}"
        return f"{text} ({schedule})" if schedule else text
