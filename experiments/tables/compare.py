"""The command `compare`: side by side, for the eye and a paper.

Prints a Markdown table with a line per run and algorithm: accuracy, and the epsilons with their unit, view and
adjacency. A FOLDER is a run's, ended or not, or holds such, as a sweep's. Runs are named by --names, else by
the settings in which they differ, by their folders where these are many.

--output writes by suffix: the table as .tex (for booktabs), .csv or .md, the curves as .pdf, .png (300 dpi) or .svg; a
folder gets all of them. The picture has a row of panels per metric (of the score, or anything under
"diagnostics_not_private") and a column per run, or one for all with --together; where the runs differ in their budget
alone, their ends against epsilon in one panel. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from experiments.base.command import Parser, command
from experiments.base.files import replacing, write_text
from experiments.runs.run_folder import RunFolder, labelled, read_all
from experiments.tables.comparison import (
    SHOWN,
    Columns,
    Row,
    above,
    as_markdown,
    records,
    rows,
    write_csv,
)
from experiments.tables.latex import latex
from experiments.tables.plots import SUFFIXES, WIDTHS, columns, picture
from experiments.tables.swept_budget import over_budget
from fedpriv.privacy import VIEWS

TABLES = (".tex", ".csv", ".md")
NAMES = "what to call the runs in tables and figures, one each (default: the settings in which they differ)"
ABOVE = "also show what each score is above this algorithm's, seed by seed, and the spread of that"
BEST = "also show the best of each metric over the evaluations, which is chosen on the test set"
ALL = ("table.md", "table.csv", "table.tex", "figure.pdf", "figure.png")


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
        help="to draw by (default: epsilon where the runs differ in their budget alone, else round)",
    )
    parser.add_argument("--together", action="store_true", help="one column for all folders")
    parser.add_argument("--width", choices=WIDTHS, help="of the picture: 3.3 or 6.8 inches")
    parser.add_argument(
        "--views",
        nargs="+",
        choices=VIEWS,
        help=f"with an epsilon in the table (default: {' '.join(SHOWN)}, and the runs' own --view)",
    )
    parser.add_argument("--names", nargs="+", metavar="LABEL", help=NAMES)
    parser.add_argument("--best", action="store_true", help=BEST)
    parser.add_argument("--above", metavar="ALGORITHM", help=ABOVE)
    args = parser.parse_args(argv)
    paths = _paths(args.output or [])
    drawn = [path for path in paths if path.suffix in SUFFIXES]
    for option in ("metrics", "by", "together", "width"):
        if getattr(args, option) and not drawn:
            raise ValueError(f"--{option}: there is no picture to draw in; give --output")
    runs = labelled(evaluated(args.folders), args.names)
    found = rows(runs)
    if args.above is not None:
        found = above(found, args.above)
    write(runs, found, paths, args)
    print(as_markdown(found, args.views, args.best))
    return 0


def _paths(given: Sequence[Path]) -> list[Path]:
    """The files to write; a folder stands for all kinds.

    Raises:
      ValueError: a suffix that says no kind, or a folder that cannot be made.
    """
    found: list[Path] = []
    for path in given:
        if path.is_dir() or not path.suffix:
            _folder(path, "--output")
            found += [path / name for name in ALL]
        elif path.suffix in (*TABLES, *SUFFIXES):
            found.append(path)
        else:
            known = ", ".join((*TABLES, *SUFFIXES))
            raise ValueError(
                f"--output: cannot write {path}: give a file that ends in one of {known}, or a folder"
            )
    return found


def write(
    runs: Sequence[RunFolder], found: Sequence[Row], paths: Sequence[Path], args: Namespace
) -> None:
    if drawn := [path for path in paths if path.suffix in SUFFIXES]:
        shown = args.metrics or Columns.of([run.results for run in runs]).metrics
        if args.by == "epsilon" and not any(map(_private, found)):
            raise ValueError(
                "--by: epsilon is infinite in all of these runs; draw by round or uplink"
            )
        by = args.by or ("epsilon" if over_budget(runs) else "round")
        draw(runs, shown, drawn, by, args.together, args.width)
    for path in paths:
        write_table(path, found, args.views, args.best)


def _private(row: Row) -> bool:
    return math.isfinite(row.summary.privacy[row.algorithm].certified["third_party"].epsilon)


def draw(
    runs: Sequence[RunFolder],
    metrics: Sequence[str],
    paths: Sequence[Path],
    by: str,
    together: bool,
    width: str | None = None,
) -> None:
    """Curves of the runs; by epsilon, of runs that differ in their budget alone, one curve through their ends."""
    merged = over_budget(runs) if by == "epsilon" else []
    if merged:
        runs, by, together = merged, "budget", True
    picture(columns(runs, together), metrics, paths, width, by)


def for_paper(runs: Sequence[RunFolder], folder: Path, best: bool = False) -> None:
    """The table in all formats, and a picture by round, by uplink and, where anything is private, by epsilon.

    Args:
      best: whether the table has the best of each metric over the evaluations, too.

    Raises:
      ValueError: nothing is evaluated yet, or the folder cannot be written.
    """
    found = rows(runs)
    if not found:
        raise ValueError(f"--paper: {runs[0].path} has no evaluation yet; leave it out")
    _folder(folder, "--paper")
    for kind in TABLES:
        write_table(folder / f"table{kind}", found, best=best)
    private = any(map(_private, found))
    metrics = Columns.of([r.summary for r in found]).metrics
    for x in ("round", "uplink", *["epsilon"][:private]):
        paths = [folder / f"by_{x}{kind}" for kind in (".pdf", ".png")]
        draw(runs, metrics, paths, x, len(runs) > 3)


def _folder(path: Path, option: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{option}: cannot make {path} ({error.strerror})") from None


def write_table(
    path: Path, found: Sequence[Row], views: Sequence[str] | None = None, best: bool = False
) -> None:
    """In the format of the suffix; of none of `TABLES` nothing.

    Raises:
      ValueError: it cannot be written.
    """
    try:
        if path.suffix == ".tex":
            write_text(path, latex(found, views, best))
        elif path.suffix == ".md":
            write_text(path, as_markdown(found, views, best) + "\n")
        elif path.suffix == ".csv":
            with replacing(path) as unfinished:
                write_csv(unfinished, records(found))
    except OSError as error:
        raise ValueError(f"--output: cannot write {path} ({error.strerror})") from None


def evaluated(folders: Sequence[Path]) -> list[RunFolder]:
    """Raises ValueError where one holds no run with an evaluation."""
    runs, _ = read_all(folders)
    for run in runs:
        if not run.results.rounds:
            raise ValueError(f"FOLDER: {run.path} has no evaluation yet; leave it out")
    return runs
