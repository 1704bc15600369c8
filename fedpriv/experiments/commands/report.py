"""fedpriv report RUN [RUN ...] [--output FILE] [--paper DIR]: what was recorded, as one HTML page.

RUN is a run folder, ended or not, or a folder of such, as `fedpriv sweep` leaves it. The page has curves (mean and
band over the seeds) by round, by uplink and by certified epsilon, a table, the ledger by view, what the configs differ
in, and where the numbers come from; with --audits DIR also what an audit by many runs counted, under the curves of an
attacker's errors. It needs no network. It is written to report.html, in RUN if there is one, else in
the current folder. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.options import only_options
from fedpriv.experiments.runs.other_metric import with_metric
from fedpriv.experiments.runs.run_folder import read_all
from fedpriv.experiments.runs.run_names import labelled
from fedpriv.experiments.tables import compare
from fedpriv.experiments.tables.report.audits import read_audits
from fedpriv.experiments.tables.report.page import write_page


@dataclass(frozen=True)
class Options:
    """Options of the command `report`."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders, or folders of run folders."""
    output: Path | None = None
    """The page; by default report.html."""
    paper: Path | None = None
    """Folder for the table as LaTeX, CSV and Markdown, and for the curves as PDF and PNG (300 dpi)."""
    names: tuple[str, ...] | None = None
    """Names of the runs, one each, and of algorithms, as in fed_avg=Ours."""
    audits: tuple[Path, ...] = ()
    """Output folders of `fedpriv audit --parts many_runs`, whose counts are drawn under the certified curves."""
    metric: tuple[str, ...] | None = None
    """Metrics of the table and of the first charts, of any that were recorded; by default those of the scores."""
    best: bool = False
    """Also show the best of each metric over the evaluations, which is chosen on the test set."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "fedpriv report", __doc__
    )
    folders = list(options.folders)
    recorded, remarks = read_all(folders)
    runs = with_metric(labelled(recorded, options.names), options.metric)
    if options.paper:
        compare.for_paper(runs, options.paper, options.best)
    path = options.output or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    write_page(path, runs, remarks, options.best, read_audits(options.audits))
    say(path)
    return 0
