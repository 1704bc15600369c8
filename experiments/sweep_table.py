"""What a sweep has found: a line per point and algorithm, as Markdown, as CSV and as JSON."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.compare import HEAD, cells
from experiments.show import NAMES
from experiments.sweep_grid import Point
from fedpriv.privacy import VIEWS

NOTES = (
    "accuracy on the test set in %: mean +- standard deviation over the seeds; best over the evaluations, chosen on "
    "the test set as papers do",
    "every epsilon is of ONE model released alone: choosing among the points by their accuracy is not covered",
)


def summaries(folder: Path, points: Sequence[Point]) -> list[tuple[Point, dict[str, Any]]]:
    """The points' summary.json."""
    return [(p, json.loads((folder / p.name / "summary.json").read_text())) for p in points]


def markdown(found: Sequence[tuple[Point, Mapping[str, Any]]]) -> str:
    """The table, and what its epsilons assume."""
    swept = list(found[0][0].values)
    head = [*swept, *HEAD]
    rows, notes = [head, ["---"] * len(head)], dict.fromkeys(NOTES)
    for point, summary in found:
        for name in algorithms(summary):
            rows.append([*point.values.values(), *_cells(summary, name)])
        notes |= dict.fromkeys(summary["privacy_notes"])
        if summary["diverged"]:
            notes[f"{point.title}: {summary['status']}"] = None
        for name, source in summary["reused_from"].items():
            notes[f"{point.title}: {NAMES.get(name, name)} is the same run as in {source}"] = None
    notes |= dict.fromkeys(origins(found))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)]).rstrip()


def origins(found: Sequence[tuple[Point, Mapping[str, Any]]]) -> list[str]:
    """A line for the code's revision and for each package of which the points do not have the same."""
    codes = [{"code": s["git_revision"], **s["versions"]} for _, s in found]
    lines = []
    for name in dict.fromkeys(name for code in codes for name in code):
        counts = Counter(str(code.get(name, "unknown")) for code in codes)
        if len(counts) > 1:
            said = ", ".join(f"{what} in {n}" for what, n in counts.items())
            lines.append(
                f"the points were not trained with the same {name}: {said} of {len(codes)}"
            )
    return lines


def algorithms(summary: Mapping[str, Any]) -> list[str]:
    """Those with an evaluation, and those that diverged before."""
    return list(dict.fromkeys([*summary["rounds"], *summary["diverged"]]))


def _cells(summary: Mapping[str, Any], name: str) -> list[str]:
    if name not in summary["rounds"]:
        return [NAMES.get(name, name), "0", "diverged", *["-"] * (len(HEAD) - 3)]
    label, rounds, last, *others = cells(dict(summary), name)
    last += " (diverged)" if name in summary["diverged"] else ""
    return [label, rounds, last, *others]


def records(found: Sequence[tuple[Point, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A flat record per point and algorithm; None where there is no number."""
    return [
        {**point.values, **_record(summary, name), "folder": point.name}
        for point, summary in found
        for name in algorithms(summary)
    ]


def _record(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    trained = name in summary["rounds"]
    record: dict[str, Any] = {
        "algorithm": name,
        "status": "diverged" if name in summary["diverged"] else "complete",
        "rounds": summary["rounds"].get(name, 0),
    }
    for which in ("final", "best"):
        accuracy = summary["accuracy"][which].get(name, {})
        record |= {f"accuracy_{which}_{part}": accuracy.get(part) for part in ("mean", "std")}
    privacy = summary["privacy"][name] if trained else {"claimed": None, "certified": {}}
    epsilons = {"claimed": privacy["claimed"] or {}}
    epsilons |= {f"certified_{view}": privacy["certified"].get(view, {}) for view in VIEWS}
    for kind, number in epsilons.items():
        parts = ("epsilon", "delta", "unit", "relation")
        record |= {f"{kind}_{part}": number.get(part) for part in parts}
    record["claimed_view"] = epsilons["claimed"].get("view")
    record["claimed_sound"] = epsilons["claimed"].get("sound")
    for rate in ("rounds_per_second", "compile_seconds"):
        record[rate] = summary[rate].get(name)
    return record | {"reused_from": summary["reused_from"].get(name)}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
