"""python -m experiments.benchmark growth [--repeats N] [--output DIR] [--json]: how a round's time and memory grow.

Rounds of DP-FedAvg, Fed-SMP (rand_k, p = 0.1) and, against the clients, DP-SCAFFOLD, which keeps a control variate for
each of them: against the cohort r (10 to 1000), the parameters d (1e4 to 1e7) and the clients n (1e2 to 1e6), with the
other two fixed. A client has 4 images of 8 x 8 bytes and trains an MLP with a hidden layer: an epoch in batches of 2
(DP-SCAFFOLD: 2 steps on 2 records each). A round draws its cohort; one device; compiled before, so that compile time is
beside it. Every size has a process of its own, whose peak memory (data, compilation, rounds) counts above that of its
imports; XLA's own count of the round's memory is beside it. Slopes are those of the logarithms, over the three largest
sizes that were measured.

It takes about 5 to 10 minutes on 2 cores, and about 2 GB of memory.

Leaves growth.json, rewritten after every size, growth.md and growth.png in --output. Exit code 1 means that something
grows worse than linearly, or that a size could not be measured, which does not keep the others from it; 2 that
something given was wrong; 130 that it was interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.speed.growth_point import Name, Point, measured
from experiments.speed.timing import machine, show, spread
from fedpriv.core.files import save_figure
from fedpriv.experiments.base.files import new_folder_by_time, write_text
from fedpriv.experiments.base.formats import markdown_table, number
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number

POINTS = 3  # the largest ones, which count: below them, what does not grow hides what does

# Linear work may look a little steeper: a sort's n log n has slope 1 + 1 / ln n, 1.08 from 1e5 to 1e6, and numbers that
# have left the caches cost more each (0.1 is a quarter more per decade). The next thing that is worse, n^1.5, has 1.5.
TOLERANCE = 0.25

TITLES = {"cohort": "cohort r", "parameters": "parameters d", "clients": "clients n"}
LABELS = {"dp_fed_avg": "DP-FedAvg", "fed_smp": "Fed-SMP rand_k", "dp_scaffold": "DP-SCAFFOLD"}


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark growth`."""

    repeats: Number = 5
    """Turns."""
    output: Path | None = None
    """New folder; by default runs/growth-DATE-TIME."""
    json: bool = False
    """Print one JSON object, nothing else."""


def main(options: Options) -> int:
    result = growth(options)
    say(json.dumps(result) if options.json else table(result))
    return 0 if result["linear"] else 1


class Axis(NamedTuple):
    """An axis of growth: what is varied, under the name of a field of `Point`.

    Attributes:
      fixed: the other two sizes.
      sizes: two at least, ascending.
    """

    algorithms: tuple[Name, ...]
    fixed: dict[str, int]
    sizes: tuple[int, ...]


BOTH: tuple[Name, ...] = ("dp_fed_avg", "fed_smp")

AXES = {
    "cohort": Axis(BOTH, {"clients": 1000, "parameters": 10_000}, (10, 30, 100, 300, 1000)),
    "parameters": Axis(BOTH, {"clients": 100, "cohort": 10}, (10**4, 10**5, 10**6, 10**7)),
    "clients": Axis(
        (*BOTH, "dp_scaffold"),
        {"cohort": 100, "parameters": 160},
        (10**2, 10**3, 10**4, 10**5, 10**6),
    ),
}


def growth(options: Options) -> dict[str, Any]:
    """Measures growth at all sizes; leaves growth.json, rewritten after every size, growth.md and growth.png.

    Returns:
      See `measure`.

    Raises:
      ValueError: a folder that has a growth.json, or cannot be made.
    """
    folder = _made(options.output) if options.output else new_folder_by_time("growth")

    def keep(found: dict[str, Any]) -> None:
        write_text(folder / "growth.json", json.dumps(found, indent=2) + "\n")

    found = measure(AXES, options.repeats, measured, keep)
    write_text(folder / "growth.md", table(found) + "\n")
    picture(found, folder / "growth.png")
    return found


