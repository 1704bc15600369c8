"""An item's table in Markdown and in CSV: published beside measured, with the difference."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from experiments.reproduce.filled import Filled

FIELDS = ["row", "column", "published", "published_std", "measured", "measured_std", "difference"]
FIELDS += ["claim", "verdict", "comparable", "scaled"]
MISSING = "-"


def markdown(filled: Sequence[Filled]) -> str:
    """In the paper's rows and columns; a column that the paper prints has three here."""
    columns = list(dict.fromkeys(f.cell.column for f in filled))
    printed = {f.cell.column for f in filled if f.cell.published}
    head = [""]
    for column in columns:
        head += (
            [f"{column}: published", "measured", "difference"] if column in printed else [column]
        )
    rows = [head, ["---"] * len(head)]
    found = {(f.cell.row, f.cell.column): f for f in filled}
    for row in dict.fromkeys(f.cell.row for f in filled):
        line = [row]
        for column in columns:
            parts = _parts(found.get((row, column)))
            line += parts if column in printed else parts[1:2]
        rows.append(line)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _parts(filled: Filled | None) -> list[str]:
    """Published, measured and the difference, in parentheses where rounds are fewer."""
    if filled is None:
        return ["", "", ""]
    published, difference = filled.cell.published or MISSING, filled.difference
    if filled.verdict is None and difference is None:
        return [published, measured(filled), MISSING]
    text = filled.verdict or f"{difference:+z.{filled.cell.decimals}f}"
    return [published, measured(filled), text if filled.comparable else f"({text})"]


def measured(filled: Filled) -> str:
    """Mean +- standard deviation, with as many decimals as the paper prints."""
    if filled.value is None:
        return filled.said
    decimals, std = filled.cell.decimals, filled.value.std
    return f"{filled.value.mean:.{decimals}f}" + (
        f" +- {std:.{decimals}f}" if std is not None else ""
    )


def write_csv(path: Path, filled: Sequence[Filled], scaled: str) -> None:
    """A line per cell, numbers unrounded; empty where there is none."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for f in filled:
            printed = f.cell.printed
            numbers = {
                "published": printed and printed.mean,
                "published_std": printed and printed.std,
                "measured": f.value and f.value.mean,
                "measured_std": f.value and f.value.std,
                "difference": f.difference,
                "claim": f.cell.published if f.cell.claim else None,
                "verdict": f.verdict,
            }
            known: dict[str, object] = {name: "" if n is None else n for name, n in numbers.items()}
            known["measured"] = (
                f.said if f.said != MISSING and f.value is None else known["measured"]
            )
            said = {"row": f.cell.row, "column": f.cell.column, "scaled": scaled}
            writer.writerow(said | known | {"comparable": "yes" if f.comparable else "no"})
