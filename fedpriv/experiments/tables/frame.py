"""Results as one table of numbers: a row for each algorithm of each run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedpriv.core.json_values import MARK
from fedpriv.engine.client_metric_names import parsed
from fedpriv.experiments.base.formats import setting
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.runs.contents import NOISE, Summary
from fedpriv.experiments.runs.measured import chosen_on
from fedpriv.experiments.runs.other_metric import scores
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.runs.run_names import names, swept
from fedpriv.experiments.tables.leads import Lead, lead
from fedpriv.experiments.tables.over_clients import ClientScores, OverClients, behind, over_clients
from fedpriv.privacy import VIEWS

if TYPE_CHECKING:
    import pandas

OF_EPSILON = ("epsilon", "delta", "unit", "view", "relation")
FORMULAS = tuple("=+-@\t\r\n")  # what a cell of a spreadsheet begins with that computes


class Row(NamedTuple):
    """A row of results: an algorithm of a run.

    Attributes:
      keys: what tells the run from the others: {"run": its title}, or the fields that were swept.
      folder: the run's.
      chosen: "final" and "best" of the metrics that were chosen, None where one was not recorded; None where none was
        chosen.
      clients: by metric that is a mean over clients, what it is the mean of, after the last round.
      over_clients: likewise, its intervals over clients, where none of them has diverged.
      leads: by metric, "final" and "best" score above the rival's.
      leads_over_clients: likewise, client by client after the last round.
      below: the rival's row, where there is one.
      higher: metrics that are better when higher, beside accuracies.
      lost: what of the values of single clients is not there, in words.
      num_clients: of the federation; 0 where it is not known.
      client_names: of each of these; () where they have none.
      swept: settings in which it differs from other runs of its config, where its title is its key.
    """

    keys: Mapping[str, Any]
    algorithm: str
    summary: Summary
    folder: str
    chosen: Mapping[str, Mapping[str, Spread | None]] | None = None
    clients: Mapping[str, ClientScores] = {}
    over_clients: Mapping[str, OverClients] = {}
    leads: Mapping[str, Mapping[str, Lead]] = {}
    leads_over_clients: Mapping[str, OverClients] = {}
    below: Any = None
    higher: Sequence[str] = ()
    lost: str = ""
    num_clients: int = 0
    client_names: Sequence[str] = ()
    swept: Mapping[str, Any] = {}

    @property
    def title(self) -> str:
        if [*self.keys] == ["run"]:
            return str(self.keys["run"])
        return ", ".join(setting(field, value) for field, value in self.keys.items())

    @property
    def name(self) -> str:
        """For people."""
        return self.summary.name_of(self.algorithm)

    @property
    def who(self) -> str:
        """The algorithm, of which run."""
        return ", ".join(filter(None, [self.summary.short_name_of(self.algorithm), self.title]))

    @property
    def seeds(self) -> int | None:
        """None before the first evaluation."""
        final = self.summary.last(self.algorithm)
        return len(next(iter(final.values())).per_seed) if final else None

    @property
    def metrics(self) -> list[str]:
        """Those to show."""
        if self.chosen is not None:
            return [*self.chosen["final"]]
        return [self.summary.metric] if self.summary.metric else []

    def score(self, which: str, metric: str) -> Spread | None:
        """The "final" or "best" one of a metric; None where it was not recorded."""
        if self.chosen is not None:
            return self.chosen[which].get(metric)
        every = self.summary.bests if which == "best" else self.summary.last
        return every(self.algorithm).get(metric)

    @property
    def public(self) -> Public:
        """What of all that was measured is public."""
        return self.summary.public


def rows(runs: Sequence[RunFolder]) -> list[Row]:
    """Rows of results: of all that was evaluated, or diverged before; the title says which run is not complete."""
    found = []
    for run, title, own in zip(runs, names(runs), swept(runs), strict=True):
        status = run.results.status
        title += "" if status == "complete" else f" ({status.partition(':')[0]})"
        trained = dict.fromkeys([*run.results.rounds, *run.results.diverged])
        found += [row(run, {"run": title}, name)._replace(swept=own) for name in trained]
    return found


def row(run: RunFolder, keys: Mapping[str, Any], algorithm: str) -> Row:
    """A row of results: of an algorithm, with the metrics that were chosen for its run."""
    chosen, higher = scores(run, algorithm), run.begun.higher
    made = Row(keys, algorithm, run.results, str(run.path), chosen, higher=higher)
    begun = run.begun
    made = made._replace(num_clients=begun.num_clients, client_names=begun.client_names)
    if not any(of and of.statistic == "mean" for of in map(parsed, made.metrics)):
        return made
    lines = run.last_of_clients(algorithm)
    each = {metric: behind(lines, metric) for metric in made.metrics}
    clients = {metric: of for metric, of in each.items() if of}
    over = {
        m: over_clients(of.mean)
        for m, of in clients.items()
        if of.of_clients and _finite(made.score("final", m))
    }
    return made._replace(clients=clients, over_clients=over, lost=run.lost(algorithm))


def _finite(of: Spread | None) -> bool:
    """Whether no client has diverged: an interval over the others would not say so."""
    return of is None or math.isfinite(of.mean)


def above(found: Sequence[Row], rival: str, best: bool = False) -> list[Row]:
    """With what each row's last scores are above a rival's, and the best, too, where asked.

    The rival is the one of the row's own run, else the only one of its config, else the only one there is. Where the
    rival is the title of a run, as "bits = none", it is the row's own algorithm there.

    Raises:
      ValueError: there is none, or there are several, or it did another number of rounds.
    """
    scores = ("final", *["best"][:best])
    if run := [r for r in found if r.title == rival]:
        same = {r.algorithm: r for r in run}
        return [
            r
            if r in run or r.seeds is None or r.algorithm not in same
            else _above(r, _comparable(r, same[r.algorithm]), scores)
            for r in found
        ]
    return [
        r if r.algorithm == rival or r.seeds is None else _above(r, _rival(r, found, rival), scores)
        for r in found
    ]


def _rival(row: Row, found: Sequence[Row], name: str) -> Row:
    config, who = row.summary.config, f"{row.algorithm} of {row.title}"
    every = [r for r in found if r.algorithm == name]
    if not every:
        there = ", ".join(dict.fromkeys(r.algorithm for r in found))
        raise ValueError(
            f"above: {name} is in none of these runs; choose one of {there}, or add a run"
        )
    alike = [r for r in every if r.summary.config == config] or every
    own = [r for r in alike if r.keys == row.keys] or alike
    if len(own) > 1:
        where = " and ".join(r.title for r in own)
        raise ValueError(
            f"above: {name} is in {where}, {who} in neither; give one of them, or one in each"
        )
    return _comparable(row, own[0])


def _comparable(row: Row, rival: Row) -> Row:
    """The rival; raises ValueError where it has no score to compare with the row's."""
    who, name = f"{row.algorithm} of {row.title}", rival.algorithm
    if rival.seeds is None:
        raise ValueError(f"above: {name} of {rival.title} diverged before its first evaluation")
    if rival.metrics != row.metrics:
        mine, other = (" and ".join(r.metrics) for r in (row, rival))
        raise ValueError(
            f"above: {who} has {mine}, {name} of {rival.title} {other}; give runs of one metric, or choose it with "
            "metric"
        )
    if not _equally_long(row, rival):
        done, its = (r.summary.rounds.get(r.algorithm) for r in (row, rival))
        raise ValueError(
            f"above: {who} has {done} rounds, {name} of {rival.title} {its}; train both equally long"
        )
    return rival


