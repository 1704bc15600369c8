"""A table of results, a line per run and algorithm, as Markdown and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.base.formats import NAMES, epsilon, hyphenated, label, markdown, metric_cell
from experiments.base.json_values import plain
from experiments.base.spread import Spread
from experiments.runs.contents import CHOSEN, Report, Summary
from experiments.runs.run_folder import RunFolder, names
from experiments.tables.terminal import claimed, counted, not_private, of_planned
from fedpriv.privacy import VIEWS

SHOWN = (
    "third_party",
    "server",
)  # views with a column of their own, beside those that the runs show

NOISE = "noise_multiplier"  # the field of a config
ABOVE = "above "  # what a metric that `above` makes begins with


class Row(NamedTuple):
    """An algorithm of a run.

    Attributes:
      title: tells the run from the others.
      below: of another run, what `above` compared it with.
    """

    title: str
    algorithm: str
    summary: Summary
    below: str | None = None


class Columns(NamedTuple):
    """What a table has beside run, algorithm and rounds.

    Attributes:
      metrics: of the last evaluation.
      views: with a certified epsilon.
      best: whether also the best of each metric over the evaluations, which is chosen on the test set.
      noise: whether there is any.
    """

    metrics: Sequence[str]
    views: Sequence[str]
    best: bool = False
    noise: bool = True

    @classmethod
    def of(
        cls, summaries: Sequence[Summary], views: Sequence[str] | None = None, best: bool = False
    ) -> Columns:
        """By default the views of `SHOWN`, and those that the runs show."""
        leads = (m for m in measured(summaries) if m.startswith(ABOVE))
        metrics = list(dict.fromkeys([*(s.metric for s in summaries if s.metric), *leads]))
        noise = any(noise_of(s, name) for s in summaries for name in s.rounds)
        chosen = {*SHOWN, *own_views(summaries)}
        return cls(metrics, views or [v for v in VIEWS if v in chosen], best, noise)

    @property
    def spreads(self) -> list[tuple[str, str]]:
        """Field of a summary and metric, of each column with a metric."""
        return [(which, m) for m in self.metrics for which in ("final", *["best"][: self.best])]


def own_views(summaries: Sequence[Summary]) -> list[str]:
    """The views that the runs' own tables show."""
    found = [s.settings.get("view") for s in summaries if s.settings.get("views") != "all"]
    every = len(found) < len(summaries)
    return [view for view in VIEWS if every or view in found]


def _noise(summary: Summary, name: str) -> dict[str, float]:
    """The noise multiplier, or the fields that a budget was solved for; empty where nothing is private."""
    if not_private(summary.privacy[name].certified.values(), summary.privacy[name].claimed):
        return {}
    own = {**summary.settings, **summary.algorithm_settings.get(name, {})}
    found = summary.solved.get(name) or {NOISE: own.get(NOISE)}
    return {field: x for field, x in found.items() if isinstance(x, int | float)}


def noise_of(summary: Summary, name: str) -> str:
    """The noise multiplier; what else was solved for stands after its name."""
    found = _noise(summary, name)
    return ", ".join(f"{x:.4g}" if f == NOISE else f"{f} {x:.4g}" for f, x in found.items())


def rows(runs: Sequence[RunFolder]) -> list[Row]:
    """Of all that was evaluated; a run that is not complete says so in its title."""
    found = []
    for run, title in zip(runs, names(runs), strict=True):
        status = run.results.status
        title += "" if status == "complete" else f" ({status.partition(':')[0]})"
        found += [Row(title, name, run.results) for name in run.results.rounds]
    return found


def above(found: Sequence[Row], rival: str) -> list[Row]:
    """With one more metric: what each row's last and best score are above a rival's, seed by seed.

    The rival is the one of the row's own run, else the only one of its config.

    Raises:
      ValueError: there is none, or there are several, or it has another number of seeds or of rounds.
    """
    return [r if r.algorithm == rival else _above(r, _rival(r, found, rival)) for r in found]


