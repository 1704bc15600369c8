"""python -m experiments.report RUN [RUN ...] [--output FILE] [--paper DIR]: what was recorded, as one HTML page.

RUN is a run folder, ended or not, or a folder of such, as experiments.sweep leaves it. The page has curves (mean and
band over the seeds) by round, by uplink and by certified epsilon, a table, the ledger by view, what the configs differ
in, and where the numbers come from; it needs no network. It is written to report.html, in RUN if there is one, else in
the current folder. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base.command import Parser, command
from experiments.runs.run_folder import labelled, read_all
from experiments.tables import compare
from experiments.tables.report.page import write_page


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.report", description=details)
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="RUN", help="run folder, or a folder of such"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: report.html")
    parser.add_argument(
        "--paper",
        type=Path,
        metavar="DIR",
        help="also write the table as LaTeX, CSV and Markdown, and the curves as PDF and PNG (300 dpi), into it",
    )
    parser.add_argument("--names", nargs="+", metavar="LABEL", help=compare.NAMES)
    parser.add_argument("--best", action="store_true", help=compare.BEST)
    args = parser.parse_args(argv)
    found, remarks = read_all(args.folders)
    runs = labelled(found, args.names)
    if args.paper:
        compare.for_paper(runs, args.paper, args.best)
    path = args.output or (args.folders[0] if len(args.folders) == 1 else Path()) / "report.html"
    write_page(path, runs, remarks, args.best)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
