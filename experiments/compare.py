"""python -m experiments.compare FOLDER [FOLDER ...] [--output FILE ...]: runs side by side, as tables and figures.

Prints a Markdown table with a line per run and algorithm: accuracy, and the epsilons with their unit, view and
adjacency. A FOLDER is a run's, ended or not, or holds such, as a sweep's. Runs are named by --names, else by
the settings in which they differ, by their folders where these are many.

--output writes by suffix: the table as .tex (for booktabs), .csv or .md, the curves as .pdf, .png (300 dpi) or .svg; a
folder gets all of them. The picture has a row of panels per metric (of the score, or anything under
"diagnostics_not_private") and a column per run, or one for all with --together; where the runs differ in their noise or
budget alone, their ends against epsilon in one panel. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base.command import Parser, command
from experiments.runs.run_folder import labelled
from experiments.tables.compare import ABOVE, BEST, NAMES, TITLE, evaluated, output_paths, write
from experiments.tables.frame import above, rows
from experiments.tables.grid import SHOWN, as_markdown, grid
from experiments.tables.plots import SUFFIXES, WIDTHS
from fedpriv.privacy import VIEWS


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.compare", description=details)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of a run")
    parser.add_argument(
        "--output", type=Path, nargs="+", metavar="FILE", help="files, or one folder, to write"
    )
    parser.add_argument(
        "--metrics", nargs="+", metavar="NAME", help="to draw (default: the runs' own)"
    )
    parser.add_argument(
        "--by",
        choices=("round", "uplink", "epsilon"),
        help="to draw by (default: epsilon where the runs differ in their noise or budget alone, else round)",
    )
    parser.add_argument("--together", action="store_true", help="one column for all folders")
    parser.add_argument("--width", choices=WIDTHS, help="of the picture: 3.3 or 6.8 inches")
    parser.add_argument(
        "--views",
        nargs="+",
        choices=VIEWS,
        help=f"with an epsilon in the table (default: {' '.join(SHOWN)}, and the runs' own --view)",
    )
    parser.add_argument("--title", metavar="TEXT", help=TITLE)
    parser.add_argument("--names", nargs="+", metavar="LABEL", help=NAMES)
    parser.add_argument("--best", action="store_true", help=BEST)
    parser.add_argument("--above", metavar="ALGORITHM", help=ABOVE)
    args = parser.parse_args(argv)
    paths = output_paths(args.output or [])
    drawn = [path for path in paths if path.suffix in SUFFIXES]
    options = ("metrics", "by", "together", "width", "title")
    for option in options:
        if getattr(args, option) and not drawn:
            raise ValueError(f"--{option}: there is no picture to draw in; give --output")
    runs = labelled(evaluated(args.folders), args.names)
    found = rows(runs)
    if args.above is not None:
        found = above(found, args.above, args.best)
    drawing = {name: getattr(args, name) for name in options}
    caption = write(runs, found, paths, views=args.views, best=args.best, **drawing)
    print(as_markdown(grid(found, args.views, args.best)))
    if caption:
        print(f"\ncaption of the figure: {caption}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
