"""What a run shows: a progress bar, a table, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.files import replacing
from fedpriv.engine.history import Evaluation, History
from fedpriv.privacy import VIEWS, Certificate

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


class Progress:
    """A progress bar over the rounds of one algorithm, with accuracy and epsilon so far."""

    def __init__(self, algorithm: str, rounds: int):
        from tqdm import tqdm

        label = f"{NAMES.get(algorithm, algorithm):<15}"
        self._bar = tqdm(total=rounds, desc=label, unit="round", dynamic_ncols=True)

    def update(self, e: Evaluation, so_far: Certificate) -> None:
        self._bar.update(e.round - self._bar.n)
        who = f"{so_far.unit}, {so_far.view}, {so_far.relation}".replace("_", "-")
        self._bar.set_postfix_str(
            f"accuracy {e.accuracy.mean():.2%}, certified eps {so_far.epsilon:.3g} ({who}, delta {so_far.delta:.2g})"
        )

    def close(self) -> None:
        self._bar.close()


def table(summary: dict[str, Any]) -> str:
    """The results of a run, a line per algorithm, and what its epsilons mean."""
    header = ["algorithm", "best acc.", "final acc.", "unit", "eps claimed"]
    header += [*(f"eps {view}" for view in VIEWS), "MB up", "MB down", "rounds/s"]
    rows = [header, *(_row(summary, name) for name in summary["rounds"])]
    return "\n".join([*columns(rows), "", *_legend(summary)])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the cells of each column below each other, and a rule below the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return [line.rstrip() for line in lines]


def _row(summary: dict[str, Any], name: str) -> list[str]:
    privacy = summary["privacy"][name]
    claim, certificate = privacy["claimed"], privacy["certified"]["third_party"]
    certified = [epsilon(privacy["certified"][view]["epsilon"]) for view in VIEWS]
    return [
        NAMES.get(name, name),
        percent(summary["accuracy"]["best"][name]),
        percent(summary["accuracy"]["final"][name]),
        certificate["unit"],
        claimed(claim, certificate["delta"]) + ("" if claim["sound"] else " (*)") if claim else "-",
        *certified,
        f"{summary['uplink_mb_per_client'][name]:.4g}",
        f"{summary['downlink_mb_per_client'][name]:.4g}",
        f"{summary['rounds_per_second'][name]:.3g}",
    ]


def claimed(claim: dict[str, Any], delta: float) -> str:
    """A claim's epsilon, with its delta where that is another one than the certificates'."""
    own = "" if claim["delta"] == delta else f" at delta {claim['delta']:.3g}"
    return epsilon(claim["epsilon"]) + own


def _legend(summary: dict[str, Any]) -> list[str]:
    """Unit, view and adjacency of every epsilon in the table."""
    privacy = list(summary["privacy"].values())
    first = privacy[0]["certified"]
    lines = [
        "accuracy on the test set in %: mean (+- standard deviation) over "
        f"{len(summary['accuracy']['best'][next(iter(summary['rounds']))]['per_seed'])} seed(s); "
        "best over the evaluations, chosen on the test set as papers do; MB: of the whole run, per client of "
        "the population; rounds/s: of all seeds together, compilation not included",
        f"epsilon at delta = {first['third_party']['delta']:.3g} for one unit (client or record); inf: nothing is "
        "certified; of ONE model (one algorithm, one seed) released alone",
    ]
    for view in VIEWS:
        certified = [p["certified"][view] for p in privacy]
        relations = sorted({c["relation"].replace("_", "-") for c in certified})
        bases = sorted({c["basis"] for c in certified})
        lines.append(
            f"  {view}: certified ({' / '.join(bases)}), {' / '.join(relations)} adjacency"
        )
    if any(c["relation"] == "replace_one" for p in privacy for c in p["certified"].values()):
        lines.append(
            "  replacing a client moves a sum by up to 2 C, removing or zeroing it out by C: epsilons of different "
            "adjacency do not compare"
        )
    compiled = {n: s for n, s in summary["compile_seconds"].items() if s is not None}
    if compiled:
        each = (f"{NAMES.get(name, name)} {seconds:.1f} s" for name, seconds in compiled.items())
        lines.append(f"  compiled before the first round: {', '.join(each)}")
    lines += _unfinished(summary)
    lines += _stopped(summary)
    for name, claim in _claims(summary).items():
        adjacency = claim["relation"].replace("_", "-")
        lines.append(
            f"  claimed for {name}: {claim['unit']} level, {claim['view']}, {adjacency} adjacency, by {claim['source']}"
        )
        verdict = "holds for this run" if claim["sound"] else "(*) not proved for this run"
        lines += [f"  claim: {verdict}: {reason}" for reason in claim["reasons"]]
    return [*lines, *(f"  note: {note}" for note in summary["privacy_notes"])]


def _claims(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Names of algorithms -> their claim; those that differ in epsilon only once."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for name, privacy in summary["privacy"].items():
        if claim := privacy["claimed"]:
            said = str({key: value for key, value in claim.items() if key != "epsilon"})
            found.setdefault(said, ([], claim))[0].append(NAMES.get(name, name))
    return {", ".join(names): claim for names, claim in found.values()}


def _unfinished(summary: dict[str, Any]) -> list[str]:
    """Which algorithms were not trained to their end."""
    planned = summary["rounds_planned"]
    cut = [
        f"{NAMES.get(name, name)} {done} of {planned[name]} rounds"
        for name, done in summary["rounds"].items()
        if done < planned[name]
    ]
    return [f"  not to the end: {', '.join(cut)}"] if cut else []


def _stopped(summary: dict[str, Any]) -> list[str]:
    """Where a budget ended training, and where it could not."""
    budget = summary["settings"]["stop_at_epsilon"]
    if budget is None:
        return []
    lines = []
    for name, rounds in summary["rounds_planned"].items():
        spent = summary["privacy"][name]["certified"]["third_party"]["epsilon"]
        text = f"{rounds} of {summary['settings']['rounds']} rounds"
        if spent == "inf":
            text += ": not private, so that no budget applies"
        lines.append(
            f"  stop at certified epsilon {budget:g} (third_party): {NAMES.get(name, name)} {text}"
        )
    return lines


def percent(s: dict[str, Any]) -> str:
    deviation = "" if s["std"] is None else f" +- {100 * s['std']:.2f}"
    return f"{100 * s['mean']:.2f}{deviation}"


def epsilon(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def picture(histories: dict[str, History], path: Path) -> None:
    """Test accuracy by round and by uplink: mean over the seeds, band of one standard deviation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    by_round, by_uplink = figure.subplots(1, 2, sharey=True)
    for name, history in histories.items():
        if not history.evaluations:
            continue
        mean, std = history.accuracy.mean(1), np.zeros(len(history.rounds))
        if len(history.seeds) > 1:
            std = history.accuracy.std(1, ddof=1)
        for axes, x in ((by_round, history.rounds), (by_uplink, history.uplink_mb.mean(1))):
            axes.plot(x, mean, label=NAMES.get(name, name))
            axes.fill_between(x, mean - std, mean + std, alpha=0.2)
    by_round.set(xlabel="round", ylabel="test accuracy")
    by_uplink.set(xlabel="uplink per client (MB)", xscale="log")
    if by_round.lines:
        by_round.legend()
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=100, format="png")
