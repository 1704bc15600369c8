"""Results client by client: a row for each client of each algorithm and run, after the last round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedpriv.core.json_values import MARK
from fedpriv.engine.client_metric_names import KINDS, parsed
from fedpriv.engine.metric_words import in_percent, with_unit
from fedpriv.experiments.base.formats import ABSENT, field_name, mean_and_std, number
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.client_lines import ClientLine
from fedpriv.experiments.runs.measured import OF_CLIENTS
from fedpriv.experiments.runs.other_metric import check_recorded, named
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.client_notes import on_clients, over_clients_text
from fedpriv.experiments.tables.frame import Row, above, rows, with_keys
from fedpriv.experiments.tables.grid import Grid, on_rivals
from fedpriv.experiments.tables.over_clients import ClientScores
from fedpriv.models.score import main_metric

if TYPE_CHECKING:
    import pandas

OWN_RECORDS = (
    "over its records (or persons): 95 % interval over the client's own records, or its persons where the data say "
    "whose these are; of a fraction Clopper and Pearson's of as many records as have its standard error (DeLong's of "
    "an AUC), else Student's t; conditional on the trained models: it holds for further records of this client, not "
    "for another training, and is no narrower for several seeds; of N clients, N / 20 intervals miss by chance"
)


class OfClient(NamedTuple):
    """A client, as an algorithm of a run serves it; numbers by metric of the score.

    Attributes:
      row: the algorithm's.
      kind: of records and models, such as "held_out".
      client: its number in the federation.
      title: its name, where the run has names of clients, else this number.
      records: the weight of the records that it was evaluated on, the mean over the seeds.
      scores: over the seeds in which they are defined; None where they are in none.
      ends: of a 95 % interval of each score, over the client's own records, or persons; None where it has none.
      leads: how far the score is above the rival's, the mean over the seeds; NaN where it is undefined.
    """

    row: Row
    kind: str
    client: int
    title: str
    records: float
    scores: dict[str, Spread | None]
    ends: dict[str, tuple[float, float] | None]
    leads: dict[str, float]


def rows_with_clients(
    runs: Sequence[RunFolder],
    metric: str | Sequence[str] | None = None,
    rival: str | None = None,
) -> list[Row]:
    """The rows of the runs, with the means over clients of these metrics and what they are the means of.

    Args:
      metric: of the score, such as auc, of all kinds of records and models; or of one kind, such as held_out_auc_mean.
        By default the runs' own, else accuracy, loss or the first.
      rival: an algorithm to compare with.

    Raises:
      ValueError: nothing was evaluated client by client, or there is no such metric or rival.
    """
    every = [x for run in runs for name in run.results.rounds for x in run.last_of_clients(name)]
    lines = [line for line in every if line.kind in KINDS]
    if not lines:
        lost = [f"{run.path}: {x}" for run in runs for name in run.lines if (x := run.lost(name))]
        raise ValueError(
            f"by: {'; '.join(lost)}; restore it, or leave by out"
            if lost
            else "by: nothing was recorded client by client; train with per_client (--per-client N), or leave it out"
        )
    shown = _means(lines, metric, runs)
    found = rows([replace(run, shown=shown) for run in runs])
    return above(found, rival) if rival else found


def _means(
    lines: Sequence[ClientLine], metric: str | Sequence[str] | None, runs: Sequence[RunFolder]
) -> tuple[str, ...]:
    """The metrics as means over clients, of each kind that has them."""
    kinds: dict[str, dict[str, None]] = {}
    for line in lines:
        for name in line.metrics:
            kinds.setdefault(name, {})[line.kind] = None
    found: dict[str, None] = {}
    for name in named(metric) or shown_by(runs, [*kinds]):
        of = parsed(name)
        if of and of.by_group and metric is None:  # what the run shows
            name, of = of.metric, None
        of = of if of and of.kind in kinds.get(of.metric, ()) else None
        check_recorded([of.metric if of else name], [*kinds])
        own = [of.kind] if of else sorted(kinds[name], key=KINDS.index)
        found |= dict.fromkeys(f"{kind}_{of.metric if of else name}_mean" for kind in own)
    return tuple(found)


def shown_by(runs: Sequence[RunFolder], known: Sequence[str]) -> list[str]:
    """What the runs show, as far as there are values of single clients; else what `main_metric` takes."""
    shown = [name for run in runs for name in (run.shown or [run.results.metric])]
    of_clients = {name: of.metric if (of := parsed(name)) else name for name in shown}
    found = [name for name, metric in of_clients.items() if metric in known]
    return found or [main_metric(known)]


def clients_of(found: Sequence[Row]) -> list[OfClient]:
    """Results client by client, for each row and kind."""
    return [one for row in found for kind in KINDS for one in _of_kind(row, kind)]


def _of_kind(row: Row, kind: str) -> list[OfClient]:
    each: dict[str, ClientScores] = {}
    leads: dict[str, ClientScores] = {}
    for name, scores in row.clients.items():
        if (of := parsed(name)) and of.kind == kind:
            each[of.metric] = scores
            if name in row.leads_over_clients:
                leads[of.metric] = scores.above(row.below.clients[name])
    if not each:
        return []
    first = next(iter(each.values()))  # all metrics of a kind are of the same clients
    return [
        OfClient(
            row,
            kind,
            int(client),
            row.client_names[client] if client < len(row.client_names) else str(client),
            float(first.records[i]),
            {metric: _spread(scores.values[:, i]) for metric, scores in each.items()},
            {metric: scores.own_interval(i) for metric, scores in each.items()},
            {metric: _at(scores, client) for metric, scores in leads.items()},
        )
        for i, client in enumerate(first.clients)
    ]


def _spread(values: np.ndarray) -> Spread | None:
    known = values[~np.isnan(values)]
    return Spread.of(known) if len(known) else None


def _at(scores: ClientScores, client: int) -> float:
    at = np.flatnonzero(scores.clients == client)
    return float(scores.mean[at[0]]) if len(at) else float("nan")


def frame(found: Sequence[Row]) -> pandas.DataFrame:
    """Results client by client: a row for each client of each algorithm, run and kind."""
    import pandas

    return pandas.DataFrame.from_records([_record(one) for one in clients_of(found)])


def _record(one: OfClient) -> dict[str, Any]:
    row = one.row
    made: dict[str, Any] = {
        "config": row.summary.config,
        "algorithm": row.algorithm,
        "name": row.name,
        "rounds": row.summary.rounds.get(row.algorithm),
        "kind": one.kind,
        "client": one.client,
        **({"client_name": one.title} if row.client_names else {}),
        f"records{MARK}": one.records,
    }
    for metric, spread in one.scores.items():
        name = _marked(one, metric)
        made[f"{name}_mean"] = spread.mean if spread else None
        made[f"{name}_std"] = spread.std if spread else None
        made[f"{name}_seeds"] = len(spread.per_seed) if spread else 0
        made[f"{name}_low"], made[f"{name}_high"] = one.ends[metric] or (None, None)
    if row.below:
        made |= {"above": row.below.algorithm, "above_run": row.below.title}
    made |= {f"{_marked(one, metric)}_lead_mean": value for metric, value in one.leads.items()}
    return with_keys(row, made | {"folder": row.folder})


def _marked(one: OfClient, metric: str) -> str:
    """Its name in a file."""
    private = f"{one.kind}_{metric}_mean" not in one.row.public
    return metric + MARK * private


def grid(found: Sequence[Row]) -> Grid:
    """A row for each client, for people; the means over clients and their intervals are below."""
    each = clients_of(found)
    metrics = list(dict.fromkeys(metric for one in each for metric in one.scores))
    kinds = list(dict.fromkeys(one.kind for one in each))
    own = " or ".join(dict.fromkeys(map(_counted, found)))
    keys = {field_name(key): [str(one.row.keys[key]) for one in each] for key in found[0].keys}
    columns = {**keys, "algorithm": [one.row.name for one in each]}
    if len(kinds) > 1:
        columns["kind"] = [one.kind.replace("_", " ") for one in each]
    columns["client"] = [one.title for one in each]
    columns["records"] = [number(one.records) for one in each]
    for metric in metrics:
        spreads = [(one.scores.get(metric), metric in one.scores) for one in each]
        private = any(_marked(one, metric) != metric for one in each)
        columns[with_unit(metric) + ", not private" * private] = [
            mean_and_std(spread, metric) if spread else "undefined" if there else ABSENT
            for spread, there in spreads
        ]
        if any(one.ends.get(metric) for one in each):
            several = f"{with_unit(metric)}, " * (len(metrics) > 1)
            columns[f"{several}over its {own} (95 %)"] = [_ends(one, metric) for one in each]
        if any(metric in one.leads for one in each):
            rival = next(one.row.below.name for one in each if metric in one.leads)
            several = f"{with_unit(metric)} " * (len(metrics) > 1)
            columns[f"{several}above {rival}"] = [_lead(one, metric) for one in each]
    cells = [list(of) for of in zip(*columns.values(), strict=True)]
    return Grid(list(columns), cells, {}, _notes(found, kinds), len(keys))


def _counted(row: Row) -> str:
    """Whether intervals are over records, or over persons, as where the data say whose these are."""
    privacy = row.summary.privacy.get(row.algorithm)
    units = {certificate.unit for certificate in privacy.certified.values()} if privacy else ()
    return "persons" if "person" in units else "records"


def _ends(one: OfClient, metric: str) -> str:
    ends = one.ends.get(metric)
    if ends is None:
        return ABSENT
    factor, digits = (100, 2) if in_percent(metric) else (1, 4)
    return " to ".join(f"{factor * end:z.{digits}f}" for end in ends)


def _lead(one: OfClient, metric: str) -> str:
    value = one.leads.get(metric)
    if value is None:
        return ABSENT
    if np.isnan(value):
        return "undefined"
    return f"{100 * value:+z.2f}" if in_percent(metric) else f"{value:+z.4f}"


def _notes(found: Sequence[Row], kinds: Sequence[str]) -> list[str]:
    said = [f"{kind.replace('_', ' ')}: {OF_CLIENTS[kind]}" for kind in kinds]
    said.append(
        "after the last round; mean ± standard deviation (n - 1) over the seeds; client: "
        + ("its name" if any(row.client_names for row in found) else "its number in the federation")
        + "; not private: no epsilon covers publishing these numbers"
    )
    if any(of.ends is not None for row in found for of in row.clients.values()):
        said.append(OWN_RECORDS)
    if any(np.isnan(of.mean).any() for row in found for of in row.clients.values()):
        said.append("undefined: 0/0, such as a recall without a positive record, or not finite")
    for row in found:
        said += [
            f"{row.who}: {_mean_of(name)} {over_clients_text(of, name)}, {of.clients} clients"
            for name, of in row.over_clients.items()
        ]
        said += [
            f"{row.who}: {_mean_of(name)} above {row.below.who} {over_clients_text(of, name, '+')}, "
            f"{of.clients} clients"
            for name, of in row.leads_over_clients.items()
        ]
    return [*said, *on_clients(found), *on_rivals(found)]


def _mean_of(name: str) -> str:
    """A mean over clients, in words."""
    of = parsed(name)
    assert of is not None
    return f"mean {of.kind.replace('_', ' ')} {with_unit(of.metric)}"
