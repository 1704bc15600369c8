"""How names, numbers and tables are written, for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from fedpriv.core.terminal_text import printable
from fedpriv.engine.metric_words import in_percent
from fedpriv.experiments.base.spread import Spread
from fedpriv.models.score import is_fraction
from fedpriv.privacy import Certificate

NAMES = {
    "fed_avg": "FedAvg",
    "fed_avg_rand_k": "FedAvg-rand_k",
    "fed_avg_top_k": "FedAvg-top_k",
    "dp_fed_avg": "DP-FedAvg",
    "rand_k": "Fed-SMP rand_k",
    "top_k": "Fed-SMP top_k",
    "fed_avg_m": "FedAvgM",
    "fed_adagrad": "FedAdagrad",
    "fed_adam": "FedAdam",
    "fed_yogi": "FedYogi",
    "dp_fed_avg_m": "DP-FedAvgM",
    "dp_fed_adagrad": "DP-FedAdagrad",
    "dp_fed_adam": "DP-FedAdam",
    "dp_fed_yogi": "DP-FedYogi",
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
    "fed_per": "FedPer",
    "fed_rep": "FedRep",
    "ditto": "Ditto",
    "poisson": "DP-FedAvgM, Poisson cohorts",
    "tree": "tree",
    "banded": "banded",
    "blt": "BLT",
    "banded_inverse": "BandInvMF",
    "fed_smp": "Fed-SMP, BandInvMF",
    "least_error": "matrix of least error",
    "wav": "DP-SGD, Haar noise calibrated",
    "dp_sgd_fed": "DP-SGD of ten clients",
    "unequal": "DP-SGD of unequal clients",
    "no_noise": "DP-FedAvg without noise",
    "half_noise": "DP-FedAvg, half the noise",
    "no_clip": "DP-FedAvg without clip",
    "median_clip": "DP-SGD, median clip",
    "fed_avg_quick": "FedAvg, quick clients",
    "fed_avg_buffered": "FedAvg, buffered",
    "dp_fed_avg_quick": "DP-FedAvg, quick clients",
    "dp_fed_avg_buffered": "DP-FedAvg, buffered",
}
"""Of the algorithms that come with the project; runs record those of others, see `config.Entry`."""
ClientEpsilons: TypeAlias = tuple[float, float, float]
"""The smallest, the median (of an even number the larger one) and the largest of the epsilons of clients' records."""
GroupEpsilons: TypeAlias = dict[str, float]
"""The epsilon of each public group's units, by its name."""
LONGEST_NAME = 32  # of an algorithm's name, in characters
LONGEST_METRIC = 12
ABSENT = "-"
_PIPE = re.compile(r"(\\*)\|")  # with what stands before it and would escape what escapes it


def name_of(algorithm: str, own: Mapping[str, str] = MappingProxyType({})) -> str:
    """For people: the algorithm's name, `own` before ours."""
    return own.get(algorithm) or NAMES.get(algorithm, algorithm)


def short_name_of(algorithm: str, own: Mapping[str, str] = MappingProxyType({})) -> str:
    """For people: the algorithm's name, cut where it is long."""
    name = name_of(algorithm, own)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells as text: those of each column below each other, and a rule below the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return [line.rstrip() for line in lines]


def markdown_table(rows: Sequence[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A table whose first row is its head, and a list below; each cell and note is on one line."""
    plain = [[_PIPE.sub(r"\1\1\|", on_one_line(cell)) for cell in row] for row in rows]
    head, *others = ["| " + " | ".join(row) + " |" for row in plain]
    rule = "| " + " | ".join(["---"] * len(rows[0])) + " |"
    below = (f"- {on_one_line(note)}" for note in notes)
    return "\n".join([head, rule, *others, "", *below]).rstrip()


def on_one_line(text: str) -> str:
    """Text without breaks, and with what a terminal would act on shown."""
    return printable(" ".join(text.split()))


def metric_heading(metric: str) -> str:
    """A metric in a table's head."""
    return "acc." if metric == "accuracy" else metric[:LONGEST_METRIC]


def mean_and_std(s: Spread | None, metric: str = "") -> str:
    """Mean and deviation of a metric, in percent where it is shown so."""
    if s is None:
        return ABSENT
    if not math.isfinite(s.mean):
        return "not finite"
    if in_percent(metric):
        return f"{100 * s.mean:z.2f}" + ("" if s.std is None else f" ± {100 * s.std:.2f}")
    if is_fraction(metric):
        return f"{s.mean:z.4f}" + ("" if s.std is None else f" ± {s.std:.4f}")
    return f"{s.mean:.4g}" + ("" if s.std is None else f" ± {s.std:.2g}")


def number(value: float | None, digits: int = 4) -> str:
    return ABSENT if value is None else f"{value:.{digits}g}"


def field_name(field: str) -> str:
    """A config's field for people: the budget of a run is ε, which the notes of a table explain."""
    if field in (known := {"target_epsilon": "ε", "groups.epsilons": "ε of groups"}):
        return known[field]
    return field.replace("_", " ").replace(".", " ").replace("epsilon", "ε")


def setting(field: str, value: Any) -> str:
    """A config's setting, for people."""
    if field == "config":
        return Path(value).stem
    said = (" ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    if isinstance(value, float) and float(f"{value:g}") == value:
        said = f"{value:g}"
    elif value is None or isinstance(value, bool):
        said = said.lower()
    return f"{field_name(field)} = {said}"


def epsilon(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def spread_over_clients(epsilons: ClientEpsilons) -> str:
    """For people: the epsilons of single clients' records."""
    smallest, median, largest = map(epsilon, epsilons)
    return f"by client: {smallest} to {largest}, median {median}"


def epsilons_by_group(epsilons: GroupEpsilons) -> str:
    """For people: the epsilons of public groups."""
    return f"by group: {named(epsilons)}"


def named(numbers: Mapping[str, float]) -> str:
    """For people: a number of each, after its name."""
    return ", ".join(f"{name} {epsilon(x)}" for name, x in numbers.items())


def of_which(notes: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Notes, each once, with the names of the runs that have it, where these are not all."""
    every, names = set[str](), dict[str, dict[str, None]]()
    for name, own in notes:
        every.add(name)
        for text in own:
            names.setdefault(text, {})[name] = None
    return [
        text if len(of) == len(every) else f"{text} ({', '.join(of)})" for text, of in names.items()
    ]


def assumptions(certificates: Sequence[Certificate]) -> list[str]:
    """The assumptions of certificates, each once, with the views that it is made for, where these are not all."""
    views: dict[str, list[str]] = {}
    for c in certificates:
        for text in c.assumptions:
            views.setdefault(text, []).append(c.view)
    return [
        text if len(of) == len(certificates) else f"{text} ({', '.join(of)})"
        for text, of in views.items()
    ]