def _rival(row: Row, found: Sequence[Row], name: str) -> Row:
    config, who = row.summary.config, f"{row.algorithm} of {row.title}"
    every = [r for r in found if r.algorithm == name and r.summary.config == config]
    own = [r for r in every if r.title == row.title] or every
    if not own:
        there = ", ".join(dict.fromkeys(r.algorithm for r in found if r.summary.config == config))
        raise ValueError(
            f"--above: {name} is in no run of {config}; choose one of {there}, or add a run"
        )
    if len(own) > 1:
        where = " and ".join(r.title for r in own)
        raise ValueError(
            f"--above: {name} is in {where}, {who} in neither; give one of them, or one in each"
        )
    if _extent(row) != _extent(own[0]):
        raise ValueError(
            f"--above: {who} has {_extent(row)}, {name} of {own[0].title} {_extent(own[0])}; train them alike"
        )
    return own[0]


def _extent(r: Row) -> str:
    return f"{r.summary.rounds[r.algorithm]} rounds and {_seeds(r)} seed(s)"


def _above(row: Row, rival: Row) -> Row:
    metric, changed = row.summary.metric, {}
    name = NAMES.get(rival.algorithm, rival.algorithm)
    for which in ("final", "best"):
        every, than = getattr(row.summary, which), getattr(rival.summary, which)[rival.algorithm]
        own = every[row.algorithm]
        with np.errstate(invalid="ignore"):  # of two that are infinite
            lead = Spread.of(np.subtract(own[metric].per_seed, than[metric].per_seed))
        changed[which] = {**every, row.algorithm: {**own, f"{ABOVE}{name}'s {metric}": lead}}
    below = None if rival.title == row.title else f"{name} of {rival.title}"
    return row._replace(summary=replace(row.summary, **changed), below=below)


def as_markdown(
    found: Sequence[Row], views: Sequence[str] | None = None, best: bool = False
) -> str:
    """What every epsilon means stands in its row and below."""
    shown = Columns.of([r.summary for r in found], views, best)
    lines = [["run", *head(shown)]]
    lines += [[r.title, *cells(r.summary, r.algorithm, shown)] for r in found]
    return markdown(lines, [*[CHOSEN][: shown.best], *notes(found)])


def head(shown: Columns) -> list[str]:
    """A row of `cells`, named."""
    metrics = [metric if which == "final" else "best" for which, metric in shown.spreads]
    noise = ["noise multiplier"] if shown.noise else []
    certified = [f"certified, {view.replace('_', ' ')}" for view in shown.views]
    parts = ["algorithm", "rounds", *noise, *metrics, "MB up", "unit", "delta", "claimed"]
    return [*parts, *certified]


def cells(summary: Summary, name: str, shown: Columns) -> list[str]:
    """An algorithm's line, below `head`."""
    privacy = summary.privacy[name]
    third_party = privacy.certified["third_party"]
    found = [(metric, getattr(summary, which)[name]) for which, metric in shown.spreads]
    return [
        NAMES.get(name, name),
        of_planned(summary, name),
        *[noise_of(summary, name) or "-"][: shown.noise],
        *(metric_cell(metric, of) if metric in of else "-" for metric, of in found),
        f"{summary.uplink_mb_per_client[name]:.4g}",
        third_party.unit,
        f"{third_party.delta:.3g}",
        _claimed(privacy),
        *(_certified(privacy, view) for view in shown.views),
    ]


def notes(found: Sequence[Row]) -> list[str]:
    """What a reader of the table has to know: which rows were stopped early and what that means, what was assumed."""
    said: list[str] = []
    stopped = [r for r in found if r.algorithm in r.summary.stopped]
    if stopped:
        who = dict.fromkeys(label(r.algorithm) for r in stopped)
        whys = dict.fromkeys(r.summary.stopped[r.algorithm].partition(": ")[2] for r in stopped)
        said.append(
            f'{", ".join(who)}, where rounds are "n of N": stopped early, by the test set ({"; ".join(whys)}), so that '
            "the metrics are selected on the test set and optimistic; epsilon is of all N rounds planned, as the "
            "models chose when to stop"
        )
        if any(_seeds(r) > 1 for r in stopped):
            said.append("the seeds stopped together, which no epsilon here covers")
    for r in found:
        done, planned = r.summary.rounds[r.algorithm], r.summary.rounds_planned.get(r.algorithm)
        if planned and done < planned and r.algorithm not in r.summary.stopped:
            of = counted(done, r.summary.privacy[r.algorithm].rounds)
            said.append(f"{label(r.algorithm)}, {r.title}: not trained to the end; its {of}")
        if r.below:
            said.append(f"{label(r.algorithm)}, {r.title}: compared with {r.below}")
    return [*said, *dict.fromkeys(note for r in found for note in r.summary.privacy_notes)]


