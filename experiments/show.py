"""What a run shows in the end: a table and a picture."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from experiments.files import replacing
from experiments.records import Report, Spread, Summary
from fedpriv.engine.client_metrics import labelled
from fedpriv.engine.history import History
from fedpriv.models.score import is_fraction
from fedpriv.privacy import SEES, VIEWS, Certificate, Claim

NAMES = {
    "fed_avg": "FedAvg",
    "fed_avg_rand_k": "FedAvg-rand_k",
    "fed_avg_top_k": "FedAvg-top_k",
    "dp_fed_avg": "DP-FedAvg",
    "rand_k": "Fed-SMP rand_k",
    "top_k": "Fed-SMP top_k",
    "fed_sgd": "FedSGD",
    "dp_fed_sgd": "DP-FedSGD",
    "scaffold": "SCAFFOLD",
    "dp_scaffold": "DP-SCAFFOLD",
    "dp_sgd": "DP-SGD",
    "dyn_dp_sgd": "Dyn-DP-SGD",
    "dp_sgd_wav": "DP-SGD-WAV",
    "dp_sgd_wav_sound": "DP-SGD-WAV, sound",
    "dp_adam": "DP-Adam",
    "dp_adam_wav": "DP-Adam-WAV",
    "dp_adagrad": "DP-AdaGrad",
    "dp_adagrad_wav": "DP-AdaGrad-WAV",
    "dyn_dp_fed_avg": "Dyn-DP-FedAvg",
    "dp_fed_avg_wav": "DP-FedAvg-WAV",
    "dp_fed_avg_wav_sound": "DP-FedAvg-WAV, sound",
    "dp_fed_avg_adaptive": "DP-FedAvg, adaptive",
    "fed_avg_qsgd": "FedAvg, QSGD",
    "msp_fl": "MSP-FL",
    "msp_laplace": "MSP + Lap",
    "msp_gaussian": "MSP + Gauss",
    "mspdq_fl": "MSPDQ-FL",
    "ldp_fed_avg": "FedAvg + LDP",
    "jopeq": "JoPEQ",
}


WEAK = 10.0  # beyond it an epsilon has a word beside it


DROPPED = ("rounds/s", "MB down", "best", "MB up")
"""Columns that a narrow terminal does not get, the first of these first."""
LONGEST = 32  # of an algorithm's name, in characters
LONGEST_METRIC = 12
NO_TERMINAL = 10_000
PROSE = 100  # characters of a line that is read, however wide the terminal


def label(algorithm: str) -> str:
    """The algorithm's name for people."""
    name = NAMES.get(algorithm, algorithm)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def width(stream: TextIO) -> int:
    """Columns of the terminal that `stream` writes to; more than anything needs where it is none."""
    return shutil.get_terminal_size((PROSE, 24)).columns if stream.isatty() else NO_TERMINAL


def wrapped(text: str, most: int) -> str:
    """On lines of at most so many columns."""
    return textwrap.fill(text, min(most, PROSE), subsequent_indent="    ", break_on_hyphens=False)


def table(summary: Summary, most: int = PROSE) -> str:
    """The results of a run, a line per algorithm, and what its epsilons mean, for so many columns."""
    views = VIEWS if summary.settings["views"] == "all" else (summary.settings["view"],)
    header = ["algorithm", *(f"{which} {heading(summary.metric)}" for which in ("best", "final"))]
    header += views if len(views) > 1 else ["eps"]
    header += [*["noise"][: len(summary.solved)], "MB up", "MB down", "rounds/s"]
    rows = [header, *(_row(summary, name, views) for name in summary.rounds)]
    rows, left_out = _fitting(rows, most)
    legend = _legend(summary, views)
    if left_out:
        legend.append(f"not shown, as the terminal is narrow: {', '.join(left_out)} (summary.json)")
    below = [*(wrapped(line, most) for line in legend)]
    return "\n".join([*columns(rows), "", *_per_client(summary, most), *below])


def _per_client(summary: Summary, most: int) -> list[str]:
    """A second table, where single clients were evaluated."""
    found = summary.per_client_not_private
    if not found:
        return []
    metric, names = labelled(next(iter(found.values())))
    said = percent if is_fraction(metric) else number
    rows = [["algorithm", *names]]
    for algorithm, spreads in found.items():
        rows.append([label(algorithm), *(said(spreads[name]) for name in names.values())])
    about = (
        f"{metric}{', %,' * is_fraction(metric)} of single clients on their own training records, after the last "
        "round; worst decile: mean of the tenth that fares worst; not private: no epsilon covers publishing these "
        "numbers"
    )
    return [*columns(rows), "", wrapped(about, most), ""]