def _made(folder: Path) -> Path:
    if (folder / "growth.json").exists():
        raise ValueError(f"output: {folder} already holds growth.json; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output: cannot make {folder} ({error.strerror}); choose another"
        ) from None
    return folder


def measure(
    axes: Mapping[str, Axis],
    repeats: int,
    of: Callable[[Point, int], dict[str, Any]],
    keep: Callable[[dict[str, Any]], None] = lambda found: None,
) -> dict[str, Any]:
    """Every size of every axis of growth, one after the other; those that fail are said and left out.

    Args:
      of: (point, turns) -> its numbers, see `growth_point.here`; ChildProcessError: it could not be measured.
      keep: gets what there is so far after every size, and what is returned.

    Returns:
      The object of `--json`. "linear" is False where something grows worse, otherwise None as long as a size is
      missing. A series has "points", and "failed" with the sizes asked for and "why"; no "slopes" until all its sizes
      were tried, nor where fewer than two were measured.
    """
    series: list[dict[str, Any]] = []
    found: dict[str, Any] = {
        "series": series,
        "linear": None,
        "tolerance": TOLERANCE,
        "repeats": repeats,
    }
    found |= machine()
    for name, axis in axes.items():
        for algorithm in axis.algorithms:
            one: dict[str, Any] = {
                "axis": name,
                "algorithm": algorithm,
                "points": [],
                "failed": [],
                "slopes": {},
            }
            series.append(one)
            for size in axis.sizes:
                _add(one, Point(algorithm, **axis.fixed, **{name: size}), repeats, of)
                keep(found)
            one["slopes"] = _slopes([p[name] for p in one["points"]], one["points"])
    if not all(slope["linear"] for one in series for slope in one["slopes"].values()):
        found["linear"] = False
    elif not any(one["failed"] for one in series):
        found["linear"] = True
    keep(found)
    return found


def _add(
    series: dict[str, Any], point: Point, turns: int, of: Callable[[Point, int], dict[str, Any]]
) -> None:
    """A point of a series, whose `parameters` are those that the model has; or why there is none."""
    words = (
        f"{LABELS[point.algorithm]} with n = {point.clients:,}, r = {point.cohort:,}, "
        f"d = {point.parameters:,}"
    )
    sizes = {"clients": point.clients, "cohort": point.cohort}
    try:
        numbers = of(point, turns)
    except ChildProcessError as error:
        print(f"error: {words}: {error}", file=sys.stderr)
        series["failed"].append(sizes | {"parameters": point.parameters, "why": str(error)})
        return
    series["points"].append(sizes | numbers | {"seconds": spread(numbers["seconds"])})
    print(f"{words}: done", file=sys.stderr)


