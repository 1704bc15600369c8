"""`experiments.table` and `experiments.figure`: runs as a frame, and as curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fedpriv.core.arguments import checked
from fedpriv.core.cards import Card, in_a_line
from fedpriv.core.complaints import require
from fedpriv.experiments.runs.other_metric import with_metric
from fedpriv.experiments.runs.run_folder import RunFolder, runs_of
from fedpriv.experiments.runs.run_names import with_names
from fedpriv.experiments.tables import by_client, by_group, compare
from fedpriv.experiments.tables import frame as frames
from fedpriv.experiments.tables.frame import rows
from fedpriv.experiments.tables.grid import grid
from fedpriv.experiments.tables.group_curves import draw_groups
from fedpriv.experiments.tables.plots import SUFFIXES, By, Kept, Width

if TYPE_CHECKING:
    import pandas


class Drawn(NamedTuple):
    """A figure, which a notebook shows.

    Attributes:
      path: its file; None: it is in memory alone.
      caption: what is drawn, over how many seeds, and what an epsilon means.
      kept: the picture.
    """

    path: Path | None
    caption: str
    kept: Kept

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        return in_a_line(f"Drawn({where}: {self.caption})")

    def _repr_png_(self) -> bytes:
        """The picture, where a page of text and pictures is made."""
        return self.kept.png()

    def _repr_html_(self) -> str:
        """What a notebook shows: an epsilon of the axes is nothing without the caption."""
        where = "" if self.path is None else str(self.path)
        return Card(
            "Figure", where, picture=(self.kept.png(), self.caption), notes=[self.caption]
        ).html()


def table(
    runs: Any,
    *,
    metric: str | Sequence[str] | None = None,
    by: Literal["client", "group"] | None = None,
    above: str | None = None,
    names: Mapping[str, str] | None = None,
) -> pandas.DataFrame:
    """A tidy table: a row for each algorithm of each run, and columns with units in their names.

    A mean over clients, such as `held_out_auc_mean`, has its 95 % intervals over the clients beside it
    (`held_out_auc_mean_not_private_over_clients_low`, .., `_bootstrap_high`), and with `above` those of the difference
    client by client (`.._lead_over_clients_low`, ..). They are conditional on the trained models: clients are
    resampled, training is not. The name of what is not private says so, and such a metric has no best.

    Args:
      runs: a run, a sweep, a folder of either, or several of these: results of `train`, `sweep` or `resume`, paths, or
        `RunFolder` objects.
      metric: any metric, or several, that were recorded: of the score, over clients, diagnostics; by default those of
        the score and the run's own.
      by: "client" gives a row for each client after the last round: its number in the federation (`client`), its name,
        where the config gives it (`client_name`), the weight of its records (`records_not_private`), and the metric,
        mean and deviation over the seeds, with a 95 % interval over its own records, or persons
        (`auc_not_private_low`, `.._high`), as `fp.types.ClientValues.interval`. Here `metric` names one of the score
        (`auc`); by default the run's own. "group" likewise gives a row for each group (`group`), with
        95 % intervals over the seeds (`auc_not_private_low`, ..) and over its clients (`.._over_clients_low`, ..), and
        one for the worst group and one for the gap of each seed (`statistic`: `mean`, `worst_group`, `group_gap`).
      above: an algorithm to compare with: further columns give each score's lead over it
        (`accuracy_lead_final_mean`), a 95 % interval over the seeds from 3 on (`_low`, `_high`), and the method
        (`_how`).
      names: display names of algorithms.

    Returns:
      The frame, with fractions in [0, 1]; `attrs["notes"]` has the notes below the table of `compare`.

    Raises:
      ValueError: a folder without a run, or with damaged files; a metric that was not recorded; by client or group,
        runs without values of these.
    """
    by = checked("by", by, Literal["client", "group"] | None)
    given = _evaluated(runs, names)
    if by == "client":
        found = by_client.rows_with_clients(given, metric, above)
        made, said = by_client.frame(found), by_client.grid(found)
    elif by == "group":
        found = by_group.rows_with_groups(given, metric, above)
        made, said = by_group.frame(found), by_group.grid(found)
    else:
        found = rows(with_metric(given, metric))
        found = frames.above(found, above) if above else found
        made, said = frames.frame(found), grid(found)
    made.attrs["notes"] = [*said.notes]
    return made


def figure(
    runs: Any,
    path: str | Path | None = None,
    *,
    metric: str | Sequence[str] | None = None,
    by: By | Literal["group"] | None = None,
    together: bool = False,
    width: Width | None = None,
    title: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Drawn:
    """Draws curves, which a notebook shows.

    Args:
      runs: as for `table`.
      path: the file to write: .pdf, .png (300 dpi) or .svg; None: none.
      metric: metrics to draw, as for `table`, a row of panels each; by default the runs' own.
      by: "round", "uplink", "hours" (simulated ones), "epsilon" or "mu"; by default epsilon if the runs differ only in
        their noise or budget, else round. For such runs the curve by epsilon has one point for each run, its end. So
        has the curve by mu, which needs such runs. "group" has a panel for each algorithm and a curve for each group,
        by epsilon or round. "bits" is for runs that differ in their bits alone: a point for each run, its end, by
        uplink.
      together: one panel for all runs.
      width: "column" (3.3 inches) or "page" (6.8).
      title: title above the panels; by default none, as papers have captions.
      names: display names of algorithms.

    Raises:
      ValueError: there is nothing to draw, or the file cannot be written.
    """
    file, kept = None if path is None else Path(path), Kept()
    require(
        file is None or file.suffix in SUFFIXES,
        "path",
        str(path),
        f"give a file that ends in {', '.join(SUFFIXES)}",
    )
    paths: list[Path | Kept] = [kept, *([] if file is None else [file])]
    by = checked("by", by, By | Literal["group"] | None)
    width = checked("width", width, Width | None)
    evaluated = _evaluated(runs, names)
    if by == "group":
        require(
            not together, "together", together, "by group each algorithm has a panel; leave it out"
        )
        return Drawn(file, draw_groups(evaluated, metric, paths, width, title), kept)
    given = with_metric(evaluated, metric)
    drawing: dict[str, Any] = {"by": by, "together": together, "width": width, "title": title}
    return Drawn(file, compare.write(given, rows(given), paths, **drawing), kept)


def _evaluated(runs: Any, names: Mapping[str, str] | None) -> list[RunFolder]:
    found, _ = runs_of(runs)
    return with_names(compare.with_evaluations(found), names)
