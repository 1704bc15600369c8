"""Writes what an item gives: table.md, table.csv, picture.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.files import replacing, write_text
from experiments.record import device, git_revision, versions
from experiments.reproduce import picture, privacy, table
from experiments.reproduce.filled import Filled, Results, fill, scaled
from experiments.reproduce.item import Item, Scale, Training
from experiments.reproduce.shelf import UNFINISHED


def written(item: Item, scale: Scale, results: Results, folder: Path, command: str) -> str:
    """Writes the three files into `folder` and returns the table's text.

    Raises:
      OSError: the folder cannot be written to.
    """
    filled, said = fill(item, scale, results), scaled(item, scale, results)
    text = markdown(item, filled, results, said, command)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "table.md", text)
    with replacing(folder / "table.csv") as path:
        table.write_csv(path, filled, said)
    with replacing(folder / "picture.png") as path:
        picture.save(item, filled, results, said, path)
    return text


def markdown(
    item: Item, filled: Sequence[Filled], results: Results, said: str, command: str
) -> str:
    """The page of an item: its table, its privacy, its notes, and where the numbers come from."""
    done, needed = len(results), len(item.needs)
    parts = [f"# {item.paper}, {item.name}: {item.title}"]
    if said:
        parts.append(f"**{said}**")
    if done < needed:
        parts.append(f"{UNFINISHED}: {done} of {needed}; the same command goes on.")
    if filled:
        parts.append(table.markdown(filled))
    trained = {work: run for work, run in results.items() if isinstance(work, Training)}
    if cost := privacy.markdown(trained):
        heading = "## Privacy of what was trained"
        one = "Every epsilon is of ONE model (one algorithm, one seed) released alone."
        parts += [heading, one, cost]
    notes = [*_legend(filled), *item.notes]
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    parts += ["## Where the numbers come from", "\n".join(_origins(item, results, command))]
    return "\n\n".join(parts) + "\n"


def _legend(filled: Sequence[Filled]) -> list[str]:
    if not filled:
        return []
    lines = [
        "measured: mean +- standard deviation over the seeds; difference: measured less published"
    ]
    if any(not f.comparable and (f.difference is not None or f.verdict) for f in filled):
        lines.append(
            "a difference in parentheses is not comparable: fewer rounds were trained than in the paper"
        )
    if any(f.said == table.MISSING for f in filled):
        lines.append(f"measured {table.MISSING}: not trained yet")
    return lines


def _origins(item: Item, results: Results, command: str) -> list[str]:
    """Command, code, versions, devices and seeds of what is in the table."""
    lines = ["```", command, "```", ""]
    if item.needs and not results:
        return [*lines, "- nothing is done yet"]
    here = {"device": device(), "git_revision": git_revision(), "versions": versions()}
    found = [run.summary for run in results.values()] or [here]
    said = {
        "device": [_device(s["device"]) for s in found],
        "revision": [str(s["git_revision"]) for s in found],
        "versions": [_versions(s["versions"]) for s in found],
        "seeds": [f"0 to {s['settings']['seeds'] - 1}" for s in found if "settings" in s],
    }
    return lines + [f"- {name}: {_counted(of)}" for name, of in said.items() if of]


def _counted(said: Sequence[str]) -> str:
    """The one thing that all say, or how many say what."""
    counts = {what: said.count(what) for what in dict.fromkeys(said)}
    if len(counts) == 1:
        return said[0]
    return "; ".join(f"{what} ({n} of {len(said)})" for what, n in counts.items())


def _device(about: dict[str, Any]) -> str:
    return f"{about['count']} x {about['kind']} ({about['platform']}, matmul precision {about['matmul_precision']})"


def _versions(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())
