"""fedpriv compare FOLDER [FOLDER ...] [--output FILE ...]: runs side by side, as tables and figures.

Prints a Markdown table with a line per run and algorithm: accuracy, or what --metric names, and the epsilons with their
unit, view and adjacency. With --by client it has a line for each client, with --by group for each public group, its
worst one and the gap. A FOLDER is a run's, ended or not, or holds
such, as a sweep's. Runs are named by --names, else by the settings in which they differ, by their folders where these
are many.

--output writes by suffix: the table as .tex (for booktabs), .csv or .md, the curves as .pdf, .png (300 dpi) or .svg; a
folder gets all of them. The picture has a row of panels per metric and a column per run, or one for all with
--together; where the runs differ in their noise or budget alone, their ends against epsilon in one panel. With
--by bits, where they differ in their bits alone, their ends against the uplink. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.options import only_options
from fedpriv.experiments.config.settings import View
from fedpriv.experiments.runs.other_metric import with_metric
from fedpriv.experiments.runs.run_names import labelled
from fedpriv.experiments.tables import by_client, by_group
from fedpriv.experiments.tables.compare import evaluated, output_paths, write, write_tables
from fedpriv.experiments.tables.frame import above, rows
from fedpriv.experiments.tables.grid import as_markdown, grid
from fedpriv.experiments.tables.group_curves import draw_groups
from fedpriv.experiments.tables.plots import SUFFIXES, By, Width

DRAWING = ("by", "together", "width", "title")
NOT_BY_CLIENT = ("together", "width", "title", "views", "best")
NOT_BY_GROUP = ("together", "views", "best")


@dataclass(frozen=True)
class Options:
    """Options of the command `compare`."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER")]
    """Run folders, or folders of run folders."""
    output: tuple[Path, ...] = ()
    """Files to write, or one folder."""
    metric: tuple[str, ...] | None = None
    """Metrics to show, of any that were recorded: of the score, over clients, diagnostics; by default the runs' own."""
    by: By | Literal["client", "group"] | None = None
    """What the results are by: for curves the horizontal axis, by default epsilon if the runs differ only in their
    noise or budget, else round. With client the table has a row for each client, after the last round; with group a row
    for each group, and the picture a curve for each."""
    together: bool = False
    """One column of panels for all folders."""
    width: Width | None = None
    """Width of the picture: 3.3 or 6.8 inches."""
    views: tuple[View, ...] | None = None
    """Views whose epsilons the table shows; by default third_party and the runs' own --view."""
    title: str | None = None
    """Title above the figure; by default none, as papers have captions."""
    names: tuple[str, ...] | None = None
    """Names of the runs, one each, and of algorithms, as in fed_avg=Ours; by default the settings that differ."""
    best: bool = False
    """Also show the best of each metric over the evaluations, which is chosen on the test set."""
    above: str | None = None
    """Also show each score's lead over this algorithm, or over its own in the run of this title (bits = none), with a
    95 % interval."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "fedpriv compare", __doc__
    )
    paths = output_paths(options.output)
    if options.by == "client":
        return _by_client(options, paths)
    if options.by == "group":
        return _by_group(options, paths)
    drawing = {name: getattr(options, name) for name in DRAWING}
    if not any(path.suffix in SUFFIXES for path in paths):
        for name in filter(drawing.get, drawing):
            raise ValueError(f"--{name}: there is no picture to draw in; give --output")
    runs = with_metric(labelled(evaluated(options.folders), options.names), options.metric)
    table = rows(runs)
    if options.above is not None:
        table = above(table, options.above, options.best)
    caption = write(runs, table, paths, views=options.views, best=options.best, **drawing)
    say(as_markdown(grid(table, options.views, options.best)))
    if caption:
        say(f"\ncaption of the figure: {caption}")
    return 0


def _by_client(options: Options, paths: Sequence[Path]) -> int:
    """A table alone, of each client."""
    _check_unset(options, NOT_BY_CLIENT)
    drawn = [path for path in options.output if path.suffix in SUFFIXES]
    if drawn:
        raise ValueError(f"by: client is for tables, not for {drawn[0]}; give .md, .csv or .tex")
    runs = labelled(evaluated(options.folders), options.names)
    found = by_client.rows_with_clients(runs, options.metric, options.above)
    table = by_client.grid(found)
    write_tables(paths, table, lambda: by_client.frame(found))
    say(as_markdown(table))
    return 0


def _by_group(options: Options, paths: Sequence[Path]) -> int:
    """A table with a row for each group, and a picture with a curve for each."""
    _check_unset(options, NOT_BY_GROUP)
    drawn = [path for path in paths if path.suffix in SUFFIXES]
    if not drawn:
        _check_unset(options, ("width", "title"))
    runs = labelled(evaluated(options.folders), options.names)
    found = by_group.rows_with_groups(runs, options.metric, options.above)
    table = by_group.grid(found)
    write_tables(paths, table, lambda: by_group.frame(found))
    say(as_markdown(table))
    if drawn:
        caption = draw_groups(runs, options.metric, drawn, options.width, options.title)
        say(f"\ncaption of the figure: {caption}")
    return 0


def _check_unset(options: Options, names: Sequence[str]) -> None:
    for name in names:
        if getattr(options, name):
            raise ValueError(f"--{name}: it has no meaning by {options.by}; leave it out")
