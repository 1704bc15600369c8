"""What a run shows in the end: a table, and what its numbers mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedpriv.core.terminal_text import PROSE, wrapped
from fedpriv.engine.client_metric_names import TRAINED, by_group, by_kind, parsed
from fedpriv.engine.history import SHARES
from fedpriv.engine.metric_words import in_percent
from fedpriv.experiments.base.formats import (
    aligned,
    epsilon,
    epsilons_by_group,
    mean_and_std,
    metric_heading,
    named,
    number,
)
from fedpriv.experiments.runs.contents import Report, Summary
from fedpriv.experiments.runs.measured import OF_CLIENTS, measured_on
from fedpriv.experiments.tables.frame import Row
from fedpriv.experiments.tables.grid import at_least, counted, of_planned, on_rounds
from fedpriv.privacy import SEES, VIEWS, Claim
from fedpriv.privacy.epsilon_words import hyphenated, meaning_of_epsilon

WEAK = 10.0  # beyond it an epsilon has a word beside it
DROPPED = ("rounds/s", "MB down", "MB up", "rounds")
"""Columns that a narrow terminal does not get, the first of these first."""
Key = tuple[str, str]  # a kind, and a metric


def table(summary: Summary, most: int = PROSE) -> str:
    """The results of a run, a line per algorithm, and what its epsilons mean, for so many columns."""
    rows, left_out = _fitting(rows_of(summary), most)
    legend = [*meaning(summary), *notes(summary)]
    if left_out:
        legend.append(
            f"not shown, as the terminal is too narrow: {', '.join(left_out)} (summary.json)"
        )
    below = [*(wrapped(line, most) for line in legend)]
    further = [*_per_client(summary, most), *_per_group(summary, most)]
    return "\n".join([*aligned(rows), "", *further, *below])


def views_of(summary: Summary) -> Sequence[str]:
    """Those that a run shows."""
    return VIEWS if summary.settings["views"] == "all" else (summary.settings["view"],)


def rows_of(summary: Summary) -> list[list[str]]:
    """The cells of the table; the first row is its head."""
    views = views_of(summary)
    shown = metric_heading(summary.metric)
    shown += " (not private)" * (summary.metric not in summary.public)
    header = ["algorithm", shown, *["rounds"][: _cut_short(summary)]]
    header += views if len(views) > 1 else ["eps"]
    header += [*["noise"][: len(summary.solved)], "MB up", "MB down", "rounds/s"]
    return [header, *(_row(summary, name, views) for name in summary.rounds)]


def _per_client(summary: Summary, most: int) -> list[str]:
    """Further tables, of the metric that is shown, where single clients were evaluated by it, else of all."""
    found, lines = summary.per_client_not_private, list[str]()
    every = by_kind(dict.fromkeys(name for spreads in found.values() for name in spreads))
    shown = _shown(every, summary)
    for (kind, metric), names in shown.items():
        about = f"{metric}{', %,' * in_percent(metric)} {OF_CLIENTS[kind]}, after the last round"
        lines += [*_by_name(summary, names), "", wrapped(about, most), ""]
    if lines:
        own = any(name.endswith(TRAINED) for names in shown.values() for name in names.values())
        trained = " mean of trained: over those that have trained their own models, trained: how many these are;"
        most_clients = summary.settings.get("per_client")
        limit = f" ({most_clients} of them at most, per_client)" if most_clients else ""
        about = (
            f"mean: over clients{limit};{trained * own} pooled: over their records; worst decile: mean over the worst "
            "tenth of clients; not private: no epsilon covers publishing these numbers"
        )
        lines += [wrapped(about, most), ""]
    return lines


def _per_group(summary: Summary, most: int) -> list[str]:
    """Likewise where groups were evaluated."""
    found, lines = summary.per_client_not_private, list[str]()
    every = by_group(dict.fromkeys(name for spreads in found.values() for name in spreads))
    for (kind, metric), names in _shown(every, summary).items():
        where = OF_CLIENTS.get(kind, "on the test set")
        about = f"{metric}{', %,' * in_percent(metric)} {where}, by group, after the last round"
        lines += [*_by_name(summary, names), "", wrapped(about, most), ""]
    if lines:
        about = (
            "a group's: the mean over its clients; worst group, group gap (best less worst): of each seed; not "
            "private: no epsilon covers publishing these numbers of clients' records"
        )
        lines += [wrapped(about, most), ""]
    return lines


def _shown(every: dict[Key, dict[str, str]], summary: Summary) -> dict[Key, dict[str, str]]:
    """Of numbers by kind and metric, those of the metric that is shown; all where it is none of them."""
    of = parsed(summary.metric)
    shown = of.metric if of else summary.metric
    return {key: names for key, names in every.items() if key[1] == shown} or every


def _by_name(summary: Summary, names: Mapping[str, str]) -> list[str]:
    """A table of these numbers of single clients or groups, a line for each algorithm."""
    rows = [["algorithm", *names]]
    for algorithm, spreads in summary.per_client_not_private.items():
        each = (mean_and_std(spreads.get(name), name) for name in names.values())
        rows.append([summary.short_name_of(algorithm), *each])
    return aligned(rows)


def _fitting(rows: list[list[str]], most: int) -> tuple[list[list[str]], list[str]]:
    """The columns that fit, and the names of those that do not."""
    left_out = []
    for name in DROPPED:
        if max(map(len, aligned(rows))) <= most or name not in rows[0]:
            break
        at = rows[0].index(name)
        left_out.append(rows[0][at])
        rows = [row[:at] + row[at + 1 :] for row in rows]
    return rows, left_out


def _cut_short(summary: Summary) -> bool:
    """Whether any algorithm did fewer rounds than planned."""
    return any(done < summary.rounds_planned.get(n, 0) for n, done in summary.rounds.items())


def _row(summary: Summary, name: str, views: Sequence[str]) -> list[str]:
    privacy = summary.privacy[name]
    certified = [privacy.certified[view] for view in views]
    solved = list(summary.solved.get(name, {}).values())
    return [
        summary.short_name_of(name),
        mean_and_std(summary.last(name)[summary.metric], summary.metric),
        *[of_planned(summary, name)][: _cut_short(summary)],
        *(
            at_least(privacy, c) + epsilon(c.epsilon) if privacy.is_private else "not private"
            for c in certified
        ),
        *[number(solved[0] if solved else None)][: len(summary.solved)],
        number(summary.uplink_mb_per_client[name]),
        number(summary.downlink_mb_per_client[name]),
        number(summary.rounds_per_second[name], 3),
    ]


def meaning(summary: Summary) -> list[str]:
    """Of every number in the table; of every epsilon unit, view, adjacency, basis and delta, once."""
    views, reports, metric = views_of(summary), summary.privacy, summary.metric
    seeds = len(summary.last(next(iter(summary.rounds)))[metric].per_seed)
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    where = measured_on(metric, summary.public)
    lines = [
        f"{metric}: {'%, ' * in_percent(metric)}{where}, {over}; MB: of the run, per client "
        "of the population; rounds/s: of all seeds together, without compilation"
    ]
    means: dict[str, list[str]] = {}
    for name, of in reports.items():
        if of.is_private:
            means.setdefault(_certified(of, views), []).append(summary.short_name_of(name))
    if means:
        lines.append("eps: certified, of ONE model (one algorithm, one seed) released alone")
        lines += [f"  {', '.join(names)}: {text}" for text, names in means.items()]
        lines += [f"  {view} {SEES[view]}" for view in views]
    return lines


def notes(summary: Summary) -> list[str]:
    """What else stands below the table; what is longer is elsewhere."""
    views, reports = views_of(summary), summary.privacy
    private, lines = any(of.is_private for of in reports.values()), list[str]()
    if private:
        lines += _groups(summary, views)
        lines += _statistics(summary)
        lines += [f"  {names}: {said}" for names, said in _in_words(summary, views[0])]
    shown = [of.certified[view] for of in reports.values() for view in views]
    if weak := max((c.epsilon for c in shown if WEAK < c.epsilon < math.inf), default=None):
        lines.append(
            f"  an epsilon of {weak:.3g} protects hardly anybody: an outcome may be e^{weak:.3g} times as likely "
            "with the unit as without it"
        )
    if len({c.relation for c in shown if math.isfinite(c.epsilon)}) > 1:
        lines.append("  epsilons of different adjacency do not compare")
    rows = [Row({"run": ""}, name, summary, "") for name in summary.rounds]
    lines += summary.not_covered
    lines += [*_claims(summary), *_solved(summary), *on_rounds(rows), *_budget(summary)]
    lines += _not_finite(summary)
    if private:
        lines.append(
            "what the epsilons assume and omit, and why a claim is not proved: summary.json (privacy, "
            "privacy_notes), fedpriv report"
        )
    return lines


def _groups(summary: Summary, views: Sequence[str]) -> list[str]:
    """Epsilons of public groups, the largest of which is in the table."""
    return [
        f"  {summary.short_name_of(name)}, {view}, {'at least, ' * bool(of.uncounted)}"
        f"{epsilons_by_group(of.group_epsilons[view])}"
        for name, of in summary.privacy.items()
        for view in views
        if view in of.group_epsilons
    ]


def _statistics(summary: Summary) -> list[str]:
    """What of the epsilons was spent before training."""
    view, share = (summary.settings.get(name) for name in ("view", "statistics"))
    if view is None or share is None:
        return []
    alone = {of.statistics[view].epsilon for of in summary.privacy.values() if of.statistics}
    return [
        f"  with the statistics released before training, which alone cost {epsilon(number)} ({view}), "
        f"{100 * share:.3g} % of the target; statistics.json"
        for number in sorted(alone)
    ]


def _in_words(summary: Summary, view: str) -> list[tuple[str, str]]:
    """(Algorithms, what their epsilons mean), for those that have the same together."""
    found: dict[str, list[str]] = {}
    for name, of in summary.privacy.items():
        if said := of.in_words(view):
            found.setdefault(said, []).append(summary.short_name_of(name))
    return [(", ".join(names), said) for said, names in found.items()]


def _not_finite(summary: Summary) -> list[str]:
    """Which algorithms trained on less than they seem to."""
    return [
        f"NaN or infinite, counted as 0: {summary.short_name_of(name)} {100 * of.share.mean:.3g} % of all "
        f"{SHARES[share]}, first seen in round {of.by_round}; not private"
        for name, found in summary.not_finite_not_private.items()
        for share, of in found.items()
    ]


def _certified(of: Report, views: Sequence[str]) -> str:
    """What the epsilons of an algorithm need beside them."""
    first = of.certified[views[0]]
    each = (of.certified[view] for view in views)
    return f"{first.unit} level, delta {first.delta:.3g}; " + "; ".join(
        f"{c.view}: {hyphenated(c.relation)} adjacency, {c.basis}" for c in each
    )


def _claims(summary: Summary) -> list[str]:
    """What is claimed and whether it holds; claims that differ in epsilon alone once."""
    found: dict[Claim, list[str]] = {}
    for name, privacy in summary.privacy.items():
        if privacy.claimed:
            alike = replace(privacy.claimed, epsilon=0.0)
            shown = at_least(privacy, privacy.claimed) + epsilon(privacy.claimed.epsilon)
            said = f"{summary.short_name_of(name)} {shown}"
            found.setdefault(alike, []).append(said)
    return [
        f"{', '.join(names)}: {meaning_of_epsilon(claim)}"
        + ", which holds for this run" * claim.sound
        for claim, names in found.items()
    ]


def _solved(summary: Summary) -> list[str]:
    """What noise was found for a budget."""
    fields = dict.fromkeys(field for of in summary.solved.values() for field in of)
    if not fields:
        return []
    target, view = (summary.settings[name] for name in ("target_epsilon", "view"))
    targets = [target] if target else summary.settings["groups"]["epsilons"]
    wanted = " and ".join(f"{epsilon:g}" for epsilon in targets)
    lines = [f"noise: {', '.join(fields)}, solved for eps {wanted} ({view})"]
    return lines + [
        f"  {summary.short_name_of(name)}: {field} {named(numbers)}"
        for name, of in summary.solved.items()
        for field, numbers in of.items()
        if isinstance(numbers, dict)
    ]


def _budget(summary: Summary) -> list[str]:
    """Where a budget ended training, and where it could not."""
    budget, view = summary.settings["stop_at_epsilon"], summary.settings["view"]
    if budget is None:
        return []
    lines = []
    for name, rounds in summary.rounds_planned.items():
        own = summary.algorithm_settings.get(name, {})
        text = f"{rounds} of {own.get('rounds', summary.settings['rounds'])} rounds"
        if math.isinf(summary.privacy[name].certified[view].epsilon):
            text += ": not private, so no budget applies"
        elif rounds == summary.rounds[name]:
            text += f"; its {counted(rounds, summary.privacy[name].rounds)}"
        lines.append(
            f"stop at certified eps {budget:g} ({view}): {summary.short_name_of(name)} {text}"
        )
    return lines
