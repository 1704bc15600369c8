"""The frame in words: which columns people see, and what they have to know to read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedpriv.engine.metric_words import in_percent
from fedpriv.experiments.base.formats import (
    ABSENT,
    epsilons_by_group,
    field_name,
    markdown_table,
    mean_and_std,
    number,
    of_which,
    setting,
)
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.config.stopping import decided
from fedpriv.experiments.runs.contents import NOISE, Report, Summary
from fedpriv.experiments.runs.measured import best_note, chosen_on, heading, measured_on, together
from fedpriv.experiments.runs.run_names import interesting
from fedpriv.experiments.tables.client_notes import on_clients, over_clients_text
from fedpriv.experiments.tables.frame import Row, measured, noise
from fedpriv.experiments.tables.leads import TOO_FEW
from fedpriv.models.score import better_higher
from fedpriv.privacy import VIEWS, Certificate, Claim
from fedpriv.privacy.epsilon_words import meaning_of_epsilon, only_not_covered

SHOWN = ("third_party",)  # views with a column, beside those that the runs show
SWEPT = {"target_epsilon": "ε budget"} | {x: f"{x} set" for x in ("algorithm", "rounds", "seeds")}
"""Names of swept fields that would be taken for a column's own."""
ALONE = (
    "every epsilon is of ONE model (one algorithm, one seed) released alone; choosing among models or settings by a "
    "metric is not covered"
)


class Grid(NamedTuple):
    """A table of results as text.

    Attributes:
      head, rows: all of one length; an epsilon is followed by a letter in brackets.
      letters: what an epsilon means -> its letter.
      notes: sentences without a full stop.
      keys: number of columns, from the first, that tell runs apart.
    """

    head: list[str]
    rows: list[list[str]]
    letters: dict[str, str]
    notes: list[str]
    keys: int

    @property
    def below(self) -> list[str]:
        """What has to stand below the table."""
        return [*(f"{letter}: {text}" for text, letter in self.letters.items()), *self.notes]


def grid(
    found: Sequence[Row],
    views: Sequence[str] | None = None,
    best: bool = False,
    every: bool = False,
) -> Grid:
    """The frame as text: a line for each row, with the metrics that were chosen, else the runs' own.

    Args:
      views: with a certified epsilon; by default those of `SHOWN`, and those that the runs show.
      every: whether to show, where none was chosen, all metrics of the score.
      best: whether also the best of each metric over the evaluations, which is chosen on the test set.
    """
    if not found:
        return Grid(["run", "algorithm"], [], {}, [], 1)
    summaries = [r.summary for r in found]
    wanted = {*SHOWN, *own_views(summaries)}
    shown = views or [view for view in VIEWS if view in wanted]
    letters: dict[str, str] = {}
    keys = {key: SWEPT.get(key) or field_name(key) for key in found[0].keys}
    columns = {name: [_said(r.keys[key]) for r in found] for key, name in keys.items()}
    columns["algorithm"] = [r.name for r in found]
    columns["rounds"] = [
        of_planned(r.summary, r.algorithm) + " (diverged)" * (r.algorithm in r.summary.diverged)
        for r in found
    ]
    columns["seeds"] = [_said(r.seeds) for r in found]
    if NOISE not in keys and any(map(_noise, found)):
        columns["noise multiplier"] = [_noise(r) or ABSENT for r in found]
    metrics = list(dict.fromkeys(m for r in found for m in r.metrics))
    metrics += [m for m in measured(found) if every and m not in metrics]
    if best:
        _require_best(found, metrics)
    for metric in metrics:
        columns |= _of_metric(found, metric, best, len(metrics) > 1)
    columns["MB up"] = [number(r.summary.uplink_mb_per_client.get(r.algorithm)) for r in found]
    privacy = [r.summary.privacy.get(r.algorithm) for r in found]
    if any(of and of.claimed for of in privacy):
        columns["ε claimed"] = [
            _counting(of, of.claimed if of else None, letters) for of in privacy
        ]
    for view in shown:
        columns[f"ε, {view.replace('_', ' ')}"] = [certified(r, view, letters) for r in found]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    notes = [*_notes(found, metrics, best), *_on_groups(found, shown)]
    return Grid(list(columns), rows, letters, notes, len(keys))


