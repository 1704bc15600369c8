"""The tables and figures of DP-SCAFFOLD (Noble, Bellet, Dieuleveut, arXiv:2111.09278)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fedpriv.experiments.base.formats import NAMES
from fedpriv.experiments.papers.reproduce.accounting import accounted, allowed_rounds, epsilon
from fedpriv.experiments.papers.reproduce.item import Cell, Item, Paper, Read, Training, Value
from fedpriv.experiments.papers.reproduce.picture import Curves, panels
from fedpriv.experiments.papers.reproduce.reading import (
    change,
    claim,
    final_accuracy,
    last,
    last_tenth,
    numbers,
    unsteadiness,
)

PAPER = Paper("dp_scaffold")
DATA = PAPER.said["data"]
MNIST, SEEDS = "dp_scaffold_mnist", 3
ALGORITHMS = ("fed_avg", "fed_sgd", "scaffold", "dp_fed_avg", "dp_fed_sgd", "dp_scaffold")
RIVALS = ("dp_fed_avg", "dp_fed_sgd")
PRIVATE = ("dp_scaffold", "dp_fed_avg")
AUTHORS = PAPER.said["authors"]
"""What makes Tables 1 and 4 those of the authors' published code; `eta_0` by sigma_g, which their printed numbers tell
(the paper says one, tuned)."""
BUDGET = 3.0
"""Epsilon of Tables 1 and 4."""
CLAIMED = "record level, third party, replace-one"

LOG_GAP, ACCURACY = "log10(F(x) - F*)", "test accuracy (%)"
UNSTEADINESS = "standard deviation of its accuracy over the last quarter (points)"
SHOWN: dict[str, tuple[str, float, Read]] = {
    LOG_GAP: ("log_gap", 1, last("log_gap")),
    ACCURACY: ("accuracy", 100, final_accuracy),
    "gradient dissimilarity": ("dissimilarity", 1, last("dissimilarity")),
}
"""What is drawn -> the metric, its factor, and how its last value is read."""


def training(
    config: str,
    algorithm: str,
    *,
    rounds: int | None = None,
    every: int | None = None,
    warm: bool = True,
    **settings: Any,
) -> Training:
    """A training of DP-SCAFFOLD's paper, without settings that its algorithm does not use, so that it is trained once.

    Args:
      rounds, every: by default those of the figures.
      warm: False for no warm start.
      settings: among them `local_steps` and, where it is not 0.2, `client_rate`.
    """
    own = dict(settings)
    if algorithm.startswith("dp_"):
        own["clip_norm"] = "median"
    if algorithm.endswith("fed_sgd"):
        own.pop("local_steps", None)
    if algorithm.endswith("scaffold"):
        own["warm_start"] = math.ceil(4 / settings.get("client_rate", 0.2) - 1e-9) if warm else 0
    if (config, algorithm) == (MNIST, "dp_scaffold"):
        own["eta_0"] = 0.1
    return Training(
        config,
        algorithm,
        own,
        rounds=rounds or DATA[config]["rounds"],
        seeds=SEEDS,
        every=every or DATA[config]["every"],
        rounds_in=("warm_start",) if own.get("warm_start") else (),
    )


class Panel(NamedTuple):
    """Of a figure of DP-SCAFFOLD's: a config at one level of heterogeneity, which has a name."""

    config: str
    level: str
    settings: dict[str, Any]

    @property
    def data(self) -> str:
        return f"{DATA[self.config]['title']} {self.level}"

    @property
    def row(self) -> str:
        return f"{self.data}, K = {self.settings['local_steps']}"

    def training(self, algorithm: str) -> Training:
        return training(self.config, algorithm, **self.settings)

    def curves(self, metric: str, factor: float, what: str) -> Curves:
        lines = {NAMES[name]: self.training(name) for name in ALGORITHMS}
        return Curves(self.row, lines, metric, factor=factor, ylabel=what)


def budget(name: str) -> Item:
    """DP-SCAFFOLD's Tables 1 and 4: T for a budget, and the accuracy after so many rounds."""
    said, cells = PAPER[name], list[Cell]()
    for sigma, printed in said["rows"].items():
        for k, rounds, accuracy in zip(
            said["columns"], said["rounds"][sigma], printed, strict=True
        ):
            own = said["settings"] | {"client_rate": 0.05, "noise_multiplier": int(sigma)}
            own |= {"local_steps": k, "measured": "false"}
            schedule = {"rounds": rounds, "every": 5, "warm": k < 40}
            one = training("dp_scaffold_synthetic", "dp_scaffold", **schedule, **own)
            eta_0 = {"eta_0": AUTHORS["eta_0"][sigma]}
            theirs = replace(
                one, settings={**one.settings, **AUTHORS["settings"], **eta_0}, rounds_in=()
            )
            row, read = f"sigma_g = {sigma}, K = {k}", partial(allowed, one, BUDGET)
            cells += [
                Cell(row, f"T for claimed epsilon 3 ({CLAIMED})", str(rounds), (), read),
                Cell(row, "accuracy (%)", accuracy, (one,), last_tenth),
                Cell(
                    row, "accuracy with the authors' options (%)", accuracy, (theirs,), last_tenth
                ),
            ]
    return PAPER.item(name, cells)


def allowed(one: Training, budget: float) -> Value:
    return Value(float(allowed_rounds(one, budget)))


