"""Run folders as objects, whether the run has ended or not, alone or in the folder of a sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedpriv.core.arguments import check_path
from fedpriv.core.cards import in_a_line
from fedpriv.core.json_values import typed, without_collections
from fedpriv.engine.client_metric_names import parsed
from fedpriv.engine.history import History
from fedpriv.experiments.base.files import opened
from fedpriv.experiments.base.formats import name_of
from fedpriv.experiments.base.writer import writer_of
from fedpriv.experiments.config.public import LAST, by_what
from fedpriv.experiments.runs import client_lines, curves
from fedpriv.experiments.runs.client_lines import ClientLine
from fedpriv.experiments.runs.contents import Begun, Environment, Line, Summary
from fedpriv.experiments.runs.released import RELEASE, read_release
from fedpriv.experiments.runs.statistics import ReleasedStatistics, read_statistics
from fedpriv.experiments.runs.summary_so_far import placed, so_far
from fedpriv.models.score import OVER_GROUPS
from fedpriv.privacy import Certificate

if TYPE_CHECKING:
    import pandas

CONFIG, METRICS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
CHECKPOINTS, SECRET_SEED = "checkpoints", "secret_seed"
SWEEP = "sweep.json"  # in the folder of a sweep
T = TypeVar("T")


@dataclass(frozen=True)
class RunFolder:
    """A run, as far as it is recorded; `experiments.runs.read` gives one.

    The folder of `sweep --best-of` is one, too: it has the model that was chosen, and no evaluation but its last score.

    Attributes:
      begun: config.json.
      lines: metrics.jsonl by algorithm, in the order of training; by round, each round once.
      summary: None if there is no summary.json yet.
      unended: the status while there is none: whether a process still writes to the folder.
      damage: what is damaged or missing in metrics.jsonl, in words.
      label: its name in tables and figures; "": the settings that differ from the other runs', see `run_names`.
      shown: metrics that were chosen to be shown; (): the run's own.
    """

    path: Path
    begun: Begun
    lines: dict[str, tuple[Line, ...]]
    summary: Summary | None
    unended: str = "interrupted"
    damage: tuple[str, ...] = ()
    label: str = ""
    shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        status = self.summary.status if self.summary else self.unended
        return in_a_line(f"RunFolder({self.path}: {status}; {', '.join(self.algorithms)})")

    def _repr_html_(self) -> str:
        """What a notebook shows: its table."""
        # Tables are a room above this one, and are there once a notebook asks.
        cards = import_module("fedpriv.experiments.tables.run_card")
        return cards.card_of("Run", self.path, self.status, self.results).html()

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What is damaged or missing, in words."""
        try:
            return (*self.damage, *(said for name in self.lines if (said := self.lost(name))))
        except ValueError as error:
            return (*self.damage, str(error))

    def lost(self, algorithm: str) -> str:
        """What of the values of single clients is not there though its last evaluation measured them; "" for none.

        Raises:
          ValueError: clients.jsonl is damaged.
        """
        measured = self.results.per_client_not_private.get(algorithm, {})
        wanted = {of.kind for of in map(parsed, measured) if of and of.statistic not in OVER_GROUPS}
        there = {line.kind for line in self.last_of_clients(algorithm)} if wanted else set()
        if not (missing := sorted(wanted - there)):
            return ""
        if not (self.path / client_lines.CLIENTS).exists():
            return f"no {client_lines.CLIENTS}: {algorithm} has no values of single clients"
        return (
            f"{client_lines.CLIENTS} lacks round {self.results.rounds[algorithm]} of {algorithm} "
            f"({', '.join(missing)}), its last evaluation, so it has no values of single clients"
        )

    def last_of_clients(self, algorithm: str) -> list[ClientLine]:
        """What its last evaluation measured on single clients, a line for each kind of values.

        Raises:
          ValueError: clients.jsonl is damaged.
        """
        last = self.results.rounds.get(algorithm)
        return [x for x in self.client_lines if (x.algorithm, x.round) == (algorithm, last)]

    @property
    def config(self) -> str:
        return self.begun.config

    @property
    def status(self) -> str:
        return self.results.status

    @property
    def history(self) -> dict[str, History]:
        """History of each algorithm, without the trained state and the values of single clients."""
        last = by_what(self.settings, self.results.public).get(LAST, ())
        found = dict[str, History]()
        for name, lines in self.lines.items():
            seeds, evaluations = tuple(range(lines[-1].seeds)), [x.evaluation() for x in lines]
            of = self.results.privacy[name].certified if name in self.results.privacy else {}
            own = of.get(self.settings.get("view", ""), of.get("third_party"))
            found[name] = History(seeds, evaluations, not_covered=last, certificate=own)
        return found

    @property
    def curves(self) -> pandas.DataFrame:
        """A row for each algorithm, round, metric and seed, with its value. The name of a private metric says so.

        Further columns: `uplink_mb_not_private` and `downlink_mb_not_private`, megabytes so far per client of the
        population; the `epsilon` that is certified of so many rounds, with `delta`, `unit`, `view`, `adjacency` and
        `basis`.
        """
        return curves.frame((x for lines in self.lines.values() for x in lines), self.begun)

    @property
    def clients(self) -> pandas.DataFrame:
        """A row for each value of a single client: algorithm, round, kind, seed, client, records_not_private, metric,
        value_not_private.

        Empty where none was evaluated, see `ClientLine`. A last line that was cut off is left out. Not private.

        Raises:
          ValueError: clients.jsonl is damaged.
        """
        return client_lines.frame(self.client_lines)

    @cached_property
    def client_lines(self) -> list[ClientLine]:
        """The lines of clients.jsonl, which is read when they are asked for.

        Raises:
          ValueError: it is damaged.
        """
        return client_lines.read_client_lines(self.path)[0]

    @property
    def certificates(self) -> dict[str, dict[str, Certificate]]:
        """Certificates by algorithm and view; without summary.json of a third party alone, as they are in `so_far`."""
        return {name: dict(report.certified) for name, report in self.results.privacy.items()}

    @cached_property
    def statistics(self) -> dict[str, ReleasedStatistics]:
        """By algorithm, what was released of the clients' features before it trained; empty where nothing was.

        Raises:
          ValueError: statistics.json is damaged.
        """
        return read_statistics(self.path)

    @property
    def settings(self) -> dict[str, Any]:
        return self.begun.settings

    @cached_property
    def results(self) -> Summary:
        """The summary, or a preliminary one of what is recorded so far."""
        return self.summary or so_far(self.begun, self.lines, self.unended)

    @property
    def environment(self) -> Environment | None:
        """None if it is not yet recorded."""
        if of := self.summary:
            return Environment(of.versions, of.device, of.git_revision, of.prng, of.streams)
        return self.begun.environment

    def name_of(self, algorithm: str) -> str:
        """For people."""
        return name_of(algorithm, self.begun.names)

    @property
    def algorithms(self) -> list[str]:
        """All algorithms that were asked for or trained."""
        wanted = self.settings.get("algorithms")
        ended = [*self.summary.rounds, *self.summary.diverged] if self.summary else []
        asked = map(str, wanted) if isinstance(wanted, list) else ()
        return list(dict.fromkeys([*asked, *self.lines, *ended]))


