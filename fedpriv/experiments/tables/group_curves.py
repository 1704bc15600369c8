"""Who is hurt, as curves: a panel for each algorithm, a curve for each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fedpriv.engine.client_metric_names import TEST, parsed
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.runs.run_names import names
from fedpriv.experiments.tables.by_group import chosen
from fedpriv.experiments.tables.plots import COLOURS, Curve, Kept, Width, look, picture
from fedpriv.experiments.tables.swept_privacy import ends_by_epsilon


def draw_groups(
    runs: Sequence[RunFolder],
    metric: str | Sequence[str] | None,
    paths: Sequence[Path | Kept],
    width: Width | None = None,
    title: str | None = None,
) -> str:
    """Draws each group's metric by round; of runs that differ in noise or budget alone, what they end with by epsilon.

    Args:
      metric: as for a table by group.

    Returns:
      The caption.

    Raises:
      ValueError: nothing was evaluated group by group, or a file cannot be written.
    """
    wanted = chosen(runs, metric)
    merged = ends_by_epsilon(runs)
    private = any(
        math.isfinite(line.privacy.certified.epsilon)
        for run in merged
        for lines in run.lines.values()
        for line in lines
    )
    x, shown = ("ends", merged) if private else ("round", runs)
    rows = {_label(*key): of for key, of in wanted.items()}
    return picture(_columns(shown, rows), [*rows], paths, width, x, title)


def _label(records: str, metric: str) -> str:
    """What a row of panels is called: on test examples as the metric itself."""
    return metric if records == TEST else f"{records}_{metric}_mean"


def _columns(runs: Sequence[RunFolder], rows: dict[str, dict[str, str]]) -> dict[str, list[Curve]]:
    """Title of a column of panels -> its curves; a group looks the same in all."""
    own = {group: None for of in rows.values() for group, name in of.items() if _is_group(name)}
    found: dict[str, list[Curve]] = {}
    for run, title in zip(runs, names(runs), strict=True):
        for algorithm in run.results.rounds:
            said = ", ".join([run.name_of(algorithm), *[title][: len(runs) > 1]])
            found[said] = [
                Curve(
                    run,
                    algorithm,
                    look(i, i // len(COLOURS), len(run.lines[algorithm])) | {"label": group},
                    {row: of[group] for row, of in rows.items() if group in of},
                )
                for i, group in enumerate(own)
            ]
    return found


def _is_group(name: str) -> bool:
    of = parsed(name)
    return of is not None and of.group is not None
