"""What a sweep has found: a line per point and algorithm, as Markdown, as CSV and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.formats import NAMES
from experiments.formats import markdown as table
from experiments.paper_table import Row, cells, head, latex, measured, record
from experiments.records import Summary
from experiments.runs import read
from experiments.sweep_grid import Point

NOTES = (
    "metrics on the test set, accuracies in %: mean +- standard deviation over the seeds; best over the evaluations, "
    "chosen on the test set as papers do",
    "every epsilon is of ONE model released alone: choosing among the points by a metric is not covered",
)


def summaries(folder: Path, points: Sequence[Point]) -> list[tuple[Point, Summary]]:
    """What the points have come to."""
    return [(point, read(folder / point.name).results) for point in points]


def markdown(found: Sequence[tuple[Point, Summary]]) -> str:
    """The table, and what its epsilons assume."""
    swept = list(found[0][0].values)
    metrics = list(dict.fromkeys(summary.metric for _, summary in found if summary.metric))
    rows, notes = [[*swept, *head(metrics)]], dict.fromkeys(NOTES)
    for point, summary in found:
        for name in algorithms(summary):
            rows.append([*point.values.values(), *_cells(summary, name, metrics)])
        notes |= dict.fromkeys(summary.privacy_notes)
        if summary.diverged:
            notes[f"{point.title}: {summary.status}"] = None
        for name, source in summary.reused_from.items():
            notes[f"{point.title}: {NAMES.get(name, name)} is the same run as in {source}"] = None
    notes |= dict.fromkeys(origins(found))
    return table(rows, notes)


def origins(found: Sequence[tuple[Point, Summary]]) -> list[str]:
    """A line for the code's revision and for each package of which the points do not have the same."""
    codes = [{"code": s.git_revision, **s.versions} for _, s in found]
    lines = []
    for name in dict.fromkeys(name for code in codes for name in code):
        counts = Counter(str(code.get(name, "unknown")) for code in codes)
        if len(counts) > 1:
            said = ", ".join(f"{what} in {n}" for what, n in counts.items())
            lines.append(
                f"the points were not trained with the same {name}: {said} of {len(codes)}"
            )
    return lines


def algorithms(summary: Summary) -> list[str]:
    """Those with an evaluation, and those that diverged before."""
    return list(dict.fromkeys([*summary.rounds, *summary.diverged]))


def _cells(summary: Summary, name: str, metrics: Sequence[str]) -> list[str]:
    if name not in summary.rounds:
        return [NAMES.get(name, name), "0", "diverged", *["-"] * (len(head(metrics)) - 3)]
    label, rounds, last, *others = cells(summary, name, metrics)
    last += " (diverged)" if name in summary.diverged else ""
    return [label, rounds, last, *others]


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
    return latex([Row(p.title, name, s) for p, s in found for name in s.rounds])
