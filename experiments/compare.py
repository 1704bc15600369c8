"""python -m experiments.compare FOLDER ... [--output PICTURE [--metrics NAME ...] [--together]]: runs side by side.

Prints a Markdown table with a line per run and algorithm: the settings in which the runs differ, accuracy, and the
epsilons with their unit, view and adjacency. A FOLDER is a run's, ended or not, or holds such, as a sweep's. With
--output it draws a row of panels per metric (of the score, or anything under "diagnostics_not_private") and a column
per run, or one for all with --together. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.command_line import Parser, command, one_line
from experiments.records import Report, Summary
from experiments.runs import RunFolder, names, read_all, titles
from experiments.show import NAMES, claimed, curve, epsilon, hyphenated, markdown, metric_cell

EPSILONS = ["unit", "delta", "claimed", "certified, third party", "certified, server"]


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.compare", description=details)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of a run")
    parser.add_argument(
        "--metrics", nargs="+", metavar="NAME", help="to draw (default: the runs' own)"
    )
    parser.add_argument("--output", type=Path, metavar="PICTURE", help="file to draw")
    parser.add_argument("--together", action="store_true", help="one column for all folders")
    args = parser.parse_args(argv)
    for option, value in (("--metrics", args.metrics), ("--together", args.together)):
        if value and not args.output:
            raise ValueError(f"{option}: there is no picture to draw in; give --output")
    runs = evaluated(args.folders)
    if args.output:
        picture(columns(runs, args.together), args.metrics or metrics(runs), args.output)
    print(table(runs))
    return 0


def evaluated(folders: Sequence[Path]) -> list[RunFolder]:
    """Raises ValueError where one holds no run with an evaluation."""
    runs, _ = read_all(folders)
    for run in runs:
        if not run.results.rounds:
            raise ValueError(f"FOLDER: {run.path} has no evaluation yet; leave it out")
    return runs


def table(runs: Sequence[RunFolder]) -> str:
    """Markdown; what every epsilon means stands in its row and below."""
    shown = metrics(runs)
    rows, notes = [["settings", *head(shown)]], dict[str, None]()
    for run, title in zip(runs, titles(runs), strict=True):
        summary = run.results
        if summary.status != "complete":
            title += f" ({summary.status})"
        rows += [[title, *cells(summary, name, shown)] for name in summary.rounds]
        notes |= dict.fromkeys(summary.privacy_notes)
    return markdown(rows, notes)


def metrics(runs: Sequence[RunFolder]) -> list[str]:
    """Those that the runs show."""
    return list(dict.fromkeys(run.results.metric for run in runs))


def head(metrics: Sequence[str]) -> list[str]:
    """A row of `cells`, named."""
    pairs = [name for metric in metrics for name in (f"{metric}, last", "best")]
    return ["algorithm", "rounds", *pairs, *EPSILONS]


def cells(summary: Summary, name: str, metrics: Sequence[str]) -> list[str]:
    """An algorithm's line, below `head`."""
    privacy = summary.privacy[name]
    third_party = privacy.certified["third_party"]
    return [
        NAMES.get(name, name),
        str(summary.rounds[name]),
        *(
            metric_cell(metric, of[name]) if metric in of[name] else "-"
            for metric in metrics
            for of in (summary.final, summary.best)
        ),
        third_party.unit,
        f"{third_party.delta:.3g}",
        _claimed(privacy),
        *(_certified(privacy, view) for view in ("third_party", "server")),
    ]


def _claimed(privacy: Report) -> str:
    claim = privacy.claimed
    if claim is None:
        return "-"
    doubt = "" if claim.sound else ", not proved"
    return f"{claimed(privacy)} ({hyphenated(claim.relation)}){doubt}"


def _certified(privacy: Report, view: str) -> str:
    number = privacy.certified.get(view)  # a run that has not ended has one for a third party alone
    if number is None:
        return "-"
    return f"{epsilon(number.epsilon)} ({hyphenated(number.relation)}, {number.basis})"


class Curve(NamedTuple):
    """An algorithm of a run, and how it is drawn."""

    run: RunFolder
    algorithm: str
    look: dict[str, Any]


def columns(runs: Sequence[RunFolder], together: bool) -> dict[str, list[Curve]]:
    """Title of a column -> its curves: one for each run, or one for all."""
    said = titles(runs) if together else names(runs)
    every = [(run, t, n) for run, t in zip(runs, said, strict=True) for n in run.results.rounds]
    algorithms = list(dict.fromkeys(name for *_, name in every))
    found: dict[str, list[Curve]] = {}
    for number, (run, title, name) in enumerate(every):
        label = NAMES.get(name, name)
        if together:
            label = ", ".join(filter(None, (label, title)))
            style = "-" if number < 10 else "--"
            look = {"color": f"C{number % 10}", "linestyle": style}
        else:
            look = {"color": f"C{algorithms.index(name) % 10}"}
        found.setdefault("" if together else title, []).append(
            Curve(run, name, look | {"label": label})
        )
    return found


def picture(columns: dict[str, list[Curve]], metrics: Sequence[str], path: Path) -> None:
    """A row of panels for each metric, by round.

    Raises:
      ValueError: no run has the metric, or the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide, tall = (3.4, 2.8) if len(columns) > 1 else (6.4, 3.8)
    size = (wide * len(columns) + 0.6, tall * len(metrics) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    shape = len(metrics), len(columns)
    panels = figure.subplots(*shape, sharex="col", sharey="row", squeeze=False)
    for metric, row in zip(metrics, panels, strict=True):
        for axes, curves in zip(row, columns.values(), strict=True):
            for one in curves:
                draw(axes, one, metric)
        if not any(axes.lines for axes in row):
            known = _metrics([one.run for curves in columns.values() for one in curves])
            raise ValueError(f"--metrics: no {metric!r}; there are {', '.join(known)}")
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
    lines = [line for run in runs for of in run.lines.values() for line in of]
    own = dict.fromkeys(n for x in lines for n in x.metrics)
    return [*own, *sorted({n for x in lines for n in x.diagnostics_not_private})]


def draw(axes: Any, one: Curve, metric: str) -> None:
    found = [(x.round, x.metric(metric)) for x in one.run.lines.get(one.algorithm, ())]
    points = [(t, s) for t, s in found if s]
    curve(axes, [t for t, _ in points], [s for _, s in points], **one.look)


if __name__ == "__main__":
    sys.exit(main())