def _seeds(r: Row) -> int:
    return len(r.summary.final[r.algorithm][r.summary.metric].per_seed)


def _claimed(privacy: Report) -> str:
    claim = privacy.claimed
    if claim is None:
        return "-"
    doubt = (
        "" if claim.sound else ", not proved" if claim.status == "claimed" else f", {claim.status}"
    )
    return f"{claimed(privacy)} ({hyphenated(claim.relation)}){doubt}"


def _certified(privacy: Report, view: str) -> str:
    number = privacy.certified.get(view)  # a run that has not ended has one for a third party alone
    if number is None:
        return "-"
    if number.epsilon == float("inf"):
        return "not private"
    return f"{epsilon(number.epsilon)} ({hyphenated(number.relation)}, {number.basis})"


def measured(summaries: Iterable[Summary]) -> list[str]:
    """All metrics there are."""
    return list(dict.fromkeys(m for s in summaries for of in s.final.values() for m in of))


def record(summary: Summary, name: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Plain numbers of an algorithm; None where there is none."""
    final = summary.final.get(name, {}).get(summary.metric)
    found: dict[str, Any] = {
        "algorithm": name,
        "status": _status(summary, name),
        "rounds": summary.rounds.get(name, 0),
        "rounds_planned": summary.rounds_planned.get(name),
        "stopped": summary.stopped.get(name),
        "seeds": final and len(final.per_seed),
    }
    for metric in metrics:
        for which, spreads in (("final", summary.final), ("best", summary.best)):
            of = spreads.get(name, {}).get(metric)
            for part in ("mean", "std"):
                found[f"{metric}_{which}_{part}"] = plain(getattr(of, part, None))
    found["best_chosen_on"] = "test set"
    noise = _noise(summary, name) if name in summary.rounds else {}
    found["trained_noise_multiplier"] = plain(noise.get(NOISE))
    found["uplink_mb_per_client"] = plain(summary.uplink_mb_per_client.get(name))
    found["downlink_mb_per_client"] = plain(summary.downlink_mb_per_client.get(name))
    privacy = summary.privacy.get(name)
    epsilons: dict[str, Any] = {"claimed": privacy and privacy.claimed}
    epsilons |= {f"certified_{v}": privacy and privacy.certified.get(v) for v in VIEWS}
    for kind, number in epsilons.items():
        for part in ("epsilon", "delta", "unit", "view", "relation"):
            found[f"{kind}_{part}"] = plain(getattr(number, part, None))
        if kind != "claimed":
            found[f"{kind}_basis"] = getattr(number, "basis", None)
    found["claimed_sound"] = getattr(epsilons["claimed"], "sound", None)
    found["rounds_per_second"] = plain(summary.rounds_per_second.get(name))
    found["compile_seconds"] = summary.compile_seconds.get(name)
    return found | {"reused_from": summary.reused_from.get(name)}


def _status(summary: Summary, name: str) -> str:
    """Of its own training, which may have ended where another one's diverged."""
    if name in summary.diverged:
        return "diverged"
    planned = summary.rounds_planned.get(name)
    ended = name in summary.stopped or summary.rounds.get(name) == planned
    return "complete" if ended else summary.status.partition(":")[0]


def records(found: Sequence[Row]) -> list[dict[str, Any]]:
    names = measured(r.summary for r in found)
    return [
        {"run": r.title, "config": r.summary.config, **record(r.summary, r.algorithm, names)}
        for r in found
    ]


def write_csv(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