def _fitting(rows: list[list[str]], most: int) -> tuple[list[list[str]], list[str]]:
    """The columns that fit, and the names of those that do not."""
    left_out = []
    for name in DROPPED:
        if max(map(len, columns(rows))) <= most:
            break
        at = next(i for i, head in enumerate(rows[0]) if head.startswith(name))
        left_out.append(rows[0][at])
        rows = [row[:at] + row[at + 1 :] for row in rows]
    return rows, left_out


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the cells of each column below each other, and a rule below the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return [line.rstrip() for line in lines]


def _row(summary: Summary, name: str, views: Sequence[str]) -> list[str]:
    certified, claim = summary.privacy[name].certified, summary.privacy[name].claimed
    private = not not_private(certified.values(), claim)
    solved = list(summary.solved.get(name, {}).values())
    return [
        label(name),
        metric_cell(summary.metric, summary.best[name]),
        metric_cell(summary.metric, summary.final[name]),
        *(epsilon(certified[view].epsilon) if private else "not private" for view in views),
        *([f"{solved[0]:.4g}" if solved else "-"] if summary.solved else []),
        f"{summary.uplink_mb_per_client[name]:.4g}",
        f"{summary.downlink_mb_per_client[name]:.4g}",
        f"{summary.rounds_per_second[name]:.3g}",
    ]


def not_private(certified: Iterable[Certificate], claim: Claim | None) -> bool:
    """Whether nothing is claimed or certified."""
    epsilons = [c.epsilon for c in certified] + ([claim.epsilon] if claim else [])
    return all(math.isinf(e) for e in epsilons)


def epsilon_means(number: Certificate | Claim) -> str:
    """What an epsilon needs beside it, but for the view of a claim's source."""
    basis = f", {number.basis}" if isinstance(number, Certificate) else ""
    return (
        f"{number.unit} level, {number.view}, {hyphenated(number.relation)} adjacency, "
        f"delta {number.delta:.3g}{basis}"
    )


def claimed(privacy: Report) -> str:
    """The claim's epsilon, with its delta where that is another one than the certificates'."""
    claim = privacy.claimed
    if claim is None:
        return "-"
    same = claim.delta == privacy.certified["third_party"].delta
    return epsilon(claim.epsilon) + ("" if same else f" at delta {claim.delta:.3g}")


def _legend(summary: Summary, views: Sequence[str]) -> list[str]:
    """Unit, view, adjacency and delta of every epsilon in the table, once; what is longer is elsewhere."""
    reports, metric = summary.privacy, summary.metric
    seeds = len(next(iter(summary.best.values()))[metric].per_seed)
    lines = [
        f"{metric}: {'%, ' * is_fraction(metric)}on the test set, mean +- standard deviation over {seeds} seed(s); "
        "best: over the evaluations, chosen on the test set, as papers do; MB: of the run, per client of the "
        "population; rounds/s: of all seeds together, without compilation"
    ]
    means: dict[str, list[str]] = {}
    for name, of in reports.items():
        if not not_private(of.certified.values(), of.claimed):
            means.setdefault(_certified(of, views), []).append(label(name))
    if means:
        lines.append("eps: certified, of ONE model (one algorithm, one seed) released alone")
        lines += [f"  {', '.join(names)}: {text}" for text, names in means.items()]
        lines += [f"  {view} {SEES[view]}" for view in views]
    shown = [of.certified[view] for of in reports.values() for view in views]
    if weak := max((c.epsilon for c in shown if WEAK < c.epsilon < math.inf), default=None):
        lines.append(
            f"  an epsilon of {weak:.3g} protects hardly anybody: something may be e^{weak:.3g} times as likely to be "
            "seen with the unit as without it"
        )
    if len({c.relation for c in shown if math.isfinite(c.epsilon)}) > 1:
        lines.append("  epsilons of different adjacency do not compare")
    lines += [*_claims(summary), *_solved(summary), *_unfinished(summary), *_stopped(summary)]
    if means:
        lines.append(
            "what the epsilons assume and leave out, and why a claim is not proved: summary.json (privacy, "
            "privacy_notes), python -m experiments.report"
        )
    return lines


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
            said = f"{label(name)} {epsilon(privacy.claimed.epsilon)}"
            found.setdefault(alike, []).append(said)
    return [
        f"claimed: {', '.join(names)} ({epsilon_means(claim)}, by {claim.source}), which "
        + ("holds for this run" if claim.sound else "is not proved for this run")
        for claim, names in found.items()
    ]


def _solved(summary: Summary) -> list[str]:
    """What noise was found for a budget."""
    fields = dict.fromkeys(field for of in summary.solved.values() for field in of)
    target, view = (summary.settings[name] for name in ("target_epsilon", "view"))
    return [f"noise: {', '.join(fields)}, solved for eps {target:g} ({view})"] if fields else []


