"""Runs side by side: the table and the curves, as files by their suffix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.runs.run_folder import RunFolder, read_all
from fedpriv.experiments.tables.frame import Row, as_csv, frame, rows
from fedpriv.experiments.tables.grid import Grid, as_markdown, grid
from fedpriv.experiments.tables.latex import latex
from fedpriv.experiments.tables.plots import SUFFIXES, Kept, Width, columns, picture
from fedpriv.experiments.tables.swept_privacy import ends_by_bits, ends_by_epsilon

if TYPE_CHECKING:
    import pandas

TABLES = (".tex", ".csv", ".md")
ALL = ("table.md", "table.csv", "table.tex", "figure.pdf", "figure.png")


def output_paths(given: Sequence[Path]) -> list[Path]:
    """The files to write of compared runs; a folder stands for all kinds.

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
                f"output: cannot write {path}: give a file that ends in one of {known}, or a folder"
            )
    return found


def write(
    runs: Sequence[RunFolder],
    found: Sequence[Row],
    paths: Sequence[Path | Kept],
    *,
    by: str | None = None,
    together: bool = False,
    width: Width | None = None,
    title: str | None = None,
    views: Sequence[str] | None = None,
    best: bool = False,
) -> str:
    """Writes table and curves of compared runs, by the suffixes of the paths; returns the figure's caption, or "".

    Raises:
      ValueError: curves by an epsilon that is infinite everywhere, or a file that cannot be written.
    """
    caption = ""
    if drawn := [path for path in paths if path.suffix in SUFFIXES]:
        shown = main_metrics(found)
        if by == "epsilon" and not any(map(_private, found)):
            raise ValueError(
                "by: epsilon is infinite in all of these runs; draw by round or uplink"
            )
        if by == "mu" and not ends_by_epsilon(runs):
            raise ValueError(
                "by: mu is known at the end of runs; give several that differ in their noise or budget alone"
            )
        if by == "bits" and not ends_by_bits(runs):
            raise ValueError("by: bits is for several runs that differ in their bits alone")
        if by == "hours" and not any(r.summary.hours_per_round(r.algorithm) for r in found):
            raise ValueError(
                "by: none of these runs has simulated hours, which configs of late clients record; draw by round or "
                "uplink"
            )
        private = any(map(_private, found))
        x = by or ("epsilon" if private and ends_by_epsilon(runs) else "round")
        caption = draw(runs, shown, drawn, x, together, width, title)
    files = [path for path in paths if isinstance(path, Path)]
    write_tables(files, grid(found, views, best), lambda: frame(found))
    return caption


def main_metrics(found: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(metric for r in found for metric in r.metrics))


def _private(row: Row) -> bool:
    report = row.summary.privacy.get(row.algorithm)
    return report is not None and math.isfinite(report.certified["third_party"].epsilon)


def draw(
    runs: Sequence[RunFolder],
    metrics: Sequence[str],
    paths: Sequence[Path | Kept],
    by: str,
    together: bool,
    width: Width | None = None,
    title: str | None = None,
) -> str:
    """Curves of compared runs; by epsilon, mu or bits, of runs that differ in these alone, through their ends.

    Returns:
      The caption.
    """
    runs = [run for run in runs if not run.results.choice]
    if not runs:
        raise ValueError("runs: of a model that was chosen nothing is kept to draw; give a table")
    merged = ends_by_epsilon(runs) if by in ("epsilon", "mu") else []
    if merged:
        runs, by, together = merged, "mu" if by == "mu" else "ends", True
    if by == "bits":
        runs, together = ends_by_bits(runs), True
    return picture(columns(runs, together), metrics, paths, width, by, title)


def for_paper(runs: Sequence[RunFolder], folder: Path, best: bool = False) -> None:
    """The table in all formats, and a picture by round, by uplink and, where anything is private, by epsilon.

    What to say below the pictures is in captions.md.

    Args:
      best: whether the table has the best of each metric over the evaluations, too.

    Raises:
      ValueError: nothing is evaluated yet, or the folder cannot be written.
    """
    found = rows(runs)
    if not found:
        raise ValueError(f"paper: {runs[0].path} has no evaluation yet; leave it out")
    _folder(folder, "--paper")
    tables = [folder / f"table{kind}" for kind in TABLES]
    write_tables(tables, grid(found, best=best), lambda: frame(found))
    private = any(map(_private, found))
    metrics = main_metrics(found)
    captions = []
    for x in ("round", "uplink", *["epsilon"][:private]):
        paths = [folder / f"by_{x}{kind}" for kind in (".pdf", ".png")]
        captions.append(f"by_{x}: {draw(runs, metrics, paths, x, len(runs) > 3)}")
    write_text(folder / "captions.md", "\n\n".join(captions) + "\n")


def _folder(path: Path, option: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{option}: cannot make {path} ({error.strerror})") from None


def write_tables(
    paths: Sequence[Path], table: Grid, numbers: Callable[[], pandas.DataFrame]
) -> None:
    """Tables of compared runs in the formats of the suffixes; of none of `TABLES` nothing.

    Raises:
      ValueError: one cannot be written.
    """
    written: dict[str, Callable[[], str]] = {
        ".tex": lambda: latex(table),
        ".md": lambda: as_markdown(table) + "\n",
        ".csv": lambda: as_csv(numbers()),
    }
    for path in (path for path in paths if path.suffix in TABLES):
        try:
            write_text(path, written[path.suffix]())
        except OSError as error:
            raise ValueError(f"output: cannot write {path} ({error.strerror})") from None


def evaluated(folders: Sequence[Path]) -> list[RunFolder]:
    """The runs to compare; raises ValueError where a folder holds no run with an evaluation."""
    return with_evaluations(read_all(folders)[0])


def with_evaluations(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs to compare; raises ValueError where one has no evaluation."""
    for run in runs:
        if not run.results.rounds:
            raise ValueError(f"runs: {run.path} has no evaluation yet; leave it out")
    return list(runs)