def curves(name: str) -> Item:
    """Figures 1 to 8: the six algorithms; in the table their last values, and whether DP-SCAFFOLD is ahead."""
    what = PAPER[name]["shows"]
    metric, factor, read = SHOWN[what]
    rows, cells = grid(name), list[Cell]()
    every = [panel for row in rows for panel in row]
    for panel in every:
        for algorithm in ALGORITHMS:
            lines = {NAMES[algorithm]: panel.training(algorithm)}
            cells += numbers(lines, panel.row, f"{{}}, last {what}", read)
            cells += numbers(lines, panel.row, f"{{}}, {UNSTEADINESS}", unsteadiness)
        ahead = "above 0" if what == ACCURACY else "below 0"
        cells += [less(panel.row, [panel], ahead, read, rival) for rival in RIVALS]
    if name == "fig1":
        cells += more_with_steps(*rows)
    if said := PAPER[name].get("claimed"):
        cells.append(less("average over the panels", every, said, read, "dp_fed_avg"))
    drawn = [[panel.curves(metric, factor, what) for panel in row] for row in rows]
    return PAPER.item(name, cells, draw=panels(drawn))


def grid(name: str) -> list[list[Panel]]:
    """DP-SCAFFOLD's panels: levels of heterogeneity from left to right."""
    found = []
    for row in PAPER[name]["rows"]:
        levels = PAPER[name].get("levels", DATA[row["config"]]["levels"])
        k = {"local_steps": row["local_steps"]}
        found.append([Panel(row["config"], level, own | k) for level, own in levels.items()])
    return found


def less(row: str, over: Sequence[Panel], published: str, read: Read, rival: str) -> Cell:
    """DP-SCAFFOLD less a rival, on average over the panels."""
    ours, theirs = ([panel.training(name) for panel in over] for name in ("dp_scaffold", rival))
    return claim(row, f"DP-SCAFFOLD less {NAMES[rival]}", published, read, ours, theirs)


def more_with_steps(row: Sequence[Panel], longer: Sequence[Panel]) -> Iterator[Cell]:
    """ "The performance gap also increases with the number K of local updates, see Figure 1"."""
    column, read = (
        "DP-SCAFFOLD less DP-FedAvg: K = 100 less K = 50",
        partial(change, last("log_gap")),
    )
    for short, long in zip(row, longer, strict=True):
        work = [panel.training(name) for panel in (long, short) for name in PRIVATE]
        yield Cell(short.data, column, "below 0", work, read)


def rates(name: str) -> Item:
    """DP-SCAFFOLD's Figures 9 and 10: l or s against T under a fixed budget."""
    said, cells, better, drawn = PAPER[name], list[Cell](), list[Cell](), list[list[Curves]]()
    letter, (one, other) = said["letter"], said["better"]
    for config, about in DATA.items():
        drawn.append([])
        for level, own in about["levels"].items():
            row = f"{about['title']} {level}"
            runs = {
                (each, rate): at_rate(said, config, rate, each, own)
                for each in PRIVATE
                for rate in said["rates"]
            }
            lines = {f"{NAMES[n]}, {letter} = {rate:g}": run for (n, rate), run in runs.items()}
            title = f"{row}, claimed epsilon {about['budget']:g}"
            drawn[-1].append(Curves(title, lines, factor=100, ylabel=ACCURACY, ends=True))
            for rate in said["rates"]:
                cells += _at(f"{row}, {letter} = {rate:g}", said, config, rate, runs)
            column = f"DP-SCAFFOLD: {letter} = {one:g} less {letter} = {other:g} (points)"
            pair = ([runs["dp_scaffold", x]] for x in (one, other))
            better.append(claim(row, column, "above 0", final_accuracy, *pair))
    for config, level, over, printed in said["claimed"]:
        own, these = DATA[config]["levels"][level], ", ".join(f"{letter} = {x:g}" for x in over)
        both = ([at_rate(said, config, x, each, own) for x in over] for each in PRIVATE)
        row, column = (
            f"{DATA[config]['title']} {level}, {these}",
            "DP-SCAFFOLD less DP-FedAvg (points)",
        )
        cells.append(claim(row, column, printed, final_accuracy, *both))
    return PAPER.item(name, [*cells, *better], draw=panels(drawn))


def at_rate(
    said: Mapping[str, Any], config: str, rate: float, algorithm: str, level: Mapping[str, Any]
) -> Training:
    own = {**level, **said["settings"], said["varied"]: rate}
    return training(
        config, algorithm, rounds=said["rounds"][config][said["rates"].index(rate)], **own
    )


def _at(
    row: str, said: Mapping[str, Any], config: str, rate: float, runs: Mapping[Any, Training]
) -> Iterator[Cell]:
    """T that the paper's formula allows, and the accuracies."""
    one = at_rate(said, config, rate, "dp_scaffold", {})
    read = partial(allowed, one, DATA[config]["budget"])
    yield Cell(row, f"T for the claimed epsilon ({CLAIMED})", "", (), read)
    lines = {NAMES[name]: runs[name, rate] for name in PRIVATE}
    yield from numbers(lines, row, "{} (%)", final_accuracy)


def epsilons(name: str) -> Item:
    towards, cells = "record level, {}, replace-one".format, list[Cell]()
    for row, config, settings, printed in PAPER[name]["rows"]:
        median = training(config, "dp_scaffold", **settings)
        fixed = replace(median, settings={**median.settings, "clip_norm": 1.0})
        cells += [
            Cell(row, column, published, (accounted(work),), epsilon(which))
            for column, published, work, which in (
                (f"claimed epsilon ({CLAIMED})", printed, median, "claimed"),
                (f"certified, C fixed ({towards('third party')})", "", fixed, "third_party"),
                (f"certified, C fixed ({towards('server')})", "", fixed, "server"),
                (f"certified, C the median ({towards('third party')})", "", median, "third_party"),
            )
        ]
    return PAPER.item(name, cells)


KINDS = {"budget": budget, "curves": curves, "rates": rates, "epsilons": epsilons}