def _require_best(found: Sequence[Row], metrics: Sequence[str]) -> None:
    """Raises ValueError: the best of a metric is asked for by which nothing may be chosen."""
    for r in found:
        for metric in metrics:
            if metric in r.public or r.score("best", metric) or not r.score("final", metric):
                continue
            raise ValueError(
                f"best: {metric} of {r.who} is of {r.public.where(metric)}, and no epsilon covers a choice by it; "
                f"leave best out, or train with --metric {metric} --not-covered {metric}"
            )


def _of_metric(
    found: Sequence[Row], metric: str, best: bool, several: bool
) -> dict[str, list[str]]:
    """The columns of a metric: its score, its interval over clients, and how far it is above the rival's."""
    public, columns = together(r.public for r in found), dict[str, list[str]]()
    named = heading(metric, public)
    scores = ("final", *["best"][:best])
    for which in scores:
        name = f"{'best ' * (which == 'best')}{named}"
        columns[name] = [mean_and_std(r.score(which, metric), metric) for r in found]
    if any(metric in r.over_clients for r in found):
        over = [over_clients_text(r.over_clients.get(metric), metric) for r in found]
        columns[f"{named}, over clients (95 %)" if several else "over clients (95 %)"] = over
    if not any(r.below for r in found):
        return columns
    than = f"{f'{named}, ' * several}above {_rival(found)}"
    if any(metric in r.leads for r in found):
        for which in scores:
            name = f"{'best ' * (which == 'best')}{than} (95 %)"
            columns[name] = [_lead(r, which, metric) for r in found]
    if any(metric in r.leads_over_clients for r in found):
        each = [over_clients_text(r.leads_over_clients.get(metric), metric, "+") for r in found]
        columns[f"{than}, over clients (95 %)"] = each
    return columns


def as_markdown(table: Grid) -> str:
    return markdown_table([table.head, *table.rows], table.below)


def own_views(summaries: Sequence[Summary]) -> list[str]:
    """The views that a grid of the runs shows."""
    found = [s.settings.get("view") for s in summaries if s.settings.get("views") != "all"]
    every = len(found) < len(summaries)
    return [view for view in VIEWS if every or view in found]


def _said(value: Any) -> str:
    return ABSENT if value is None else str(value)


def of_planned(summary: Summary, name: str) -> str:
    """In a grid: the rounds that an algorithm did, and of how many where these are more."""
    done, planned = summary.rounds.get(name, 0), summary.rounds_planned.get(name, 0)
    return f"{done} of {planned}" if done < planned else str(done)


def _noise(row: Row) -> str:
    """The noise multiplier; what else was solved for stands after its name."""
    found = noise(row.summary, row.algorithm)
    return ", ".join(f"{x:.4g}" if f == NOISE else f"{f} {x:.4g}" for f, x in found.items())


def _rival(found: Sequence[Row]) -> str:
    """Of all rows there is one, as `above` has it."""
    return next(str(r.below.name) for r in found if r.below)


def _lead(row: Row, which: str, metric: str) -> str:
    of = row.leads.get(metric, {}).get(which)
    if of is None:
        return ABSENT
    said = of.text(100) if in_percent(metric) else of.text(digits=4)
    return said + f", of {of.seeds} seeds" * (of.low is not None and of.seeds != row.seeds)


def certified(row: Row, view: str, letters: dict[str, str]) -> str:
    """In a grid: what is certified towards a view, with the letter of what it means."""
    privacy = row.summary.privacy.get(row.algorithm)
    found = privacy.certified.get(view) if privacy else None
    return _counting(privacy, found, letters, row.summary.choice)


def _counting(
    report: Report | None, of: Certificate | Claim | None, letters: dict[str, str], what: str = ""
) -> str:
    """An epsilon of the report as `_epsilon` has it, as a lower bound where more rounds may have been trained."""
    return at_least(report, of) + _epsilon(of, letters, what)


def at_least(report: Report | None, of: Certificate | Claim | None) -> str:
    """The sign before an epsilon of the report that is a lower bound; "" where it counts all rounds, or is infinite."""
    return "≥ " * bool(report and report.uncounted and of and math.isfinite(of.epsilon))


