"""Pictures: of a table, published beside measured; of a figure, panels of curves or of points."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedpriv.core.files import save_figure
from fedpriv.experiments.papers.reproduce.item import Draw, Item, Read, Results, Training, Value
from fedpriv.experiments.papers.reproduce.reading import complete, lines, metric_of
from fedpriv.experiments.papers.reproduce.table import Filled
from fedpriv.experiments.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curves:
    """A panel of an item's picture, with a line per training: mean over the seeds, band of one standard deviation.

    Attributes:
      title: above the panel.
      lines: label -> training.
      metric: "accuracy", "loss" or a diagnostic.
      x: "round" or "uplink_mb_per_client".
      xlabel, ylabel: of the axes, with units.
      factor: on the metric, such as 100 for %.
      xscale: "linear" or "log".
      ends: whether a red line stands where each ends.
    """

    title: str
    lines: Mapping[str, Training]
    metric: str = "accuracy"
    x: str = "round"
    xlabel: str = "round"
    ylabel: str = ""
    factor: float = 1.0
    xscale: str = "linear"
    ends: bool = False

    def draw(self, axes: Axes, results: Results) -> None:
        last = set[int]()
        for number, (label, training) in enumerate(self.lines.items()):
            run = results.get(training)
            if isinstance(run, RunFolder):
                self._line(axes, run, label, f"C{number % 10}")
                last |= {line.round for line in lines(run)[-1:]}
        for end in last if self.ends else ():
            axes.axvline(end, color="red", linestyle=":", linewidth=1)
        named = {"xlabel": self.xlabel, "ylabel": self.ylabel or self.metric}
        axes.set(title=self.title, xscale=self.xscale, **named)

    def _line(self, axes: Axes, run: RunFolder, label: str, colour: str) -> None:
        spreads = [metric_of(line, self.metric) for line in lines(run)]
        x = np.array([getattr(line, self.x) for line in lines(run)], float)
        mean = self.factor * np.array([s.mean for s in spreads])
        std = self.factor * np.array([s.std or 0 for s in spreads])
        axes.plot(x, mean, label=label, color=colour, marker="." if len(x) < 12 else None)
        axes.fill_between(x, mean - std, mean + std, alpha=0.2, color=colour)


@dataclass(frozen=True)
class Points:
    """A panel of an item's picture, with a line per label through one number of each of its trainings.

    Attributes:
      title: above the panel.
      lines: label -> (x, training) from left to right.
      read: the number.
      xlabel, ylabel: of the axes, with units.
      xscale: "linear" or "log".
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, Training]]]
    read: Read
    xlabel: str
    ylabel: str
    xscale: str = "linear"

    def draw(self, axes: Axes, results: Results) -> None:
        for number, (label, points) in enumerate(self.lines.items()):
            done = [(x, results.get(training)) for x, training in points]
            ended = [(x, run) for x, run in done if isinstance(run, RunFolder) and complete(run)]
            read = [(x, self.read(run)) for x, run in ended]
            found = [(x, value) for x, value in read if isinstance(value, Value)]
            if not found:
                continue
            x, values = zip(*found, strict=True)
            mean, std = [v.mean for v in values], [v.std or 0.0 for v in values]
            axes.errorbar(x, mean, std, label=label, color=f"C{number % 10}", marker="o", capsize=3)
        axes.set(title=self.title, xlabel=self.xlabel, ylabel=self.ylabel, xscale=self.xscale)


class Panel(Protocol):
    """A panel of an item's picture: what `panels` draws."""

    def draw(self, axes: Axes, results: Results) -> None: ...


def panels(rows: Sequence[Sequence[Panel]]) -> Draw:
    """Draws the panels of an item's picture in rows and columns; what is not trained yet is left out."""

    def draw(figure: Figure, results: Results) -> None:
        grid = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
        for row, line in zip(rows, grid, strict=True):
            for axes in line[len(row) :]:
                axes.set_axis_off()
            for panel, axes in zip(row, line, strict=False):
                panel.draw(axes, results)
                if axes.get_legend_handles_labels()[0]:
                    axes.legend(fontsize="x-small")

    return draw


def save(item: Item, filled: Sequence[Filled], results: Results, scaled: str, path: Path) -> None:
    """Writes the item's picture; a scaled one says so."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=item.size, layout="constrained")
    FigureCanvasAgg(figure)
    if item.draw:
        item.draw(figure, results)
    else:
        side_by_side(figure, filled)
    done = sum(work in results for work in item.needs)
    parts = [f"{item.paper} {item.name}", scaled]
    parts += [f"{done} of {len(item.needs)} trained"] if done < len(item.needs) else []
    wide = int(12 * figure.get_figwidth())  # characters of this size
    figure.suptitle(textwrap.fill("; ".join(filter(None, parts)), wide), fontsize="medium")
    save_figure(figure, path, dpi=100, format="png")


def side_by_side(figure: Figure, filled: Sequence[Filled]) -> None:
    """An item's picture of its table: a panel per column, the rows from left to right, published and measured.

    Columns that need nothing trained, such as those of an epsilon, are left out where there are others.
    """
    shown = [f for f in filled if f.cell.work] or list(filled)
    columns = list(dict.fromkeys(f.cell.column for f in shown))
    across = min(3, len(columns))
    down = math.ceil(len(columns) / across)
    figure.set_size_inches(5 * across, 3.8 * down)
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.flat[len(columns) :]:
        axes.set_axis_off()
    for axes, column in zip(grid.flat, columns, strict=False):
        cells = [f for f in shown if f.cell.column == column]
        _errorbars(axes, [f.cell.printed for f in cells], "o", "published")
        _errorbars(axes, [f.value for f in cells], "x", "measured")
        axes.set_xticks(range(len(cells)), [f.cell.row for f in cells])
        axes.tick_params("x", rotation=90, labelsize="x-small")
        axes.set_title(textwrap.fill(column, 60), fontsize="small")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="x-small")


def _errorbars(axes: Axes, values: Sequence[Value | None], marker: str, label: str) -> None:
    found = [(i, v) for i, v in enumerate(values) if v and math.isfinite(v.mean)]
    if found:
        x, there = zip(*found, strict=True)
        std = [v.std or 0.0 for v in there]
        axes.errorbar(x, [v.mean for v in there], std, fmt=marker, label=label, capsize=3)
