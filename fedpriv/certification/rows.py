"""From a traced stage to the rows of the table of views: those of a client, or a record, in rounds that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedpriv.certification.pieces import of_messages, too_narrow
from fedpriv.certification.record_views import of_records
from fedpriv.certification.stages import Stage
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.certification.views import Cohorts, of_clients
from fedpriv.privacy import VIEWS
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.from_rows import are_plain
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling.own import check_draw
from fedpriv.proof.cases import Noisy
from fedpriv.proof.marks import Sum
from fedpriv.proof.row import AnyRow
from fedpriv.proof.seen import ClippedUnit
from fedpriv.proof.step import Step
from fedpriv.proof.views import of_sums
from fedpriv.rounds.scheduled_samplers import AnySampler


def stage_rows(
    stage: Stage,
    sampler: AnySampler,
    unit: ClippedUnit,
    steps: int,
    first: int,
    kind: UnitKind = ANY,
) -> Sequence[AnyRow]:
    """What each view sees of rounds that are alike.

    Args:
      steps: their number.
      first: the first of them.
      kind: of the unit, as `TracedRound.seen`.

    Raises:
      ValueError: units, samplings or kinds of noise that do not go together, or a multiplier computed in the round.
    """
    cohorts = Cohorts.of(sampler.accounting, steps, kind.group)
    sums, narrow = of_messages(stage), too_narrow(stage)
    weight, clip_scale, delay = stage.of.answer
    by_group = delay is None and not sampler.accounting.counts_equally
    if (weight is not None or clip_scale is not None) and not by_group:
        _check_shares(sums)
        cohorts = cohorts._replace(are_of_one_size=False)
    if sums and stage.means and any(release.multiplier(first) > 0 for release in sums):
        raise ValueError(
            f"round: it protects clients ({sums[0].line}) and their records ({stage.means[0].line}); protect one unit"
        )
    if _are_plain(sums, sampler, unit, kind, stage.remembers, narrow):
        drawn: Any = sampler.accounting
        check_draw("sampling", drawn)
        return of_sums(sums, drawn, steps, first)
    if sums:
        return of_clients(sums, cohorts, unit, first, stage.remembers, narrow)
    if stage.means:
        return of_records(stage.means, cohorts, unit, first, kind, narrow)
    drawn, nothing = Drawn(cohorts.drawn), Noisy("gaussian", 0.0)
    return [nothing_seen(view, unit, drawn, nothing, cohorts) for view in VIEWS]


def _are_plain(
    sums: Sequence[Sum],
    sampler: AnySampler,
    unit: ClippedUnit,
    kind: UnitKind,
    remembers: bool,
    narrow: str,
) -> bool:
    """Whether the plain rows are theirs: of flat sums of clients' messages that carry shares of the noise."""
    client = unit == "client" and kind == ANY and not remembers and not narrow
    return client and len(sums) > 0 and are_plain(sampler.accounting) and all(map(_is_plain, sums))


def _is_plain(one: Sum) -> bool:
    return type(one.step) is Step and not one.step.mechanism.parts


def nothing_seen(
    view: str, unit: ClippedUnit, drawn: Drawn, nothing: Noisy, cohorts: Cohorts
) -> Row:
    """Of a unit of which nothing is released."""
    known = drawn._replace(known=view != "third_party" and unit == "client")
    row = Row(view, unit, nothing, "shares", known, cohorts.repeated())  # type: ignore[arg-type]
    return replace(row, of_records=unit == "record")


def _check_shares(sums: Sequence[Sum]) -> None:
    """Raises ValueError: members' own noise is weighted beside the weights of their groups.

    How loud a sum is then depends on who is in it, of which no accounting is known.
    """
    for each in sums:
        if each.step.adder == "own" and each.step.is_noisy:
            raise ValueError(
                "sampler: its draws weigh answers, as by their delays, and each carries noise of its own "
                f'({each.line}); leave the weights out, or let members add shares of the noise (adder="shares")'
            )