def read(folder: str | Path) -> RunFolder:
    """What a run folder holds, whether the run has ended or not.

    Raises:
      ValueError: no run, or a damaged file; a last line that was cut off is only remarked.
    """
    check_path("folder", folder, "give a run folder")
    folder = Path(folder)
    if _is_release(folder):
        return RunFolder(folder, *_released(folder))
    begun, unended = read_begun(folder), _unended(folder)
    lines, remark = read_lines(folder)
    damage = [remark] if remark else []
    found: dict[str, dict[int, Line]] = {}
    for line in lines:  # a repeated one replaces the earlier
        found.setdefault(line.algorithm, {})[line.round] = line.placed(begun.tests_clients)
    summary = read_summary(folder)  # after `unended`: a run that ends meanwhile has one
    if summary and (lost := sorted(set(summary.rounds) - set(found))):
        damage.append(f"{METRICS} has no line of {', '.join(lost)}, so these have no curves")
    ordered = {name: tuple(of[t] for t in sorted(of)) for name, of in found.items()}
    try:
        summary = summary and placed(summary, begun, ordered)
    except ValueError as error:
        remedy = f"move it away to read what {METRICS} holds"
        raise ValueError(f"{folder / SUMMARY} is damaged ({error}); {remedy}") from None
    return RunFolder(folder, begun, ordered, summary, unended, tuple(damage))


def _unended(folder: Path) -> str:
    """The status of a run that has no summary: nothing writes to a folder but the process that trains."""
    writer = writer_of(folder)
    if writer is None:
        return f"interrupted: no process writes to it (no {SUMMARY})"
    if writer.state == "unknown":
        return f"running, or interrupted: {writer} may still write to it (no {SUMMARY})"
    if writer.state == "running":
        return f"running: {writer}"
    what = "has ended" if writer.state == "ended" else "writes nothing until it is continued"
    return f"interrupted: {writer} {what} (no {SUMMARY})"


def _is_release(folder: Path) -> bool:
    """Whether a model is there that was chosen under a certificate, and nothing of its training."""
    return (folder / RELEASE).exists() and not (folder / CONFIG).exists()


def _released(folder: Path) -> tuple[Begun, dict[str, tuple[Line, ...]], Summary]:
    begun, summary = read_release(folder)
    return begun, {}, summary


