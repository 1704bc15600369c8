"""What a sweep has found: a line per point and algorithm, as Markdown, as CSV and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.base.formats import NAMES, field_name, setting
from experiments.base.formats import markdown as table
from experiments.runs.contents import Summary
from experiments.runs.run_folder import read
from experiments.search.sweep_grid import Point
from experiments.tables.comparison import (
    NOISE,
    Columns,
    Row,
    cells,
    head,
    measured,
    notes,
    own_views,
    record,
)
from experiments.tables.latex import latex

UNKNOWN = "unknown"
NOTES = (
    "metrics on the test set, accuracies in %: mean ± standard deviation over the seeds; MB up: of the run, per client "
    "of the population",
    "every epsilon is of ONE model released alone: choosing among the points by a metric is not covered "
    "(what sweep --best-of MEAN chooses is)",
)


def summaries(folder: Path, points: Sequence[Point]) -> list[tuple[Point, Summary]]:
    """What the points have come to."""
    return [(point, read(folder / point.name).results) for point in points]


def markdown(found: Sequence[tuple[Point, Summary]]) -> str:
    """The table, and what its epsilons assume."""
    swept = list(found[0][0].values)
    summaries = [summary for _, summary in found]
    shown = Columns.of(summaries, own_views(summaries))
    shown = shown._replace(noise=shown.noise and NOISE not in swept)
    rows, said = [[*map(field_name, swept), *head(shown)]], dict.fromkeys(NOTES)
    said |= dict.fromkeys(notes([Row(_title(p), name, s) for p, s in found for name in s.rounds]))
    for point, summary in found:
        for name in algorithms(summary):
            rows.append([*point.values.values(), *_cells(summary, name, shown)])
        if summary.diverged:
            said[f"{point.title}: {summary.status}"] = None
        for name, source in summary.reused_from.items():
            said[f"{point.title}: {NAMES.get(name, name)} is the same run as in {source}"] = None
    said |= dict.fromkeys(origins(found))
    return table(rows, said)


def origins(found: Sequence[tuple[Point, Summary]]) -> list[str]:
    """A line for the code's revision and for each package of which the points do not have the same."""
    codes = [{"code": s.git_revision, "prng": s.prng or UNKNOWN, **s.versions} for _, s in found]
    lines = []
    for name in dict.fromkeys(name for code in codes for name in code):
        counts = Counter(str(code.get(name, UNKNOWN)) for code in codes)
        if len(counts) > 1:
            said = ", ".join(f"{what} in {n}" for what, n in counts.items())
            lines.append(
                f"the points were not trained with the same {name}: {said} of {len(codes)}"
            )
    return lines


def _title(point: Point) -> str:
    return ", ".join(setting(field, value) for field, value in point.values.items())


def algorithms(summary: Summary) -> list[str]:
    """Those with an evaluation, and those that diverged before."""
    return list(dict.fromkeys([*summary.rounds, *summary.diverged]))


def _cells(summary: Summary, name: str, shown: Columns) -> list[str]:
    if name not in summary.rounds:
        return [NAMES.get(name, name), "0", "diverged", *["-"] * (len(head(shown)) - 3)]
    label, rounds, *others = cells(summary, name, shown)
    return [label, rounds + " (diverged)" * (name in summary.diverged), *others]


def records(found: Sequence[tuple[Point, Summary]]) -> list[dict[str, Any]]:
    """A flat record per point and algorithm; None where there is no number."""
    metrics = measured(summary for _, summary in found)
    return [
        {**point.values, **record(summary, name, metrics), "folder": point.name}
        for point, summary in found
        for name in algorithms(summary)
    ]


def paper(found: Sequence[tuple[Point, Summary]]) -> str:
    """The table in LaTeX; what diverged before its first evaluation is left out."""
    rows = [Row(_title(p), name, s) for p, s in found for name in s.rounds]
    return latex(rows, own_views([s for _, s in found]))