def _epsilon(epsilon: Certificate | Claim | None, letters: dict[str, str], of: str = "") -> str:
    """With the letter of what it means.

    Args:
      of: what it is of, where that is not one model.
    """
    if epsilon is None:  # a run that has not ended has one for a third party alone
        return ABSENT
    chosen = only_not_covered(epsilon)
    if epsilon.epsilon == math.inf and not chosen:
        return "not private"
    meaning = meaning_of_epsilon(epsilon) + f", of {of}" * bool(of)
    letter = letters.setdefault(meaning, _letter(len(letters)))
    if chosen:
        return f"∞ [{letter}] not covered"
    doubted = isinstance(epsilon, Claim) and not epsilon.sound
    return f"{epsilon.epsilon:.4g} [{letter}]" + " not proved" * doubted


def _letter(number: int) -> str:
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _notes(found: Sequence[Row], metrics: Sequence[str], best: bool) -> list[str]:
    public = together(r.public for r in found)
    said = [
        f"{_where(metrics, public)}: mean ± standard deviation (n - 1) over the seeds; MB up: what a client of the "
        "population sends on average in the whole run (not private where cohorts are random)"
    ][: len(metrics)]
    if "target_epsilon" in found[0].keys:
        views = dict.fromkeys(r.summary.settings["view"].replace("_", " ") for r in found)
        said.append(
            f"ε budget: what the noise was solved for, certified, view {' or '.join(views)}"
        )
    said += [best_note(metrics, public)] if best else []
    privacy = [r.summary.privacy.get(r.algorithm) for r in found]
    alone = [of for r, of in zip(found, privacy, strict=True) if not r.summary.choice]
    every = ALONE if len(alone) == len(privacy) else ALONE.replace("every", "every other", 1)
    said += [every] if any(of and of.is_private for of in alone) else []
    said += [f"{r.who}: its ε is of {r.summary.choice}" for r in found if r.summary.choice]
    said += on_clients(found)
    return [*said, *_on_leads(found), *_on_seeds(found), *on_rounds(found), *_on_privacy(found)]


def _where(metrics: Sequence[str], public: Public) -> str:
    """The metrics, and on which records they are."""
    groups: dict[str, list[str]] = {}
    for metric in metrics:
        groups.setdefault(measured_on(metric, public), []).append(metric)
    return "; ".join(f"{' and '.join(names)} {where}" for where, names in groups.items())


def _on_leads(found: Sequence[Row]) -> list[str]:
    leads = [lead for r in found for of in r.leads.values() for lead in of.values()]
    said, intervals = [], sum(one.low is not None for one in leads)
    if intervals:
        ways = {
            "paired": "Student's t of the differences seed by seed",
            "Welch": "Welch's t where seeds mean something else",
        }
        by = "; ".join(text for way, text in ways.items() if any(x.how == way for x in leads))
        said.append(
            f"above: mean and 95 % interval of the mean over seeds, on these records ({by}); comparisons: {intervals}, "
            "of which one in twenty misses by chance"
        )
    if any(one.how == TOO_FEW for one in leads):
        said.append(f"{TOO_FEW}: an interval takes 3 seeds; fewer show no result")
    return said + on_rivals(found)


def on_rivals(found: Sequence[Row]) -> list[str]:
    """A note of a grid: what has to be known of the algorithm that others are compared with."""
    lower = dict.fromkeys(
        metric
        for r in found
        for metric in [*r.leads, *r.leads_over_clients]
        if not better_higher(metric, r.higher)
    )
    said = [f"{metric}: above means larger, which is not always better" for metric in lower]
    for r in found:
        if r.below and r.below.keys != r.keys:
            other = _set_otherwise(r, r.below)
            said.append(
                f"{r.who}: compared with {r.below.name} of {r.below.title}"
                + (f", which has {other}" if other else "")
            )
    if unlike := [r for r in found if r.below and _cost(r) != _cost(r.below)]:
        who = dict.fromkeys(f"{r.summary.short_name_of(r.algorithm)} ({r.title})" for r in unlike)
        said.append(f"not at the same ε, and so no fair comparison: {', '.join(who)}")
    return said


