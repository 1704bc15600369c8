"""Who is hurt: results group by group, the worst group and the gap, after the last round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedpriv.core.json_values import MARK
from fedpriv.engine.client_metric_names import TEST, ClientMetric, by_group, parsed
from fedpriv.engine.metric_words import in_percent, with_unit
from fedpriv.experiments.base.formats import ABSENT, field_name, mean_and_std, number
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.measured import measured_on, together
from fedpriv.experiments.runs.other_metric import check_recorded, named
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.by_client import shown_by
from fedpriv.experiments.tables.client_notes import on_clients, over_clients_text
from fedpriv.experiments.tables.frame import Row, above, rows, with_keys
from fedpriv.experiments.tables.grid import ALONE, Grid, certified, on_rivals
from fedpriv.experiments.tables.leads import Lead, lead
from fedpriv.experiments.tables.over_clients import OverClients
from fedpriv.models.score import GROUP_GAP, WORST_GROUP

if TYPE_CHECKING:
    import pandas

OVER_GROUPS = {WORST_GROUP: "(worst)", GROUP_GAP: "(gap)"}
NOTHING = (
    "by: nothing was recorded group by group; train with measures.per_group (in a config: groups= and groups_of_test= "
    "of Experiment), or leave it out"
)


class OfGroup(NamedTuple):
    """A group, as an algorithm of a run serves it, or what a metric is over the groups.

    Attributes:
      row: the algorithm's.
      of: what the names of the metrics say, of the first one.
      names: metric of the score -> name of the number.
      clients, records: how many were evaluated, and the weight of their records; None over groups, and where it is not
        known.
    """

    row: Row
    of: ClientMetric
    names: dict[str, str]
    clients: int | None
    records: float | None

    @property
    def title(self) -> str:
        """The group; of a number over groups, which one."""
        return self.of.group or OVER_GROUPS[self.of.statistic]

    def score(self, metric: str) -> Spread | None:
        """Over the seeds."""
        return self.row.score("final", self.names.get(metric, ""))

    def over_seeds(self, metric: str) -> Lead | None:
        """The mean over the seeds with its interval, by Student's t."""
        score = self.score(metric)
        return lead(score.per_seed, [0.0] * len(score.per_seed)) if score else None

    def over_clients(self, metric: str) -> OverClients | None:
        """The mean over the group's clients with its intervals."""
        return self.row.over_clients.get(self.names.get(metric, ""))


def rows_with_groups(
    runs: Sequence[RunFolder],
    metric: str | Sequence[str] | None = None,
    rival: str | None = None,
) -> list[Row]:
    """The rows of the runs, with these metrics of each group and over the groups.

    Args:
      metric: of the score, such as auc, of all kinds of records and models; or of one kind, such as
        held_out_auc_group_gap. By default the runs' own, else accuracy, loss or the first.
      rival: an algorithm to compare with.

    Raises:
      ValueError: nothing was evaluated group by group, or there is no such metric or rival.
    """
    shown = tuple(name for of in chosen(runs, metric).values() for name in of.values())
    found = rows([replace(run, shown=shown) for run in runs])
    return above(found, rival) if rival else found


def chosen(
    runs: Sequence[RunFolder], metric: str | Sequence[str] | None = None
) -> dict[tuple[str, str], dict[str, str]]:
    """As `recorded`, of the metrics that `rows_with_groups` takes.

    Raises:
      ValueError: nothing was evaluated group by group, or there is no such metric.
    """
    known = recorded(runs)
    if not known:
        raise ValueError(NOTHING)
    metrics = list(dict.fromkeys(of for _, of in known))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in named(metric) or shown_by(runs, metrics):
        of = parsed(name)
        wanted, kind = (of.metric, of.records) if of else (name, None)
        check_recorded([wanted], metrics)
        every = [key for key in known if key[1] == wanted]
        for key in [key for key in every if key[0] == kind] or every:
            found[key] = known[key]
    return found