def _slopes(x: list[float], points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of time, whose range is that of single turns, and of memory, whose range is that between neighbouring sizes."""
    if len(points) < 2:
        return {}
    x, points = x[-POINTS:], points[-POINTS:]
    turns = [fit(x, turn) for turn in zip(*(p["seconds"]["all"] for p in points), strict=True)]
    found = {"seconds": slope(x, [p["seconds"]["median"] for p in points], turns)}
    for name in ("peak_mb", "xla_mb"):
        y = [p[name] for p in points]
        found[name] = slope(x, y, [fit(x[i : i + 2], y[i : i + 2]) for i in range(len(x) - 1)])
    return found


def slope(x: Sequence[float], y: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """The slope of growth, the range of `others`, and whether it is not worse than linear, within the tolerance."""
    found = fit(x, y)
    range_of = {"low": min(others), "high": max(others)}
    return {"slope": found, **range_of, "linear": found <= 1 + TOLERANCE}


def fit(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of growth, d log y / d log x, by least squares."""
    if min(*x, *y) <= 0:
        raise ValueError(f"{list(x)}, {list(y)}: not all positive, so that there is no logarithm")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def table(found: dict[str, Any]) -> str:
    """Growth's sizes, slopes and the verdict of the object of `--json`, as Markdown."""
    axes = ("clients n", "cohort r", "parameters d")
    memory = ("process's peak, MB", "XLA's need, MB")
    sizes = [["algorithm", *axes, "seconds a round", *memory, "compile time, s"]]
    slopes = [["slope against", "algorithm", "seconds", "process's peak", "XLA's need"]]
    for one in found["series"]:
        label = LABELS[one["algorithm"]]
        for point in one["points"]:
            used = [number(point["peak_mb"]), number(point["xla_mb"])]
            compiled = number(point["compile_seconds"], 2)
            sizes.append([label, *_size(point), show(point["seconds"]), *used, compiled])
        sizes += [[label, *_size(point), "failed", "", "", ""] for point in one["failed"]]
        if one["slopes"]:
            shown = map(_shown, one["slopes"].values())
            slopes.append([TITLES[one["axis"]], label, *shown])
    return "\n".join(
        [
            markdown_table(sizes),
            "",
            markdown_table(slopes),
            "",
            _verdict(found),
            f"median (lowest to highest) of {found['repeats']} turns; {found['device']}, {found['cores']} core(s); "
            f"jax {found['jax']}, jaxlib {found['jaxlib']}",
        ]
    )


def _size(point: dict[str, Any]) -> list[str]:
    return [f"{point[name]:,}" for name in ("clients", "cohort", "parameters")]


def _shown(found: dict[str, Any]) -> str:
    mark = "" if found["linear"] else " (!)"
    return f"{found['slope']:.2f} ({found['low']:.2f} to {found['high']:.2f}){mark}"


def _verdict(found: dict[str, Any]) -> str:
    grows = {
        True: "nothing grows",
        False: "SOMETHING (!) GROWS",
        None: "of what was measured, nothing grows",
    }[found["linear"]]
    failed = sum(len(one["failed"]) for one in found["series"])
    missing = f"; {failed} SIZE(S) COULD NOT BE MEASURED" if failed else ""
    limit = f"a slope above {1 + found['tolerance']:g} over the three largest sizes"
    return f"{grows} worse than linearly: {limit}{missing}"


def picture(found: dict[str, Any], path: Path) -> None:
    """Draws the object of `benchmark growth --json`: time and then memory against each axis, and lines of slope 1."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * len(TITLES), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2 * len(TITLES))
    for axis, (time_of, memory_of) in zip(TITLES, panels.reshape(-1, 2), strict=True):
        series = [s for s in found["series"] if s["axis"] == axis and s["points"]]
        for one in series:
            x, label = [p[axis] for p in one["points"]], LABELS[one["algorithm"]]
            style = {"ms": 4, "color": f"C{list(LABELS).index(one['algorithm'])}"}
            each = np.array([p["seconds"]["all"] for p in one["points"]])
            y = np.median(each, 1)
            bars = (y - each.min(1), each.max(1) - y)
            time_of.errorbar(x, y, bars, marker="o", label=label, **style)
            for key, line, what in (("peak_mb", "o-", "process"), ("xla_mb", "o:", "XLA")):
                y = [p[key] for p in one["points"]]
                memory_of.plot(x, y, line, label=f"{label}, {what}", **style)
        titles = ("seconds a round", "MB: process's peak, XLA's need")
        for panel, title in zip((time_of, memory_of), titles, strict=True):
            panel.set(xscale="log", yscale="log", xlabel=TITLES[axis])
            panel.grid(alpha=0.3)
            if series:
                panel.set_title(title, fontsize=9)
                _slope_one(panel)
                panel.legend(fontsize=7)
    save_figure(figure, path, dpi=100)


def _slope_one(panel: Any) -> None:
    """Through the last point of the line that ends highest."""
    highest = max(panel.lines, key=lambda line: line.get_ydata()[-1])
    x, y = highest.get_xdata(), highest.get_ydata()
    panel.plot(x, y[-1] * np.array(x) / x[-1], "k--", lw=0.8, label="slope 1")
