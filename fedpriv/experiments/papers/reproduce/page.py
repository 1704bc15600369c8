"""Writes what an item gives: table.md, table.csv, picture.png."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.core.files import replacing
from fedpriv.core.json_values import plain
from fedpriv.experiments.base import formats
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.formats import ABSENT, NAMES, epsilon
from fedpriv.experiments.base.provenance import provenance
from fedpriv.experiments.papers.reproduce import picture, table
from fedpriv.experiments.papers.reproduce.item import Item, Results, Scale, Training
from fedpriv.experiments.papers.reproduce.reading import summary
from fedpriv.experiments.papers.reproduce.table import Filled, fill, scaled
from fedpriv.experiments.papers.reproduce.work import UNFINISHED
from fedpriv.experiments.runs.alike import alike
from fedpriv.experiments.runs.contents import Report
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.frame import as_csv
from fedpriv.privacy import VIEWS
from fedpriv.privacy.epsilon_words import hyphenated

PRIVACY = ["trained", "rounds", "unit", "delta", "claimed by the paper's formula"]
PRIVACY += [f"certified, {view.replace('_', ' ')}" for view in VIEWS]


def write(item: Item, scale: Scale, results: Results, folder: Path, command: str) -> str:
    """Writes an item's three files into `folder` and returns the table's text.

    Raises:
      OSError: the folder cannot be written to.
    """
    filled, said = fill(item, scale, results), scaled(item, scale, results)
    text = markdown(item, filled, results, said, command)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", as_csv(table.frame(filled, said)))
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
    trained = {t: r for t, r in results.items() if isinstance(t, Training)}
    if cost := privacy({t: r for t, r in trained.items() if isinstance(r, RunFolder)}):
        one = "Every epsilon is of ONE model (one algorithm, one seed) released alone."
        parts += ["## Privacy of what was trained", one, cost]
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
    if any("spread" in (f.verdict or "") for f in filled):
        lines.append(
            "within the spread: a standard deviation more or less would change the verdict"
        )
    if any(f.said == ABSENT for f in filled):
        lines.append(f"measured {ABSENT}: not trained yet")
    return lines


def privacy(runs: Mapping[Training, RunFolder]) -> str:
    """On an item's page: claimed beside certified, a line for each group of trainings that cost the same, or ""."""
    reports = (
        (of, training) for training, run in runs.items() for of in summary(run).privacy.values()
    )
    groups = alike(each for each in reports if each[0].is_private)
    if not groups:
        return ""
    rows = [PRIVACY, *(_cost(report, trainings) for report, trainings in groups)]
    said: dict[str, None] = {}
    for report, _ in groups:
        if claim := report.claimed:
            verdict = "holds" if claim.sound else "not proved"
            said[f"claim by {claim.source}: {verdict} here: {' '.join(claim.reasons)}"] = None
    said |= {note: None for run in runs.values() for note in summary(run).privacy_notes}
    return formats.markdown_table(rows, said)


def _cost(report: Report, trainings: Sequence[Training]) -> list[str]:
    first, claim, said = report.certified[VIEWS[0]], report.claimed, ABSENT
    numbers = [report.certified[view] for view in VIEWS]
    if claim:
        where = [claim.unit, claim.view.replace("_", " "), hyphenated(claim.relation)]
        where += [f"delta {claim.delta:.3g}"] if claim.delta != first.delta else []
        said = f"{epsilon(claim.epsilon)} ({', '.join(where)})"
    certified = [f"{epsilon(c.epsilon)} ({hyphenated(c.relation)})" for c in numbers]
    of = [_trained(trainings), str(report.rounds), first.unit, f"{first.delta:.3g}"]
    return [*of, said, *certified]


def _trained(trainings: Sequence[Training]) -> str:
    """The group's configs and algorithms, and the settings that all of it shares."""
    shrunk = {name for t in trainings for name in (*t.shrinking, *t.rounds_in)}  # not as written
    shared = {k: v for k, v in trainings[0].settings.items() if k not in shrunk}
    for training in trainings:
        shared = {k: v for k, v in shared.items() if training.settings.get(k) == v}
    configs = ", ".join(dict.fromkeys(t.config for t in trainings))
    names = ", ".join(dict.fromkeys(NAMES.get(t.algorithm, t.algorithm) for t in trainings))
    return "; ".join([configs, names, *(f"{k} {v}" for k, v in shared.items())])


def _origins(item: Item, results: Results, command: str) -> list[str]:
    """Command, code, versions, devices and seeds of what is in the table."""
    lines = ["```", command, "```", ""]
    if item.needs and not results:
        return [*lines, "- nothing is done yet"]
    found = [
        plain(run.environment) | {"seeds": f"0 to {run.settings['seeds'] - 1}"}
        if isinstance(run, RunFolder)
        else run.summary
        for run in results.values()
    ]
    found = found or [provenance()]
    said = {
        "device": [_device(s["device"]) for s in found],
        "revision": [str(s["git_revision"]) for s in found],
        "versions": [", ".join(f"{k} {v}" for k, v in s["versions"].items()) for s in found],
        "random numbers": [s["prng"] for s in found if s.get("prng")],
        "seeds": [s["seeds"] for s in found if "seeds" in s],
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
