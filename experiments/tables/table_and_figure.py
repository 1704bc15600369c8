"""`experiments.table` and `experiments.figure`: runs as a frame, and as curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.runs.run_folder import RunFolder, runs_of, with_names
from experiments.tables import compare
from experiments.tables import frame as frames
from experiments.tables.frame import rows
from experiments.tables.grid import grid
from experiments.tables.plots import SUFFIXES, By, Width
from fedpriv.core.arguments import checked, require

if TYPE_CHECKING:
    import pandas


class Drawn(NamedTuple):
    """A figure in its file, and what to say below it: what is drawn, of how many seeds, what an epsilon means."""

    path: Path
    caption: str


def table(
    runs: Any, *, above: str | None = None, names: Mapping[str, str] | None = None
) -> pandas.DataFrame:
    """A row for each algorithm of each run, tidy columns with their units in their names.

    Args:
      runs: a run, a sweep, a folder of either, or several of these; as `train`, `sweep` or `resume` return them, as
        paths, or each as a `RunFolder`.
      above: an algorithm: columns say how far each score is above its (`lead_final_mean`), with an interval of 95 %
        (`_low`, `_high`) from 3 seeds on, and how that was found (`_how`).
      names: of algorithms, for people.

    Returns:
      The frame, with shares of 1 as such; `attrs["notes"]` has what stands below the table of `compare`.

    Raises:
      ValueError: a folder without a run, or with damaged files.
    """
    found = rows(_evaluated(runs, names))
    found = frames.above(found, above) if above else found
    made, said = frames.frame(found), grid(found)
    made.attrs["notes"] = [*said.notes]
    return made


def figure(
    runs: Any,
    path: str | Path,
    *,
    by: By | None = None,
    metrics: Sequence[str] | None = None,
    together: bool = False,
    width: Width | None = None,
    title: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Drawn:
    """Draws curves into a file: .pdf, .png (300 dpi) or .svg.

    Args:
      runs: as for `table`.
      by: "round", "uplink", "epsilon" or "mu"; by default epsilon where the runs differ in their noise or budget alone,
        else round. Of such runs the curve by epsilon goes through their ends, a point for each run; so does that by mu,
        which others have not.
      together: one panel for all runs.
      width: "column" (3.3 inches) or "page" (6.8).
      title: above the panels; by default none, as papers have captions.
      names: of algorithms, for people.

    Raises:
      ValueError: nothing to draw, or a file that cannot be written.
    """
    file = Path(path)
    require(
        file.suffix in SUFFIXES,
        "path",
        str(path),
        f"give a file that ends in {', '.join(SUFFIXES)}",
    )
    by, width = checked("by", by, By | None), checked("width", width, Width | None)
    given = _evaluated(runs, names)
    drawing = {"metrics": metrics, "by": by, "together": together, "width": width, "title": title}
    return Drawn(file, compare.write(given, rows(given), [file], **drawing))


def _evaluated(runs: Any, names: Mapping[str, str] | None) -> list[RunFolder]:
    found, _ = runs_of(runs)
    return with_names(compare.with_evaluations(found), names)
