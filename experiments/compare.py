"""python -m experiments.compare FOLDER [FOLDER ...] [--metrics NAME ...] [--output PICTURE]: runs side by side.

Prints a Markdown table with a line per run folder and algorithm: the settings in which the runs differ, accuracy, and
the epsilons with their unit and adjacency. With --output it draws a row of panels per metric (accuracy, loss or
anything under "diagnostics_not_private") and a column per folder. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.run import one_line
from experiments.show import NAMES, epsilon, percent

UNINTERESTING = ("output", "data_dir", "layout", "algorithms", "every")


class RunFolder(NamedTuple):
    """What a run left behind.

    Attributes:
      summary: of summary.json.
      lines: of metrics.jsonl.
    """

    summary: dict[str, Any]
    lines: list[dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    about, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog=about.split(" FOLDER")[0], description=details)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--metrics", nargs="+", default=["accuracy"], metavar="NAME")
    parser.add_argument("--output", type=Path, metavar="PICTURE")
    args = parser.parse_args(argv)
    try:
        runs = [read(folder) for folder in args.folders]
        if args.output:
            picture(runs, args.metrics, args.output)
    except (ValueError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    print(table(runs))
    return 0


def read(folder: Path) -> RunFolder:
    """Raises ValueError where `folder` holds no finished run."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        lines = (folder / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        raise ValueError(f"folder: {folder} holds no finished run; give a run folder") from None
    return RunFolder(summary, [json.loads(line) for line in lines])


def titles(runs: Sequence[RunFolder]) -> list[str]:
    """The settings in which the runs differ, one title per run."""
    settings = [_flat(run.summary["settings"]) for run in runs]
    names = {name: None for of in settings for name in of}
    differing = [n for n in names if len({json.dumps(of.get(n)) for of in settings}) > 1]
    return [", ".join(f"{n} {of[n]}" for n in differing if n in of) for of in settings]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name in UNINTERESTING:
            continue
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return flat


def table(runs: Sequence[RunFolder]) -> str:
    """Markdown; what every epsilon means stands below it."""
    head = ["settings", "algorithm", "rounds", "accuracy, last", "best"]
    head += ["claimed", "certified, third party", "certified, server"]
    rows, notes = [head, ["---"] * len(head)], set()
    for run, title in zip(runs, titles(runs), strict=True):
        summary = run.summary
        for name, rounds in summary["rounds"].items():
            privacy = summary["privacy"][name]
            claim, certified = privacy["claimed"], privacy["certified"]
            cells = [title, NAMES.get(name, name), str(rounds)]
            cells += [percent(summary["accuracy"][which][name]) for which in ("final", "best")]
            cells.append(_claimed(claim))
            cells += [epsilon(certified[view]["epsilon"]) for view in ("third_party", "server")]
            rows.append(cells)
            notes |= {_meaning(c, "certified") for c in certified.values()}
            notes |= {_meaning(claim, "claimed")} if claim else set()
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *sorted(notes)])


def _claimed(claim: dict[str, Any] | None) -> str:
    if claim is None:
        return "-"
    return epsilon(claim["epsilon"]) + ("" if claim["sound"] else " (not proved)")


def _meaning(number: dict[str, Any], status: str) -> str:
    relation = number["relation"].replace("_", "-")
    return (
        f"epsilon {status}, {number['view']}: {number['unit']} level, {relation} adjacency, "
        f"delta {number['delta']:.3g}"
    )


def picture(runs: Sequence[RunFolder], metrics: Sequence[str], path: Path) -> None:
    """Mean over the seeds, band of one standard deviation, by round.

    Raises:
      ValueError: no run has the metric.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (3.4 * len(runs) + 0.6, 2.8 * len(metrics) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(metrics), len(runs), sharex="col", sharey="row", squeeze=False)
    for metric, row in zip(metrics, panels, strict=True):
        for axes, run in zip(row, runs, strict=True):
            _draw(axes, run, metric)
        if not any(axes.lines for axes in row):
            known = sorted(runs[0].lines[0]["diagnostics_not_private"]) if runs[0].lines else []
            raise ValueError(
                f"metrics: no {metric!r}; there are {', '.join(['accuracy', 'loss', *known])}"
            )
        row[0].set_ylabel(metric)
    for axes, title in zip(panels[0], titles(runs), strict=True):
        axes.set_title(title, fontsize="medium", wrap=True)
    for axes in panels[-1]:
        axes.set_xlabel("round")
    panels[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=90)


def _draw(axes: Any, run: RunFolder, metric: str) -> None:
    for name in run.summary["rounds"]:
        lines = [line for line in run.lines if line["algorithm"] == name]
        found = [(line["round"], _value(line, metric)) for line in lines]
        points = [(t, s) for t, s in found if s and math.isfinite(float(s["mean"]))]
        if not points:
            continue
        rounds = np.array([t for t, _ in points])
        mean = np.array([s["mean"] for _, s in points])
        std = np.array([s["std"] or 0.0 for _, s in points])
        axes.plot(rounds, mean, label=NAMES.get(name, name))
        axes.fill_between(rounds, mean - std, mean + std, alpha=0.2)


def _value(line: dict[str, Any], metric: str) -> dict[str, Any] | None:
    return (
        line[metric]
        if metric in ("accuracy", "loss")
        else line["diagnostics_not_private"].get(metric)
    )


if __name__ == "__main__":
    sys.exit(main())