def recorded(runs: Sequence[RunFolder]) -> dict[tuple[str, str], dict[str, str]]:
    """(kind of records, metric) -> by group, then by statistic over groups, names of what the runs recorded last."""
    each = [of[-1].diagnostics_not_private for run in runs for of in run.lines.values() if of]
    return by_group(dict.fromkeys(name for line in each for name in line))


def groups_of(found: Sequence[Row]) -> list[OfGroup]:
    """Results group by group, for each row and kind; the groups with most clients first, what is over them last."""
    return [one for row in found for one in _groups_of(row)]


def _groups_of(row: Row) -> list[OfGroup]:
    each: dict[tuple[str, str | None, str], OfGroup] = {}
    for name in row.metrics:
        of = parsed(name)
        if of is None or row.score("final", name) is None:
            continue
        key = of.records, of.group, of.statistic
        if key not in each:
            clients = row.clients.get(name)
            size = None if clients is None else (len(clients.clients), float(clients.records.sum()))
            each[key] = OfGroup(row, of, {}, *(size or (None, None)))
        each[key].names[of.metric] = name
    kinds = list(dict.fromkeys(records for records, *_ in each))
    return sorted(each.values(), key=lambda one: (kinds.index(one.of.records), *_place(one)))


def _place(one: OfGroup) -> tuple[float, ...]:
    over = [*OVER_GROUPS].index(one.of.statistic) + 1 if one.of.group is None else 0
    return over, -(one.clients or 0), -(one.records or 0)


def frame(found: Sequence[Row]) -> pandas.DataFrame:
    """Results group by group: a row for each group of each algorithm, run and kind, and for each number over them."""
    import pandas

    return pandas.DataFrame.from_records([_record(one) for one in groups_of(found)])


def _record(group: OfGroup) -> dict[str, Any]:
    row = group.row
    privacy = row.summary.privacy.get(row.algorithm)
    made: dict[str, Any] = {
        "config": row.summary.config,
        "algorithm": row.algorithm,
        "name": row.name,
        "rounds": row.summary.rounds.get(row.algorithm),
        "rounds_uncounted": privacy.uncounted if privacy else None,
        "kind": group.of.records,
        "group": group.of.group,
        "statistic": group.of.statistic,
        "clients": None if group.of.records == TEST else group.clients,
        "records" + MARK * (group.of.records != TEST): group.records,
    }
    for of_score, name in group.names.items():
        metric = of_score + MARK * (name not in row.public)
        score, interval = group.score(of_score), group.over_seeds(of_score)
        made[f"{metric}_mean"] = score.mean if score else None
        made[f"{metric}_std"] = score.std if score else None
        made[f"{metric}_seeds"] = len(score.per_seed) if score else 0
        made[f"{metric}_low"] = interval.low if interval else None
        made[f"{metric}_high"] = interval.high if interval else None
        parts: list[tuple[str, Lead | OverClients | None]] = [
            ("over_clients", group.over_clients(of_score)),
            ("lead", row.leads.get(name, {}).get("final")),
            ("lead_over_clients", row.leads_over_clients.get(name)),
        ]
        made |= {
            f"{metric}_{what}_{k}": x
            for what, one in parts
            if one
            for k, x in one._asdict().items()
        }
    if row.below:
        made |= {"above": row.below.algorithm, "above_run": row.below.title}
    epsilon = privacy.certified["third_party"] if privacy else None
    for part in ("epsilon", "delta", "unit", "view", "relation", "basis"):
        made[part] = getattr(epsilon, part, None)
    return with_keys(row, made | {"folder": row.folder})


