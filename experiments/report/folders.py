"""Run folders as they are found: ended, cut short or still going on, alone or in the folder of a sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.report.records import (
    Evaluation,
    Identity,
    Summary,
    evaluation,
    identity,
    parsed,
    summary,
)

NO_SUMMARY = "running, or ended from outside (no summary.json)"


@dataclass
class RunFolder:
    """A run as far as it is recorded.

    Attributes:
      path: of the folder.
      about: what config.json says.
      evaluations: by algorithm, in the order of training, by round.
      summary: None where there is no summary.json yet.
      remarks: what was found wrong, or is missing, in words.
      name: for the page; the folder's, and unique.
    """

    path: Path
    about: Identity
    evaluations: dict[str, list[Evaluation]]
    summary: Summary | None
    remarks: list[str] = field(default_factory=list)
    name: str = ""

    @property
    def config(self) -> str:
        return self.about.config

    @property
    def settings(self) -> dict[str, Any]:
        return self.about.settings

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, device and revision, as far as they are recorded."""
        return self.summary.provenance if self.summary else self.about.provenance

    @property
    def status(self) -> str:
        return self.summary.status if self.summary else NO_SUMMARY

    @property
    def algorithms(self) -> list[str]:
        """Those that were asked for, with those that were trained."""
        wanted = self.settings.get("algorithms") or ()
        wanted = wanted if isinstance(wanted, list) else ()
        ended = [*self.summary.rounds, *self.summary.diverged] if self.summary else []
        return list(dict.fromkeys([*map(str, wanted), *self.evaluations, *ended]))


def read_all(given: Sequence[Path]) -> tuple[list[RunFolder], list[str]]:
    """Every run in the folders, each once, and remarks on what is not there yet.

    Raises:
      ValueError: a folder without a run, or with damaged files.
    """
    paths: dict[Path, Path] = {}
    remarks: list[str] = []
    for path in given:
        found, said = _runs_in(path)
        remarks += said
        for run in found:
            paths.setdefault(run.resolve(), run)
    runs = [read(path) for path in paths.values()]
    _name(runs)
    return runs, remarks


def _runs_in(path: Path) -> tuple[list[Path], list[str]]:
    """The run folders that `path` is or holds, and what a sweep there has not begun."""
    remedy = (
        "give a run folder of experiments.run, or a folder of such, as experiments.sweep leaves it"
    )
    if not path.is_dir():
        raise ValueError(f"RUN: {path} is no folder; {remedy}")
    if (path / "config.json").exists():
        return [path], []
    try:
        inside = sorted((p for p in path.iterdir() if (p / "config.json").exists()), key=_natural)
    except OSError as error:
        raise ValueError(f"RUN: cannot read {path} ({error.strerror}); {remedy}") from None
    if not inside:
        raise ValueError(f"RUN: {path} holds no run; {remedy}")
    return _as_swept(path, inside)


def _as_swept(path: Path, inside: list[Path]) -> tuple[list[Path], list[str]]:
    """`inside` in the order of sweep.json, if there is one."""
    file = path / "sweep.json"
    if not file.exists():
        return inside, []
    remedy = "restore it, or give the folders of its points one by one"
    order = parsed(file, _text(file), lambda x: [str(p["folder"]) for p in x["points"]], remedy)
    there = {p.name: p for p in inside}
    points = [there.pop(name) for name in order if name in there]
    missing = len(order) - len(points)
    said = [f"{path}: {missing} of {len(order)} points of the sweep are not begun"]
    return [*points, *there.values()], said if missing else []


def _natural(path: Path) -> list[Any]:
    """Sorts x=2 before x=10."""
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def read(path: Path) -> RunFolder:
    """Raises ValueError where a file is damaged; a last line that was cut off is only remarked."""
    file = path / "config.json"
    about = parsed(file, _text(file), identity, "restore it, or leave this run out")
    evaluations, remarks = _metrics(path / "metrics.jsonl")
    file, ended = path / "summary.json", None
    if file.exists():
        remedy = "move it away to report what metrics.jsonl holds"
        ended = parsed(file, _text(file), summary, remedy)
        if lost := sorted(set(ended.rounds) - set(evaluations)):
            remarks.append(f"metrics.jsonl has no line of {', '.join(lost)}: no curves of these")
    return RunFolder(path, about, evaluations, ended, [*about.resumed, *remarks])


def _metrics(path: Path) -> tuple[dict[str, list[Evaluation]], list[str]]:
    if not path.exists():
        return {}, ["no metrics.jsonl: nothing was evaluated yet"]
    text, remarks = _text(path), []
    *lines, rest = text.split("\n")
    if rest and _torn(rest):
        remarks.append(
            f"the last line of metrics.jsonl (line {len(lines) + 1}) is cut off; left out"
        )
    elif rest:
        lines.append(rest)
    found: dict[str, dict[int, Evaluation]] = {}
    remedy = "take the line out, or leave this run out"
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = path.with_name(f"{path.name}, line {number},")
        one = parsed(where, line, evaluation, remedy)
        earlier = found.setdefault(one.algorithm, {})
        same = next(iter(earlier.values()), one)
        if len(same.accuracy.per_seed) != len(one.accuracy.per_seed):
            raise ValueError(f"RUN: {where} has another number of seeds than before; {remedy}")
        earlier[one.round] = one  # one repeated replaces the earlier
    return {name: [of[t] for t in sorted(of)] for name, of in found.items()}, remarks


def _torn(line: str) -> bool:
    """Whether a line without its newline stops before its object does."""
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        if path.suffix == ".jsonl":  # a last line may be cut inside a character
            return path.read_text(encoding="utf-8", errors="replace")
        raise ValueError(
            f"RUN: {path} is damaged (not UTF-8); restore it, or leave it out"
        ) from None
    except OSError as error:
        raise ValueError(
            f"RUN: cannot read {path} ({error.strerror}); mend it or leave it out"
        ) from None


def _name(runs: Sequence[RunFolder]) -> None:
    """The folders' names, with as many of the folders above as make them unique."""
    for run in runs:
        parts, others = run.path.resolve().parts, [r for r in runs if r is not run]
        for many in range(1, len(parts) + 1):
            run.name = "/".join(parts[-many:])
            if all(r.path.resolve().parts[-many:] != parts[-many:] for r in others):
                break
