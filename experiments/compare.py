"""python -m experiments.compare FOLDER [FOLDER ...] [--output PICTURE [--metrics NAME ...] [--together]]: side by side.

Prints a Markdown table with a line per run folder and algorithm: the settings in which the runs differ, accuracy, and
the epsilons with their unit, view and adjacency. With --output it draws a row of panels per metric (accuracy, loss or
anything under "diagnostics_not_private") and a column per folder, or one for all with --together. Exit code 2:
something given was wrong.
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.command_line import Parser, command, one_line
from experiments.plain import flat
from experiments.show import NAMES, claimed, epsilon, percent

HEAD = ["algorithm", "rounds", "accuracy, last", "best", "unit", "delta"]
HEAD += ["claimed", "certified, third party", "certified, server"]
UNINTERESTING = ("output", "data_dir", "layout", "algorithms", "every")


class RunFolder(NamedTuple):
    """What a run left behind.

    Attributes:
      summary: of summary.json.
      lines: of metrics.jsonl.
    """

    summary: dict[str, Any]
    lines: list[dict[str, Any]]


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.compare", description=details)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of a run")
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="to draw (default: accuracy)")
    parser.add_argument("--output", type=Path, metavar="PICTURE", help="file to draw")
    parser.add_argument("--together", action="store_true", help="one column for all folders")
    args = parser.parse_args(argv)
    for option, value in (("--metrics", args.metrics), ("--together", args.together)):
        if value and not args.output:
            raise ValueError(f"{option}: there is no picture to draw in; give --output")
    runs = [read(folder) for folder in args.folders]
    if args.output:
        draw = overlay if args.together else picture
        draw(runs, args.metrics or ["accuracy"], args.output)
    print(table(runs))
    return 0


def read(folder: Path) -> RunFolder:
    """Raises ValueError where `folder` holds no run that ended, if only by being interrupted."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        lines = [json.loads(x) for x in _whole_lines(folder / "metrics.jsonl")]
        run = RunFolder(summary, lines)
        table([run])  # has all that it needs
        for line in lines:
            spreads = [line["accuracy"], line["loss"], *line["diagnostics_not_private"].values()]
            _ = line["algorithm"], int(line["round"]), [float(s["mean"]) for s in spreads]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        summary = {}
    if not summary.get("rounds"):
        sweep = (folder / "sweep.json").exists()
        remedy = f"give its points, {folder}/*/" if sweep else "give a run folder"
        raise ValueError(f"FOLDER: {folder} does not hold a run that ended; {remedy}")
    return run


def _whole_lines(path: Path) -> list[str]:
    """Without a last one that was broken off, as by a full disk."""
    lines = path.read_text().split("\n")
    return [line for line in lines[:-1] if line]


def titles(runs: Sequence[RunFolder]) -> list[str]:
    """The settings in which the runs differ, one title per run."""
    settings = [{"config": run.summary["config"]} | _interesting(run) for run in runs]
    names = {name: None for of in settings for name in of}
    differing = [n for n in names if len({json.dumps(of.get(n)) for of in settings}) > 1]
    return [", ".join(f"{n} {of[n]}" for n in differing if n in of) for of in settings]


def _interesting(run: RunFolder) -> dict[str, Any]:
    fields = flat(run.summary["settings"])
    return {n: v for n, v in fields.items() if n.partition(".")[0] not in UNINTERESTING}


def table(runs: Sequence[RunFolder]) -> str:
    """Markdown; what every epsilon means stands in its row and below."""
    head = ["settings", *HEAD]
    rows, notes = [head, ["---"] * len(head)], {}
    for run, title in zip(runs, titles(runs), strict=True):
        if run.summary["status"] != "complete":
            title += f" ({run.summary['status']})"
        for name in run.summary["rounds"]:
            rows.append([title, *cells(run.summary, name)])
        notes |= dict.fromkeys(run.summary.get("privacy_notes", ()))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def cells(summary: dict[str, Any], name: str) -> list[str]:
    """An algorithm's line, below `HEAD`."""
    claim, certified = (summary["privacy"][name][kind] for kind in ("claimed", "certified"))
    accuracy = [percent(summary["accuracy"][which][name]) for which in ("final", "best")]
    numbers = [certified[view] for view in ("third_party", "server")]
    return [
        NAMES.get(name, name),
        str(summary["rounds"][name]),
        *accuracy,
        numbers[0]["unit"],
        f"{numbers[0]['delta']:.3g}",
        "-" if claim is None else _claimed(claim, numbers[0]["delta"]),
        *(_number(number) for number in numbers),
    ]