def _equally_long(row: Row, rival: Row) -> bool:
    """Whether they did as many rounds; of late clients, whether they took as many simulated hours, up to a round."""
    done, its = (r.summary.rounds.get(r.algorithm, 0) for r in (row, rival))
    hours, its_hours = (r.summary.hours_per_round(r.algorithm) for r in (row, rival))
    if hours is None or its_hours is None:
        return done == its
    return abs(done * hours - its * its_hours) < max(hours, its_hours)


def _above(row: Row, rival: Row, which: Sequence[str]) -> Row:
    own, than = (r.summary for r in (row, rival))
    paired = own.config == than.config and own.prng == than.prng and own.streams == than.streams
    leads: dict[str, dict[str, Lead]] = {}
    for metric in row.metrics:
        for w in which:
            mine, other = row.score(w, metric), rival.score(w, metric)
            if mine and other:
                leads.setdefault(metric, {})[w] = lead(mine.per_seed, other.per_seed, paired)
    common = [m for m in row.over_clients if m in rival.over_clients and paired]
    clients = {m: over_clients(row.clients[m].above(rival.clients[m]).mean) for m in common}
    return row._replace(leads=leads, leads_over_clients=clients, below=rival)


def frame(found: Sequence[Row]) -> pandas.DataFrame:
    """Results as a frame: a line for each row; columns have their unit in their name, shares of 1 have none, and
    say in it what is not private.

    An epsilon has columns for its delta, unit, view, adjacency (`_relation`) and basis beside it.
    """
    import pandas

    return pandas.DataFrame.from_records(records(found))


