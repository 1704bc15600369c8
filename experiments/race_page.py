"""Tables and pictures of a race: who is best at which budget, by how much, and at what cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.files import replacing, write_text
from experiments.formats import hyphenated, markdown, setting
from experiments.paper_figure import look, scale, sheet
from experiments.records import Line, Spread
from experiments.runs import RunFolder


class Result(NamedTuple):
    """An entrant on a data set at a budget.

    Attributes:
      budget: epsilon as text; "" for what is not private.
      final: the run with the chosen settings.
      chosen: field -> value.
      trials: the runs that were compared.
    """

    dataset: str
    entrant: str
    budget: str
    final: RunFolder
    chosen: Mapping[str, Any]
    trials: Sequence[RunFolder]

    @property
    def last(self) -> Line:
        (lines,) = self.final.lines.values()
        return lines[-1]

    @property
    def accuracy(self) -> Spread:
        """On the test records, after the last round."""
        return self.last.metrics["accuracy"]

    @property
    def seconds(self) -> float:
        """Of training and evaluation, trials included, without compilation."""
        runs = [*self.trials, self.final]
        return sum(line.seconds for run in runs for of in run.lines.values() for line in of)


def write(found: Sequence[Result], folder: Path) -> None:
    """race.md and the pictures, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    datasets = list(dict.fromkeys(r.dataset for r in found))
    parts = ["## Who wins", winners(found)]
    for dataset in datasets:
        parts += [f"## {dataset}", table([r for r in found if r.dataset == dataset])]
    write_text(folder / "race.md", "\n\n".join(parts) + "\n")
    by_epsilon(found, folder / "race_epsilon.png")
    by_uplink(found, folder / "race_uplink.png")


def budgets(found: Sequence[Result]) -> list[str]:
    return sorted({r.budget for r in found} - {""}, key=float)


def winners(found: Sequence[Result]) -> str:
    """A line per data set and budget: the best, those within the spread of it, and its lead over DP-FedAvg.

    Two results are within the spread where their means differ by less than both standard deviations added in squares.
    """
    rows = [
        ["data", "epsilon", "best", "accuracy", "within the spread of it", "lead over DP-FedAvg"]
    ]
    for dataset in dict.fromkeys(r.dataset for r in found):
        for budget in budgets(found):
            ranked = sorted(
                (r for r in found if (r.dataset, r.budget) == (dataset, budget)),
                key=lambda r: -r.accuracy.mean,
            )
            if not ranked:
                continue
            first, *others = ranked
            near = [r.entrant for r in others if lead(first, r)[0] < lead(first, r)[1]]
            base = [r for r in ranked if r.entrant == "DP-FedAvg"]
            said = f"{_signed(*lead(first, base[0]))}" if base and base[0] is not first else "-"
            cells = [dataset, budget, first.entrant, _percent(first.accuracy)]
            rows.append([*cells, ", ".join(near) or "nobody", said])
    return markdown(rows)


def lead(first: Result, second: Result) -> tuple[float, float]:
    """Difference of the means, and both standard deviations added in squares; points of accuracy."""
    a, b = first.accuracy, second.accuracy
    return 100 * (a.mean - b.mean), 100 * math.hypot(a.std or 0.0, b.std or 0.0)


def table(found: Sequence[Result]) -> str:
    """A data set's: accuracies by budget, uplink, what was chosen, and how long it took."""
    steps = budgets(found)
    head = [
        "entrant",
        *(f"epsilon {b}" for b in steps),
        "MB up",
        *(f"chosen at {b}" for b in steps),
    ]
    rows = [[*head, "trials", "seconds"]]
    for entrant in dict.fromkeys(r.entrant for r in found):
        own = {r.budget: r for r in found if r.entrant == entrant}
        each = [own.get(budget, own.get("")) for budget in steps]
        any_one = next(r for r in each if r)
        cells = [_percent(r.accuracy) if r else "-" for r in each]
        chosen = [_chosen(r) if r else "-" for r in each]
        cells += [f"{any_one.last.uplink_mb_per_client:.3g}", *chosen]
        cells += [str(len(any_one.trials)), f"{sum(r.seconds for r in own.values()):.0f}"]
        rows.append([entrant, *cells])
    return markdown(rows, [_meaning(found)])


