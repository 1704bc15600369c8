"""Part of experiments.growth: time and memory against each axis, with lines of slope 1 to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

TITLES = {"cohort": "cohort r", "parameters": "parameters d", "clients": "clients n"}
LABELS = {"dp_fed_avg": "DP-FedAvg", "fed_smp": "Fed-SMP rand_k", "dp_scaffold": "DP-SCAFFOLD"}
COLOURS = dict(zip(LABELS, ("C0", "C1", "C2"), strict=True))


def picture(found: dict[str, Any], path: Path) -> None:
    """Draws the object of `--json`: a row of panels, time and then memory for each axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = [s for s in found["series"] if s["points"]]
    axes_of = {axis: [s for s in measured if s["axis"] == axis] for axis in TITLES}
    figure = Figure(figsize=(3 * 2 * len(axes_of), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = iter(figure.subplots(1, 2 * len(axes_of)))
    for axis, series in axes_of.items():
        for draw in (_time, _memory):
            panel = next(panels)
            for one in series:
                draw(panel, one)
            panel.set(xscale="log", yscale="log", xlabel=TITLES[axis])
            panel.grid(alpha=0.3)
            if series:
                _slope_one(panel, series, draw)
                panel.legend(fontsize=7)
    figure.savefig(path, dpi=100)


def _time(panel: Any, one: dict[str, Any]) -> None:
    times = np.array([p["seconds"]["all"] for p in one["points"]])
    median = np.median(times, 1)
    panel.errorbar(
        _x(one),
        median,
        (median - times.min(1), times.max(1) - median),
        marker="o",
        ms=4,
        color=COLOURS[one["algorithm"]],
        label=LABELS[one["algorithm"]],
    )
    panel.set_title("seconds a round", fontsize=9)


def _memory(panel: Any, one: dict[str, Any]) -> None:
    colour = COLOURS[one["algorithm"]]
    for key, style in (("peak_mb", "o-"), ("xla_mb", "o:")):
        label = LABELS[one["algorithm"]] + (", process" if key == "peak_mb" else ", XLA")
        panel.plot(_x(one), [p[key] for p in one["points"]], style, ms=4, color=colour, label=label)
    panel.set_title("MB: process's peak, XLA's need", fontsize=9)


def _slope_one(panel: Any, series: list[dict[str, Any]], draw: Any) -> None:
    """Through the last point of the series that ends highest."""

    def end(one: dict[str, Any]) -> float:
        last = one["points"][-1]
        return last["seconds"]["median"] if draw is _time else last["peak_mb"]

    highest = max(series, key=end)
    x = np.array(_x(highest), float)
    panel.plot(x, end(highest) * x / x[-1], "k--", lw=0.8, label="slope 1")


def _x(one: dict[str, Any]) -> list[float]:
    return [p[one["axis"]] for p in one["points"]]
