"""What a sweep has found: a line for each point and algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.runs.run_folder import read
from fedpriv.experiments.search.sweep_grid import Point
from fedpriv.experiments.tables.frame import Row
from fedpriv.experiments.tables.grid import Grid, grid, own_views

UNKNOWN = "unknown"


def summaries(folder: Path, points: Sequence[Point]) -> list[tuple[Point, Summary]]:
    """What the points of a sweep have come to."""
    return [(point, read(folder / point.name).results) for point in points]


def rows(found: Sequence[tuple[Point, Summary]]) -> list[Row]:
    """A sweep's rows, of all that was evaluated, or diverged before."""
    return [
        Row(point.values, name, summary, point.name)
        for point, summary in found
        for name in dict.fromkeys([*summary.rounds, *summary.diverged])
    ]


def table(found: Sequence[tuple[Point, Summary]]) -> Grid:
    """A sweep's table, with the views that the runs show."""
    lines = grid(rows(found), own_views([summary for _, summary in found]))
    return lines._replace(notes=[*lines.notes, *remarks(found)])


def remarks(found: Sequence[tuple[Point, Summary]]) -> list[str]:
    """Of a sweep: what diverged, what is the same run as another, and what was not trained by the same code."""
    said: list[str] = []
    for point, summary in found:
        said += [f"{point.title}: {summary.status}"] if summary.diverged else []
        said += [
            f"{point.title}: {summary.name_of(name)} is the same run as in {source}"
            for name, source in summary.reused_from.items()
        ]
    return [*said, *origins(found)]


def origins(found: Sequence[tuple[Point, Summary]]) -> list[str]:
    """Of a sweep: a line for the code's revision and for each package of which the points do not have the same."""
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
