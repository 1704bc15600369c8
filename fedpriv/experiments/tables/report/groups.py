"""The page's section on groups: which one is hurt, how far the best is from it, and at which epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedpriv.engine.client_metric_names import TEST
from fedpriv.engine.metric_words import with_unit
from fedpriv.experiments.base.formats import ABSENT, mean_and_std
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables import by_group as grids
from fedpriv.experiments.tables.by_group import OfGroup
from fedpriv.experiments.tables.frame import Row
from fedpriv.experiments.tables.report.clients import is_readable
from fedpriv.experiments.tables.report.tables import Cell, Table, with_meaning
from fedpriv.models.score import GROUP_GAP, WORST_GROUP, better_higher


class ByGroup(NamedTuple):
    """In the report: worst group and gap with the epsilon beside, then each group.

    Attributes:
      notes: what one has to know to read the tables.
    """

    worst: Table
    each: Table
    notes: list[str]


def by_group(runs: Sequence[RunFolder]) -> ByGroup | None:
    """A section of the report, of the metrics that the runs show; None where nothing was evaluated group by group.

    A run whose clients.jsonl is damaged, which its remarks say, is left out.
    """
    readable = [run for run in runs if is_readable(run)]
    if not grids.recorded(readable):
        return None
    found = grids.rows_with_groups(readable)
    made = grids.grid(found)
    rows: list[Sequence[str | Cell]] = [row for row in made.rows]
    return ByGroup(
        _worst(found), Table("Each group, after the last round", made.head, rows), made.below
    )


def _worst(found: Sequence[Row]) -> Table:
    """A line for each algorithm, run, kind of records and metric."""
    head = ["algorithm", "metric", "certified epsilon, third party", "worst group", "its mean"]
    head += ["worst of each seed", "gap of each seed", "smallest group", "its mean"]
    rows: list[list[str | Cell]] = []
    for row in found:
        each = grids.groups_of([row])
        for kind in dict.fromkeys(one.of.records for one in each):
            own = [one for one in each if one.of.records == kind]
            for metric in dict.fromkeys(metric for one in own for metric in one.names):
                rows.append(_line(row, kind, metric, [one for one in own if metric in one.names]))
    return Table("Worst group and gap, after the last round", head, rows)


def _line(row: Row, kind: str, metric: str, own: Sequence[OfGroup]) -> list[str | Cell]:
    groups = [one for one in own if one.of.group is not None]
    over = {one.of.statistic: one for one in own if one.of.group is None}
    higher = better_higher(metric, row.higher)
    # NaN is not below anything: a group without a number is not the worst.
    known = [one for one in groups if (s := one.score(metric)) and s.mean == s.mean]
    ranked = sorted(known, key=lambda one: one.score(metric).mean, reverse=not higher)  # type: ignore[union-attr]
    smallest = groups[-1:]  # they are in the order of size
    privacy = row.summary.privacy.get(row.algorithm)
    where = with_unit(metric), "test set" if kind == TEST else kind.replace("_", " ")
    return [
        row.who,
        ", ".join(where),
        with_meaning(privacy.certified["third_party"]) if privacy else ABSENT,
        *_named(ranked[:1], metric),
        *(
            mean_and_std(over[which].score(metric), metric) if which in over else ABSENT
            for which in (WORST_GROUP, GROUP_GAP)
        ),
        *_named(smallest, metric),
    ]


def _named(one: Sequence[OfGroup], metric: str) -> tuple[str, str]:
    if not one:
        return ABSENT, ABSENT
    return one[0].title, mean_and_std(one[0].score(metric), metric)