def _claimed(claim: dict[str, Any], delta: float) -> str:
    relation = claim["relation"].replace("_", "-")
    return f"{claimed(claim, delta)} ({relation})" + ("" if claim["sound"] else ", not proved")


def _number(number: dict[str, Any]) -> str:
    return f"{epsilon(number['epsilon'])} ({number['relation'].replace('_', '-')})"


def picture(runs: Sequence[RunFolder], metrics: Sequence[str], path: Path) -> None:
    """Mean over the seeds, band of one standard deviation, by round.

    Raises:
      ValueError: no run has the metric.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.summary["rounds"]))
    looks = {name: Look(NAMES.get(name, name), f"C{i % 10}") for i, name in enumerate(names)}
    columns = {t: [(run, looks)] for run, t in zip(runs, titles(runs), strict=True)}
    _picture(columns, metrics, path)


def overlay(runs: Sequence[RunFolder], metrics: Sequence[str], path: Path) -> None:
    """`picture` with every run and algorithm in the same panel."""
    drawn = []
    for run, title in zip(runs, titles(runs), strict=True):
        looks = {}
        for name in run.summary["rounds"]:
            number = sum(len(looks) for _, looks in drawn) + len(looks)
            label = ", ".join(x for x in (NAMES.get(name, name), title) if x)
            looks[name] = Look(label, f"C{number % 10}", "-" if number < 10 else "--")
        drawn.append((run, looks))
    _picture({"": drawn}, metrics, path)


class Look(NamedTuple):
    """How an algorithm's line is drawn."""

    label: str
    colour: str
    style: str = "-"


def _picture(
    columns: dict[str, list[tuple[RunFolder, dict[str, Look]]]], metrics: Sequence[str], path: Path
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide, tall = (3.4, 2.8) if len(columns) > 1 else (6.4, 3.8)
    size = (wide * len(columns) + 0.6, tall * len(metrics) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    shape = len(metrics), len(columns)
    panels = figure.subplots(*shape, sharex="col", sharey="row", squeeze=False)
    for metric, row in zip(metrics, panels, strict=True):
        for axes, runs in zip(row, columns.values(), strict=True):
            for run, looks in runs:
                _draw(axes, run, metric, looks)
        if not any(axes.lines for axes in row):
            every = [run for runs in columns.values() for run, _ in runs]
            raise ValueError(f"--metrics: no {metric!r}; there are {', '.join(_metrics(every))}")
        row[0].set_ylabel(metric)
    for axes, title in zip(panels[0], columns, strict=True):
        axes.set_title(textwrap.fill(title, 44), fontsize="small")
    for axes in panels[-1]:
        axes.set_xlabel("round")
    handles = {line.get_label(): line for axes in panels.flat for line in axes.lines}
    side = "outside right upper" if len(columns) == 1 else "outside lower center"
    wrapped = [textwrap.fill(label, 40) for label in handles]
    many = 1 if len(columns) == 1 else len(handles)
    figure.legend(handles.values(), wrapped, loc=side, ncols=many, fontsize="small")
    try:
        figure.savefig(path, dpi=90)
    except (OSError, ValueError) as error:
        raise ValueError(f"--output: cannot write {path} ({one_line(error)})") from None


def _metrics(runs: Sequence[RunFolder]) -> list[str]:
    own = {name for run in runs for line in run.lines for name in line["diagnostics_not_private"]}
    return ["accuracy", "loss", *sorted(own)]


def _draw(axes: Any, run: RunFolder, metric: str, looks: dict[str, Look]) -> None:
    for name, (label, colour, style) in looks.items():
        lines = [line for line in run.lines if line["algorithm"] == name]
        found = [(line["round"], _value(line, metric)) for line in lines]
        points = [(t, s) for t, s in found if s and math.isfinite(float(s["mean"]))]
        if not points:
            continue
        rounds = np.array([t for t, _ in points])
        mean = np.array([s["mean"] for _, s in points])
        std = np.array([s["std"] or 0.0 for _, s in points])
        axes.plot(rounds, mean, label=label, color=colour, linestyle=style)
        axes.fill_between(rounds, mean - std, mean + std, alpha=0.2, color=colour)


def _value(line: dict[str, Any], metric: str) -> dict[str, Any] | None:
    if metric in ("accuracy", "loss"):
        return line[metric]
    return line["diagnostics_not_private"].get(metric)


if __name__ == "__main__":
    sys.exit(main())
