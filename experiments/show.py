"""What a run shows: a progress bar, a table, a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.files import replacing
from experiments.records import Report, Spread, Summary
from fedpriv.engine.client_metrics import labelled
from fedpriv.engine.history import Evaluation, History
from fedpriv.models.score import is_fraction, shown
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


COMPARED = {
    "add_or_remove": "with the unit, or without it",
    "replace_one": "with the unit, or another in its place",
    "zero_out": "with the unit, or with its contribution set to zero",
}
WEAK = 10.0  # beyond it an epsilon has a word beside it


class Progress:
    """A progress bar over the rounds of one algorithm, with a metric (see `shown`) and epsilon so far."""

    def __init__(self, algorithm: str, rounds: int, metric: str | None = None):
        from tqdm import tqdm

        label = f"{NAMES.get(algorithm, algorithm):<15}"
        self._metric = metric
        self._bar = tqdm(total=rounds, desc=label, unit="round", dynamic_ncols=True)

    def update(self, e: Evaluation, so_far: Certificate) -> None:
        self._bar.update(e.round - self._bar.n)
        metric = shown([*e.metrics], self._metric)
        who = f"{so_far.unit}, {so_far.view}, {so_far.relation}".replace("_", "-")
        self._bar.set_postfix_str(
            f"{metric} {_short(metric, e.metrics[metric])}, certified eps {so_far.epsilon:.3g} "
            f"({who}, delta {so_far.delta:.2g})"
        )

    def close(self) -> None:
        self._bar.close()


def table(summary: Summary) -> str:
    """The results of a run, a line per algorithm, and what its epsilons mean."""
    header = ["algorithm", *(f"{x} {heading(summary.metric)}" for x in ("best", "final"))]
    header += ["unit", "eps claimed"]
    header += [*(f"eps {view}" for view in VIEWS), "MB up", "MB down", "rounds/s"]
    rows = [header, *(_row(summary, name) for name in summary.rounds)]
    return "\n".join([*columns(rows), "", *_per_client(summary), *_legend(summary)])


def _per_client(summary: Summary) -> list[str]:
    """A second table, with a rule below it, where single clients were evaluated."""
    found = summary.per_client_not_private
    if not found:
        return []
    metric, names = labelled(next(iter(found.values())))
    rows = [["algorithm", *names]]
    for algorithm, spreads in found.items():
        cells = [number(spreads[name]) for name in names.values()]
        rows.append([NAMES.get(algorithm, algorithm), *cells])
    about = (
        f"{metric} of single clients on their own training records, after the last round; worst decile: mean of the "
        "tenth that fares worst; not private: no epsilon covers publishing these numbers"
    )
    return [*columns(rows), "", about, ""]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the cells of each column below each other, and a rule below the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return [line.rstrip() for line in lines]


def _row(summary: Summary, name: str) -> list[str]:
    privacy = summary.privacy[name]
    return [
        NAMES.get(name, name),
        metric_cell(summary.metric, summary.best[name]),
        metric_cell(summary.metric, summary.final[name]),
        privacy.certified["third_party"].unit,
        claimed(privacy) + (" (*)" if privacy.claimed and not privacy.claimed.sound else ""),
        *(epsilon(privacy.certified[view].epsilon) for view in VIEWS),
        f"{summary.uplink_mb_per_client[name]:.4g}",
        f"{summary.downlink_mb_per_client[name]:.4g}",
        f"{summary.rounds_per_second[name]:.3g}",
    ]


def claimed(privacy: Report) -> str:
    """The claim's epsilon, with its delta where that is another one than the certificates'."""
    claim = privacy.claimed
    if claim is None:
        return "-"
    same = claim.delta == privacy.certified["third_party"].delta
    return epsilon(claim.epsilon) + ("" if same else f" at delta {claim.delta:.3g}")


def _legend(summary: Summary) -> list[str]:
    """Unit, view and adjacency of every epsilon in the table."""
    reports = list(summary.privacy.values())
    every = [c for of in reports for c in of.certified.values()]
    metric = summary.metric
    seeds = len(next(iter(summary.best.values()))[metric].per_seed)
    lines = [
        f"{metric} on the test set{' in %' * is_fraction(metric)}: mean (+- standard deviation) over {seeds} seed(s); "
        "best over the evaluations, chosen on the test set as papers do; MB: of the whole run, per client of "
        "the population; rounds/s: of all seeds together, compilation not included",
        f"epsilon at delta = {every[0].delta:.3g} for one unit (client or record); inf: nothing is "
        "certified; of ONE model (one algorithm, one seed) released alone",
    ]
    for view in VIEWS:
        certified = [of.certified[view] for of in reports]
        bases = " / ".join(sorted({c.basis for c in certified}))
        relations = " / ".join(sorted({hyphenated(c.relation) for c in certified}))
        compared = "; ".join(sorted({COMPARED[c.relation] for c in certified}))
        lines.append(
            f"  {view} ({SEES[view]}): certified ({bases}), {relations} adjacency ({compared})"
        )
    if weak := max((c.epsilon for c in every if WEAK < c.epsilon < math.inf), default=None):
        lines.append(
            f"  an epsilon of {weak:.3g} protects hardly anybody: something may be e^{weak:.3g} times as likely to be "
            "seen with the unit as without it"
        )
    if any(c.relation == "replace_one" for c in every):
        lines.append(
            "  replacing a client moves a sum by up to 2 C, removing or zeroing it out by C: epsilons of different "
            "adjacency do not compare"
        )
    compiled = {n: s for n, s in summary.compile_seconds.items() if s is not None}
    if compiled:
        each = (f"{NAMES.get(name, name)} {seconds:.1f} s" for name, seconds in compiled.items())
        lines.append(f"  compiled before the first round: {', '.join(each)}")
    lines += [*_unfinished(summary), *_stopped(summary), *_claims(summary)]
    return [*lines, *(f"  note: {note}" for note in summary.privacy_notes)]


def _claims(summary: Summary) -> list[str]:
    """What is claimed and whether it holds; claims that differ in epsilon alone once."""
    found: dict[Claim, list[str]] = {}
    for name, privacy in summary.privacy.items():
        if privacy.claimed:
            alike = replace(privacy.claimed, epsilon=0.0)
            found.setdefault(alike, []).append(NAMES.get(name, name))
    lines = []
    for claim, names in found.items():
        verdict = "holds for this run" if claim.sound else "(*) not proved for this run"
        lines.append(
            f"  claimed for {', '.join(names)}: {claim.unit} level, {claim.view}, {hyphenated(claim.relation)} "
            f"adjacency, by {claim.source}"
        )
        lines += [f"  claim: {verdict}: {reason}" for reason in claim.reasons]
    return lines


def _unfinished(summary: Summary) -> list[str]:
    """Which algorithms were not trained to their end."""
    planned = summary.rounds_planned
    cut = [
        f"{NAMES.get(name, name)} {done} of {planned[name]} rounds"
        for name, done in summary.rounds.items()
        if done < planned[name] and name not in summary.stopped
    ]
    early = [f"  {NAMES.get(name, name)} {why}" for name, why in summary.stopped.items()]
    if early:
        early.append(
            "  stopped by the test set: its metrics are optimistic; epsilon counts the rounds trained, and covers "
            "none of the test records"
        )
    return early + [f"  not to the end: {', '.join(cut)}"] * bool(cut)


def _stopped(summary: Summary) -> list[str]:
    """Where a budget ended training, and where it could not."""
    budget = summary.settings["stop_at_epsilon"]
    if budget is None:
        return []
    lines = []
    for name, rounds in summary.rounds_planned.items():
        text = f"{rounds} of {summary.settings['rounds']} rounds"
        if math.isinf(summary.privacy[name].certified["third_party"].epsilon):
            text += ": not private, so that no budget applies"
        lines.append(
            f"  stop at certified epsilon {budget:g} (third_party): {NAMES.get(name, name)} {text}"
        )
    return lines


def heading(metric: str) -> str:
    """In a table's head."""
    return "acc." if metric == "accuracy" else metric


def metric_cell(metric: str, spreads: Mapping[str, Spread]) -> str:
    """Mean and deviation of a metric, a fraction's in percent."""
    s = spreads[metric]
    return percent(s) if is_fraction(metric) else number(s)


def _short(metric: str, values: np.ndarray) -> str:
    return f"{values.mean():.2%}" if is_fraction(metric) else f"{values.mean():.4g}"


def number(s: Spread) -> str:
    return f"{s.mean:.4g}" + ("" if s.std is None else f" +- {s.std:.2g}")


def percent(s: Spread) -> str:
    return f"{100 * s.mean:.2f}" + ("" if s.std is None else f" +- {100 * s.std:.2f}")


def epsilon(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


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