def as_csv(made: pandas.DataFrame) -> str:
    """A frame as a file; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    texts = made.select_dtypes(exclude="number").columns
    quoted = made.assign(**{name: made[name].map(_no_formula) for name in texts})
    return str(quoted.rename(columns=_no_formula).to_csv(index=False))


def _no_formula(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(FORMULAS):
        return cell
    try:
        float(cell)  # a number as text
    except ValueError:
        return f"'{cell}"
    return cell


def records(found: Sequence[Row]) -> list[dict[str, Any]]:
    """The frame's lines, all with the same keys; those come first that a notebook shows of a frame, ten."""
    metrics = measured(found)
    made = [_record(r, metrics) for r in found]
    every = dict.fromkeys([*_first(found), *(column for line in made for column in line)])
    return [{column: line.get(column) for column in every} for line in made]


def _first(found: Sequence[Row]) -> list[str]:
    """The columns that everyone looks for: whose row it is, the metrics that are shown, the epsilon that was asked for.

    An epsilon comes with all that belongs to it.
    """
    keys, metrics, views = dict[str, None](), dict[str, None](), dict[str, None]()
    for r in found:
        keys |= dict.fromkeys(r.keys)
        metrics |= dict.fromkeys(map(r.public.marked, r.metrics))
        views[r.summary.settings.get("view", "third_party")] = None
    epsilons = [f"certified_{view}_{part}" for view in views for part in (*OF_EPSILON, "basis")]
    scores = [f"{metric}_final_{part}" for metric in metrics for part in ("mean", "std")]
    return [*keys, "name", *scores, *epsilons]


def measured(found: Iterable[Row]) -> list[str]:
    """For a frame: the metrics that were chosen; where none was, those that the summaries have."""
    each = (r.metrics if r.chosen is not None else r.summary.last(r.algorithm) for r in found)
    return list(dict.fromkeys(metric for of in each for metric in of))