def _meaning(found: Sequence[Result]) -> str:
    """Of the epsilons."""
    said: dict[str, list[str]] = {}
    for r in found:
        (privacy,) = r.final.results.privacy.values()
        c = privacy.certified[r.final.settings["view"]]
        if r.budget:
            adjacency = f"{hyphenated(c.relation)} adjacency"
            text = f"{c.unit} level, {c.view.replace('_', ' ')}, {adjacency}, delta {c.delta:.3g}, {c.basis}"
            if r.entrant not in said.setdefault(text, []):
                said[text].append(r.entrant)
    return "; ".join(f"epsilon: {text} ({', '.join(names)})" for text, names in said.items())


def _chosen(result: Result) -> str:
    return ", ".join(setting(f.rpartition(".")[2], v) for f, v in result.chosen.items())


def _percent(s: Spread) -> str:
    return f"{100 * s.mean:.1f} ± {100 * (s.std or 0.0):.1f}"


def _signed(value: float, spread: float) -> str:
    return f"{value:+.1f} ± {spread:.1f}"


def by_epsilon(found: Sequence[Result], path: Path) -> None:
    """Accuracy against the budget, a panel per data set; what is not private is a line across."""

    def draw(axes: Any, own: Sequence[Result], style: Mapping[str, Any]) -> None:
        if own[0].budget == "":
            axes.axhline(100 * own[0].accuracy.mean, color="0.5", linestyle=":")
            return
        own = sorted(own, key=lambda r: float(r.budget))
        y, s = _values(own)
        axes.errorbar([float(r.budget) for r in own], y, s, capsize=2, **style)

    _panels(found, path, draw, "epsilon", log=False)


def by_uplink(found: Sequence[Result], path: Path) -> None:
    """Accuracy at the largest budget against the uplink, a panel per data set."""
    most = budgets(found)[-1]

    def draw(axes: Any, own: Sequence[Result], style: Mapping[str, Any]) -> None:
        own = [r for r in own if r.budget in ("", most)]
        if own:
            y, s = _values(own)
            axes.errorbar([r.last.uplink_mb_per_client for r in own], y, s, capsize=2, **style)

    _panels(found, path, draw, f"uplink per client (MB), epsilon {most}", log=True)


def _values(own: Sequence[Result]) -> tuple[list[float], list[float]]:
    return [100 * r.accuracy.mean for r in own], [100 * (r.accuracy.std or 0.0) for r in own]


def _panels(found: Sequence[Result], path: Path, draw: Any, label: str, *, log: bool) -> None:
    datasets = list(dict.fromkeys(r.dataset for r in found))
    entrants = list(dict.fromkeys(r.entrant for r in found))
    with replacing(path) as unfinished, sheet(2.2 * len(datasets) + 1.8, 2.8) as figure:
        panels = figure.subplots(1, len(datasets), squeeze=False)[0]
        for axes, dataset in zip(panels, datasets, strict=True):
            for number, entrant in enumerate(entrants):
                own = [r for r in found if (r.dataset, r.entrant) == (dataset, entrant)]
                style = look(number, number // 7) | {"label": entrant}
                if own:
                    draw(axes, own, style)
            scale(axes, "x", log)
            axes.set(title=dataset, xlabel=label)
        panels[0].set_ylabel("test accuracy (%)")
        every: dict[str, Any] = {}
        for axes in panels:
            handles, names = axes.get_legend_handles_labels()
            every |= dict(zip(names, handles, strict=True))
        figure.legend(every.values(), every, loc="outside right center")
        figure.savefig(unfinished, dpi=150, format=path.suffix[1:])