def grid(found: Sequence[Row]) -> Grid:
    """A row for each group, for people, then the worst group and the gap of each seed."""
    each, letters = groups_of(found), dict[str, str]()
    metrics = list(dict.fromkeys(metric for one in each for metric in one.names))
    kinds = list(dict.fromkeys(one.of.records for one in each))
    keys = {field_name(key): [str(one.row.keys[key]) for one in each] for key in found[0].keys}
    columns = {**keys, "algorithm": [one.row.name for one in each]}
    columns["ε, third party"] = [certified(one.row, "third_party", letters) for one in each]
    if len(kinds) > 1:
        columns["kind"] = [one.of.records.replace("_", " ") for one in each]
    columns["group"] = [one.title for one in each]
    if {*kinds} != {TEST}:
        columns["clients"] = [
            ABSENT if one.of.records == TEST else number(one.clients, 10) for one in each
        ]
    columns["records"] = [number(one.records) for one in each]
    for metric in metrics:
        columns |= _of_metric(each, metric, len(metrics) > 1)
    cells = [list(of) for of in zip(*columns.values(), strict=True)]
    return Grid(list(columns), cells, letters, _notes(found, each), len(keys))


def _of_metric(each: Sequence[OfGroup], metric: str, several: bool) -> dict[str, list[str]]:
    """The columns of a metric: its score, its intervals, and how far it is above the rival's."""
    names = [(one.row.public, one.names[metric]) for one in each if metric in one.names]
    private = any(name not in public for public, name in names)
    named, columns = with_unit(metric), dict[str, list[str]]()
    named += ", not private" * private
    about = f"{named} " * several
    columns[named] = [_score(one, metric) for one in each]
    if any((seeds := one.over_seeds(metric)) and seeds.low is not None for one in each):
        columns[f"{about}over seeds (95 %)"] = [_over_seeds(one, metric) for one in each]
    if any((of := one.over_clients(metric)) and of.low is not None for one in each):
        over = [over_clients_text(one.over_clients(metric), metric) for one in each]
        columns[f"{about}over clients (95 %)"] = over
    below = [one.row.below.name for one in each if one.row.below]
    if below:
        columns[f"{about}above {below[0]} (95 %)"] = [_lead(one, metric) for one in each]
        led = [(one.row, one.names.get(metric, "")) for one in each]
        if any(name in row.leads_over_clients for row, name in led):
            columns[f"{about}above {below[0]}, over clients (95 %)"] = [
                over_clients_text(row.leads_over_clients.get(name), metric, "+")
                for row, name in led
            ]
    return columns


def _score(one: OfGroup, metric: str) -> str:
    score = one.score(metric)
    if score is None or not np.isnan(score.mean):
        return mean_and_std(score, metric)
    over = one.over_clients(metric)
    return "undefined" if one.clients is None or (over and not over.clients) else "not finite"


def _over_seeds(one: OfGroup, metric: str) -> str:
    of = one.over_seeds(metric)
    if of is None or of.low is None or of.high is None:
        return ABSENT if of is None else of.how
    factor, digits = (100, 2) if in_percent(metric) else (1, 4)
    return f"{factor * of.low:z.{digits}f} to {factor * of.high:z.{digits}f}"


def _lead(one: OfGroup, metric: str) -> str:
    of = one.row.leads.get(one.names.get(metric, ""), {}).get("final")
    if of is None:
        return ABSENT
    return of.text(100) if in_percent(metric) else of.text(digits=4)


def _notes(found: Sequence[Row], each: Sequence[OfGroup]) -> list[str]:
    kinds = {one.of.records: name for one in each for name in one.names.values() if one.of.group}
    public = together(one.row.public for one in each)
    said = [
        f"{kind.replace('_', ' ')}: {measured_on(name, public).partition(', group')[0]}"
        for kind, name in kinds.items()
    ]
    said += [
        "after the last round; of a group: the mean over its clients, each counting equally; mean ± standard deviation "
        "(n - 1) over the seeds",
        "(worst): of each seed the group that fares worst, (gap): of each seed the best group less the worst; their "
        "means over the seeds",
        "over seeds: 95 % interval of the mean over the seeds, by Student's t",
        ALONE,
    ]
    return [*said, *on_clients(found), *on_rivals(found)]
