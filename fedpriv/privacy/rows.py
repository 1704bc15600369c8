"""Rows of the table of views that are not plain: of persons and records, steps of a round, known clients, schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from fedpriv.privacy.drawn import Drawn, Repeated, of_each
from fedpriv.privacy.sampling.asked import known_by_noise
from fedpriv.privacy.sampling.own import check_draw
from fedpriv.privacy.words import words
from fedpriv.proof.cases import Neighbour, Noisy, Pairs, Why
from fedpriv.proof.drawn import NOT_EMPTIED
from fedpriv.proof.pairs import NOTHING, times
from fedpriv.proof.row import GONE, AnyRow, noise_left
from fedpriv.proof.row import Row as Plain
from fedpriv.proof.seen import Adder, Unit, View

_TELLS = Why("noise that clients add themselves tells who takes part; give `participation`")
_MISSING = Why(
    "who takes part is taken to be known, among whom one that is removed would be missing"
)


@dataclass(frozen=True)
class Row(AnyRow):
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
        releases: the marks of what is released, which it is made of.
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
    releases: tuple[Any, ...] = field(default=(), compare=False)

    def each(self, change: Callable[[Row], Row]) -> Row:
        """Every part changed, each by itself."""
        beside = tuple(each.each(change) for each in self.beside)
        others = tuple(each.each(change) for each in self.others)
        alone = replace(self, beside=(), others=())
        return replace(change(alone), beside=beside, others=others)

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
        plain = not self.drawn.who.lost and type(self.noisy) is Noisy
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

    @property
    def is_empty(self) -> bool:
        """Whether there are no rounds."""
        return self.repeated.rounds == 0

    def counted(self, honest: float) -> Row:
        """With this fraction of the shares of noise."""
        for part in self.parts:
            check_draw("sampling", part.drawn.by)
            if part.repeated.among is not None:
                check_draw("participation", part.repeated.among)
        return self.each(lambda one: _counted(one, honest))

    def words(self, neighbour: Neighbour, honest: float) -> Iterable[str]:
        """What has to hold."""
        return words(self, neighbour, honest)

    def pairs(self) -> Pairs:
        """Of all rounds."""
        return pairs_of(self, Drawn.pairs)


def _counted(row: Row, honest: float) -> Row:
    part = honest if row.counts_others else 1.0
    noisy, why = noise_left(row.noisy, part, row.drawn.by.repeats * row.drawn.who.units)
    return replace(row, noisy=noisy, reason=why or row.reason)


def pairs_of(row: Row, of: Callable[[Drawn, Noisy], Pairs], played: bool = False) -> Pairs:
    """Of all rounds, from the pairs of one draw."""
    clients = [(each.clients, _of_a_client(each, of)) for each in (row, *row.others)]
    return row.repeated.pairs(clients, played)._replace(**_never_removed(row))


def _of_a_client(row: Row, of: Callable[[Drawn, Noisy], Pairs]) -> Pairs:
    """Of a round in which it takes part: of all that it releases there."""
    return of_each([_of_steps(each, of) for each in (row, *row.beside)])


def _of_steps(row: Row, of: Callable[[Drawn, Noisy], Pairs]) -> Pairs:
    hides = 0 < row.noisy.far < float("inf")
    once = of(row.drawn, row.noisy if hides else Noisy("gaussian"))
    return once.map(lambda pair: times(pair, row.repeated.steps) if row.noisy.far else NOTHING)


def _never_removed(row: Row) -> dict[str, Why]:
    """Why a unit is not removed, or replaced, where it leaves something else behind."""
    among = row.repeated.among
    if row.goes_with_its_unit and not row.drawn.is_told and known_by_noise(row.drawn.by):
        return dict.fromkeys(("removed", "emptied", "replaced"), _TELLS)
    if row.goes_with_its_unit:
        return {"removed": GONE, "emptied": GONE}
    if among is not None and not among.everyone and not row.of_records:
        return {"removed": _MISSING, "emptied": _MISSING}
    return {}


def featured(row: Any) -> Row:
    """A plain row as one of these, which says the same."""
    if not isinstance(row, Plain):
        return row
    drawn = Drawn(row.drawn.by, row.drawn.who, row.drawn.known, closed=(("emptied", NOT_EMPTIED),))
    return Row(
        row.view,
        row.unit,
        row.noisy,
        row.adder,
        drawn,
        Repeated(row.rounds),
        reason=row.reason,
        used=_used(row),
        releases=row.releases,
    )


def _used(row: Plain) -> Any:
    """The mechanism that audits draw from, where there is one."""
    return of_unit_norm(row.releases[0].step.mechanism) if len(row.releases) == 1 else None


def of_unit_norm(used: Any) -> Any:
    """A mechanism of one part, with a clip norm of 1 where it is computed in the round."""
    traced = any(isinstance(c, jax.core.Tracer) for c in jax.tree.leaves(used.clip_norm))
    return used.at(1.0, used.noise_multiplier) if traced and used.at else used