def read_begun(folder: Path) -> Begun:
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds no run (no {CONFIG}); give a run folder")
    return _read(folder / CONFIG, Begun, "restore it, or leave this run out")


def read_summary(folder: Path) -> Summary | None:
    """As the file has it; `read` moves what an older version has put elsewhere."""
    path = folder / SUMMARY
    remedy = f"move it away to read what {METRICS} holds"
    return _read(path, Summary, remedy) if path.exists() else None


def read_lines(folder: Path, *, tolerant: bool = False) -> tuple[list[Line], str]:
    """The lines of metrics.jsonl in their order, and a remark where something is missing.

    Args:
      tolerant: whether to stop at a damaged line, too, and not only at a last one that was cut off.
    """
    path, found = folder / METRICS, list[Line]()
    if not path.exists():
        return found, f"no {METRICS}: nothing was evaluated yet"
    with opened(path, "repair it, or leave this run out") as file, without_collections():
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                found.append(_parsed(text, Line))
                _check_seeds(found)
            except ValueError as error:
                cut = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
                if not tolerant and not (cut and not text.endswith(b"\n")):
                    remedy = "remove the line, or leave this run out"
                    raise ValueError(
                        f"{path}, line {number}, is damaged ({error}); {remedy}"
                    ) from None
                return found, f"{METRICS} is cut off in line {number}, which is left out"
    return found, ""


def _check_seeds(lines: Sequence[Line]) -> None:
    first, last = (line.seeds for line in (lines[0], lines[-1]))
    if first != last:
        raise ValueError(f"{last} seeds, {first} before")


def _read(path: Path, kind: type[T], remedy: str) -> T:
    with opened(path, remedy) as file:
        text = file.read()
    try:
        return _parsed(text, kind)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from None


def _parsed(text: bytes, kind: type[T]) -> T:
    try:
        return typed(kind, json.loads(text.decode()))
    except (RecursionError, OverflowError) as error:
        raise ValueError(type(error).__name__) from None


def read_all(given: Sequence[Path]) -> tuple[list[RunFolder], list[str]]:
    """Every run in the folders, each once, and remarks on what is not there yet.

    Raises:
      ValueError: a folder without a run, or with damaged files.
    """
    if not given:
        raise ValueError("folders: none is given; name a run folder, or one that holds run folders")
    paths: dict[Path, Path] = {}
    remarks: list[str] = []
    for path in given:
        found, said = _runs_in(path)
        remarks += said
        for run in found:
            paths.setdefault(run.resolve(), run)
    return [read(path) for path in paths.values()], remarks


def runs_of(what: Any) -> tuple[list[RunFolder], list[str]]:
    """Every run of a run, a sweep, a folder of either, or several of these, and remarks on what is not there yet.

    Args:
      what: a path, a `RunFolder`, what has a `folder`, or a sequence of such.

    Raises:
      ValueError: a folder without a run, or with damaged files.
    """
    if isinstance(what, RunFolder):
        return [what], []
    if isinstance(what, str | Path):
        return read_all([Path(what)])
    if hasattr(what, "folder"):
        return read_all([what.folder])
    if not isinstance(what, Iterable):
        raise ValueError(f"runs: {what!r}; give run folders, or what `train` or `sweep` returns")
    found, remarks = list[RunFolder](), list[str]()
    for one in what:
        more, said = runs_of(one)
        found += more
        remarks += said
    if not found:
        raise ValueError(
            "runs: there are none; give run folders, or what `train` or `sweep` returns"
        )
    return list({run.path.resolve(): run for run in found}.values()), remarks


def _runs_in(path: Path) -> tuple[list[Path], list[str]]:
    """The run folders that `path` is or holds, those of a sweep in its order, and what it has not begun."""
    if (path / CONFIG).exists() or _is_release(path):
        return [path], []
    remedy = "give a run folder of fedpriv run, or a folder of them, as from fedpriv sweep"
    try:
        every = (p for p in path.iterdir() if (p / CONFIG).exists() or _is_release(p))
        inside = sorted(every, key=_natural)
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}); {remedy}") from None
    if not inside:
        raise ValueError(f"{path} holds no run; {remedy}")
    if not (file := path / SWEEP).exists():
        return inside, []
    remedy = "restore it, or give the folders of its points one by one"
    with opened(file, remedy) as sweep:
        text = sweep.read()
    try:
        names = [str(point["folder"]) for point in json.loads(text)["points"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{file} is damaged; {remedy}") from None
    there = {p.name: p for p in inside}
    points = [there.pop(name) for name in names if name in there]
    missing = len(names) - len(points)
    said = f"{path}: {missing} of {len(names)} points of the sweep are not begun"
    return [*points, *there.values()], [said] if missing else []


def _natural(path: Path) -> list[Any]:
    """Sorts x=2 before x=10."""
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]