def _record(row: Row, metrics: Sequence[str]) -> dict[str, Any]:
    """None where there is no number."""
    summary, name = row.summary, row.algorithm
    privacy = summary.privacy.get(name)
    found: dict[str, Any] = {
        "config": summary.config,
        "algorithm": name,
        "name": row.name,
        "status": _status(summary, name),
        "rounds": summary.rounds.get(name, 0),
        "rounds_planned": summary.rounds_planned.get(name),
        "rounds_uncounted": privacy.uncounted if privacy else None,
        "stopped": summary.stopped.get(name),
        "diverged": summary.diverged.get(name),
        "seeds": row.seeds,
        "metric": ", ".join(row.metrics) or None,
    }
    for metric in metrics:
        for which in ("final", "best"):
            of = row.score(which, metric)
            if which == "best" and of is None and metric not in row.public:
                continue  # none is chosen
            for part in ("mean", "std"):
                found[f"{row.public.marked(metric)}_{which}_{part}"] = getattr(of, part, None)
    by = [chosen_on(metric, row.public) for metric in row.metrics if row.score("best", metric)]
    found["best_chosen_on"] = ", ".join(dict.fromkeys(by)) or None
    found["not_covered"] = "; ".join(summary.not_covered) or None
    found |= _parts("over_clients", row.over_clients, row.public)
    if row.below:
        found |= {"above": row.below.algorithm, "above_run": row.below.title}
    for which in ("final", "best"):
        own = {metric: of[which] for metric, of in row.leads.items() if which in of}
        found |= _parts(f"lead_{which}", own, row.public)
    found |= _parts("lead_over_clients", row.leads_over_clients, row.public)
    trained = noise(summary, name)
    found |= {f"trained_{field}": trained.get(field) for field in (NOISE, *trained)}
    found[f"uplink_mb_per_client{MARK}"] = summary.uplink_mb_per_client.get(name)
    found[f"downlink_mb_per_client{MARK}"] = summary.downlink_mb_per_client.get(name)
    epsilons: dict[str, Any] = {"claimed": privacy and privacy.claimed}
    epsilons |= {f"certified_{v}": privacy and privacy.certified.get(v) for v in VIEWS}
    for kind, number in epsilons.items():
        for part in OF_EPSILON:
            found[f"{kind}_{part}"] = getattr(number, part, None)
        if kind != "claimed":
            found[f"{kind}_basis"] = getattr(number, "basis", None)
    for view, groups in (privacy.group_epsilons if privacy else {}).items():
        found |= {f"certified_{view}_epsilon_of_{name}": x for name, x in groups.items()}
    for part in ("sound", "status", "source"):
        found[f"claimed_{part}"] = getattr(epsilons["claimed"], part, None)
    found[f"rounds_per_second{MARK}"] = summary.rounds_per_second.get(name)
    found["compile_seconds"] = summary.compile_seconds.get(name)
    found |= {"reused_from": summary.reused_from.get(name), "folder": row.folder}
    return with_keys(row, found)


def with_keys(row: Row, found: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a frame, and before it which run it is of, and what was swept: `swept_NAME` where a name is taken."""
    keys = {**row.keys, **row.swept}
    own = {f"swept_{key}" if key in found else key: value for key, value in keys.items()}
    return {**own, **found}


def _parts(what: str, each: Mapping[str, Lead | OverClients], public: Public) -> dict[str, Any]:
    """A column for each part of an interval, by metric."""
    return {
        f"{public.marked(metric)}_{what}_{part}": value
        for metric, of in each.items()
        for part, value in of._asdict().items()
    }


def _status(summary: Summary, name: str) -> str:
    """Of its own training, which may have ended where another one's diverged."""
    if name in summary.diverged:
        return "diverged"
    says_so = bool(summary.versions)  # a run without summary.json has yet to say how it ended
    all_rounds = says_so and summary.rounds.get(name) == summary.rounds_planned.get(name)
    ended = all_rounds or name in summary.stopped
    return "complete" if ended else summary.status.partition(":")[0]


def noise(summary: Summary, name: str) -> dict[str, float]:
    """The noise multiplier, or the fields that a budget was solved for; empty where nothing is private, or trained."""
    if name not in summary.rounds or not summary.privacy[name].is_private:
        return {}
    own = {**summary.settings, **summary.algorithm_settings.get(name, {})}
    found = summary.solved.get(name) or {NOISE: own.get(NOISE)}
    return {field: x for field, x in found.items() if isinstance(x, int | float)}