def _unfinished(summary: Summary) -> list[str]:
    """Which algorithms were not trained to their end, why, and what their epsilons count."""
    lines = [f"{label(name)} {why}" for name, why in summary.stopped.items()]
    if lines:
        lines.append(
            "stopped by the test set: its metrics are optimistic, and no epsilon covers its records; epsilon is that "
            "of all rounds planned, as the models, and so the training records, chose when to stop"
        )
        if summary.settings["seeds"] > 1:
            lines.append(
                "the seeds stopped together, so that the round tells of all of them, which no epsilon here covers: "
                "release a model of a run with --seeds 1"
            )
    for name, done in summary.rounds.items():
        planned, spent = summary.rounds_planned[name], summary.privacy[name].rounds
        if done < planned and name not in summary.stopped:
            line = f"not to the end: {label(name)} {done} of {planned} rounds"
            lines.append(f"{line}; its {counted(done, spent)}")
    return lines


def counted(evaluated: int, spent: int) -> str:
    """Which rounds the epsilon of a run that was stopped counts."""
    if spent == evaluated:
        return f"epsilon counts these {evaluated}"
    return (
        f"epsilon counts {spent} rounds: the {evaluated} evaluated and up to {spent - evaluated} that may have run "
        "since"
    )


def _stopped(summary: Summary) -> list[str]:
    """Where a budget ended training, and where it could not."""
    budget, view = summary.settings["stop_at_epsilon"], summary.settings["view"]
    if budget is None:
        return []
    lines = []
    for name, rounds in summary.rounds_planned.items():
        text = f"{rounds} of {summary.settings['rounds']} rounds"
        if math.isinf(summary.privacy[name].certified[view].epsilon):
            text += ": not private, so that no budget applies"
        elif rounds == summary.rounds[name]:
            text += f"; its {counted(rounds, summary.privacy[name].rounds)}"
        lines.append(f"stop at certified eps {budget:g} ({view}): {label(name)} {text}")
    return lines


def heading(metric: str) -> str:
    """In a table's head."""
    return "acc." if metric == "accuracy" else metric[:LONGEST_METRIC]


def metric_cell(metric: str, spreads: Mapping[str, Spread]) -> str:
    """Mean and deviation of a metric, a fraction's in percent."""
    s = spreads[metric]
    return percent(s) if is_fraction(metric) else number(s)


def brief(metric: str, values: np.ndarray) -> str:
    """A metric while training: its mean over the seeds."""
    mean = values.mean()
    return f"{metric} {100 * mean:.1f} %" if is_fraction(metric) else f"{metric} {mean:.4g}"


def number(s: Spread) -> str:
    return f"{s.mean:.4g}" + ("" if s.std is None else f" +- {s.std:.2g}")


def percent(s: Spread) -> str:
    return f"{100 * s.mean:.2f}" + ("" if s.std is None else f" +- {100 * s.std:.2f}")


def epsilon(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def short(value: float) -> str:
    """An epsilon while training."""
    return f"{value:.2f}" if 0.1 <= value < 100 else f"{value:.3g}"


def hyphenated(relation: str) -> str:
    return relation.replace("_", "-")


def markdown(rows: Sequence[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A table whose first row is its head, and a list below."""
    head, *others = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "| " + " | ".join(["---"] * len(rows[0])) + " |"
    return "\n".join([head, rule, *others, "", *(f"- {note}" for note in notes)]).rstrip()


def curve(axes: Any, x: Sequence[float], values: Sequence[Spread], **look: Any) -> None:
    """Mean over the seeds, band of one standard deviation; what is not finite is left out."""
    found = [(at, s.mean, s.std or 0.0) for at, s in zip(x, values, strict=True)]
    points = [point for point in found if math.isfinite(point[1])]
    if points:
        at, mean, std = np.array(points, float).T
        (line,) = axes.plot(at, mean, **look)
        axes.fill_between(at, mean - std, mean + std, alpha=0.2, color=line.get_color())


def picture(histories: dict[str, History], metric: str, path: Path) -> None:
    """A metric on the test set by round and by uplink: mean over the seeds, band of one standard deviation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    by_round, by_uplink = figure.subplots(1, 2, sharey=True)
    for name, history in histories.items():
        if history.evaluations:
            values = [Spread.of(each) for each in history.metric(metric)]
            curve(by_round, history.rounds, values, label=NAMES.get(name, name))
            curve(by_uplink, history.uplink_mb.mean(1), values)
    by_round.set(xlabel="round", ylabel=f"test {metric}")
    by_uplink.set(xlabel="uplink per client (MB)", xscale="log")
    if by_round.lines:
        by_round.legend()
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=100, format="png")