def _cost(row: Row) -> tuple[str, ...]:
    """What is certified towards the view that the run was made for."""
    certified = row.summary.privacy[row.algorithm].certified
    of = certified.get(row.summary.settings.get("view", ""), certified["third_party"])
    return f"{of.epsilon:.2g}", f"{of.delta:.2g}", of.view, of.unit, of.relation


def _set_otherwise(row: Row, below: Row) -> str:
    """The settings of another run that are not this one's."""
    own, other = (interesting(r.summary.settings) for r in (row, below))
    return ", ".join(setting(k, v) for k, v in other.items() if own.get(k, v) != v)


def _on_seeds(found: Sequence[Row]) -> list[str]:
    """Runs of one config are no independent samples."""
    configs = [config for config, _ in {(r.summary.config, r.folder) for r in found}]
    if len(set(configs)) == len(configs):
        return []
    secret = "; a run with a secret seed shares the clients alone"
    said = secret * any(r.summary.secret_seed for r in found)
    return [
        "runs of one config share their seeds (clients, initial model, random numbers, unless settings change them"
        f"{said}): a lucky seed shows in all of them, so being ahead at several points is not several results"
    ]


def counted(evaluated: int, spent: int) -> str:
    """A note of a grid: which rounds the epsilon of a run that was stopped counts."""
    if spent == evaluated:
        return f"epsilon counts these {evaluated}"
    return (
        f"epsilon counts {spent} rounds: the {evaluated} evaluated and up to {spent - evaluated} that may have run "
        "since"
    )


def on_rounds(found: Sequence[Row]) -> list[str]:
    """A note of a grid: which rows were stopped early, and what that means."""
    said: list[str] = []
    stopped = [r for r in found if r.algorithm in r.summary.stopped]
    groups: dict[tuple[str, bool], list[Row]] = {}
    for r in stopped:
        metric = decided(r.summary.stopped[r.algorithm])
        by = chosen_on(metric, r.public), metric not in r.public
        groups.setdefault(by, []).append(r)
    said += [_on_stopped(group, *by) for by, group in groups.items()]
    if any((r.seeds or 0) > 1 for r in stopped):
        said.append(
            "the seeds stopped together, so the round depends on all of them, which no epsilon here covers: "
            "release a model of a run with one seed"
        )
    for r in found:
        done, planned = r.summary.rounds.get(r.algorithm), r.summary.rounds_planned.get(r.algorithm)
        of = r.summary.privacy.get(r.algorithm)
        if of and of.uncounted:
            said.append(
                f"{r.who}: its run has no summary.json (killed, or still training), and its epsilon counts the {done} "
                f"rounds evaluated alone; up to {of.uncounted} more may have run, so that the epsilon is at least that"
            )
        elif of and done and planned and done < planned and r.algorithm not in r.summary.stopped:
            said.append(f"{r.who}: not trained to the end; its {counted(done, of.rounds)}")
    return said


def _on_stopped(stopped: Sequence[Row], records: str, of_clients: bool) -> str:
    """By which records these were stopped, and what of the choice an epsilon covers."""
    who = dict.fromkeys(r.summary.short_name_of(r.algorithm) for r in stopped)
    whys = dict.fromkeys(r.summary.stopped[r.algorithm].partition(": ")[2] for r in stopped)
    covered = "epsilon is of all N rounds planned, as the models chose when to stop"
    if of_clients:
        covered = (
            "no epsilon covers this choice, as it is by records of clients, and all are infinite"
        )
    return (
        f'{", ".join(who)}, where rounds are "n of N": stopped early, by the {records} ({"; ".join(whys)}), so '
        f"that the metrics are selected on the {records} and optimistic; {covered}"
    )


def _on_privacy(found: Sequence[Row]) -> list[str]:
    return of_which((r.title, r.summary.privacy_notes) for r in found)


def _on_groups(found: Sequence[Row], views: Sequence[str]) -> list[str]:
    """A note of a grid: the epsilons of public groups, the largest of which is in its row."""
    return [
        f"{r.who}: ε, {view.replace('_', ' ')}, {epsilons_by_group(epsilons)}"
        for r in found
        if (report := r.summary.privacy.get(r.algorithm))
        for view, epsilons in report.group_epsilons.items()
        if view in views
    ]
