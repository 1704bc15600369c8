"""Run folders: config.json, metrics.jsonl and summary.json as objects, whether the run has ended or not.

`plain` of an object here is what its file holds (`experiments.record` writes it), `typed` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from experiments.plain import typed
from fedpriv.engine.history import Evaluation
from fedpriv.privacy import VIEWS, Certificate, Claim

CONFIG, METRICS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """A quantity over the seeds.

    Attributes:
      mean: over the seeds; NaN where a seed has none.
      std: standard deviation (n - 1); None for one seed.
      per_seed: one value per seed.
    """

    mean: float
    std: float | None
    per_seed: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.per_seed:
            raise ValueError("per_seed: is empty")

    @classmethod
    def of(cls, per_seed: np.ndarray) -> Spread:
        values = np.asarray(per_seed, float)
        with np.errstate(invalid="ignore"):  # what is not finite has no spread
            std = float(values.std(ddof=1)) if len(values) > 1 else None
            return cls(float(values.mean()), std, tuple(values.tolist()))


@dataclass(frozen=True)
class Epsilons:
    """At an evaluation: the paper's claim, and what is certified towards a third party."""

    claimed: Claim | None
    certified: Certificate

    def __post_init__(self) -> None:
        _check_views(self.claimed, self.certified)


@dataclass(frozen=True)
class Line:
    """A line of metrics.jsonl: an evaluation.

    Attributes:
      uplink_mb_per_client, downlink_mb_per_client: megabytes (10^6 bytes) of all rounds so far, per client of the
        population, on average.
      traffic_mb_per_seed: "uplink" and "downlink", one value per seed.
      privacy: of all rounds so far.
      diagnostics_not_private: means over the rounds since the line before, and measures.
      seconds: since the line before.
    """

    algorithm: str
    round: int
    accuracy: Spread
    loss: Spread
    uplink_mb_per_client: float
    downlink_mb_per_client: float
    traffic_mb_per_seed: dict[str, tuple[float, ...]]
    privacy: Epsilons
    diagnostics_not_private: dict[str, Spread]
    seconds: float

    @classmethod
    def of(
        cls, algorithm: str, e: Evaluation, claimed: Claim | None, certified: Certificate
    ) -> Line:
        traffic = {"uplink": e.uplink_mb, "downlink": e.downlink_mb}
        return cls(
            algorithm,
            e.round,
            Spread.of(e.accuracy),
            Spread.of(e.loss),
            float(np.mean(e.uplink_mb)),
            float(np.mean(e.downlink_mb)),
            {name: tuple(values.tolist()) for name, values in traffic.items()},
            Epsilons(claimed, certified),
            {k: Spread.of(v) for k, v in [*e.diagnostics.items(), *e.measures.items()]},
            e.seconds,
        )

    def evaluation(self) -> Evaluation:
        """What `of` was given, with the numbers as `simulate` gave them; measures are among the diagnostics."""
        precision = jax.dtypes.canonicalize_dtype(float)  # in which they were computed
        return Evaluation(
            self.round,
            np.array(self.accuracy.per_seed, precision),
            np.array(self.loss.per_seed, precision),
            np.array(self.traffic_mb_per_seed["uplink"], float),
            np.array(self.traffic_mb_per_seed["downlink"], float),
            {
                name: np.array(s.per_seed, precision)
                for name, s in self.diagnostics_not_private.items()
            },
            self.seconds,
        )

    def metric(self, name: str) -> Spread | None:
        """ "accuracy", "loss" or a diagnostic; None where there is no such."""
        named = {"accuracy": self.accuracy, "loss": self.loss}
        return named.get(name) or self.diagnostics_not_private.get(name)


@dataclass(frozen=True)
class Report:
    """Epsilons of one algorithm for `rounds` rounds: claimed, and certified by view."""

    rounds: int
    claimed: Claim | None
    certified: dict[str, Certificate]

    def __post_init__(self) -> None:
        _check_views(self.claimed, *self.certified.values())
        if any(view != c.view for view, c in self.certified.items()):
            raise ValueError(f"certificates of {', '.join(self.certified)} are of other views")


def _check_views(*numbers: Certificate | Claim | None) -> None:
    for number in numbers:
        if number and number.view not in VIEWS:
            raise ValueError(f"view: {number.view!r} is none of {', '.join(VIEWS)}")


@dataclass(frozen=True)
class Accuracy:
    """By algorithm: the best over the evaluations, each seed's own, and the last."""

    best: dict[str, Spread]
    final: dict[str, Spread]


@dataclass(frozen=True)
class Summary:
    """summary.json; mappings from rounds on are by algorithm.

    Attributes:
      status: "complete", "interrupted", "failed: ..." or "diverged: ...".
      rounds: that were evaluated; algorithms without an evaluation are not there.
      diverged: what sweeps say of algorithms that did.
      reused_from: where sweeps took an algorithm's training from.
    """

    config: str
    settings: dict[str, Any]
    algorithm_settings: dict[str, dict[str, Any]]
    status: str
    rounds: dict[str, int]
    rounds_planned: dict[str, int]
    accuracy: Accuracy
    uplink_mb_per_client: dict[str, float]
    downlink_mb_per_client: dict[str, float]
    privacy: dict[str, Report]
    privacy_notes: tuple[str, ...]
    rounds_per_second: dict[str, float]
    compile_seconds: dict[str, float | None]
    versions: dict[str, Any]
    device: dict[str, Any]
    git_revision: str | None
    resumed: tuple[dict[str, Any], ...] = ()
    diverged: dict[str, str] = field(default_factory=dict)
    reused_from: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts: dict[str, dict[str, Any]] = {
            "best": self.accuracy.best,
            "final": self.accuracy.final,
        }
        names = ("rounds_planned", "uplink_mb_per_client", "downlink_mb_per_client", "privacy")
        names += ("rounds_per_second", "compile_seconds")
        for name, part in [*parts.items(), *((n, getattr(self, n)) for n in names)]:
            if missing := sorted(set(self.rounds) - set(part)):
                raise ValueError(f"{name}: lacks {', '.join(missing)}")

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train: it is complete, or diverged."""
        return self.status.partition(":")[0] in ("complete", "diverged")


@dataclass(frozen=True)
class Begun:
    """config.json: what the run was begun with.

    Attributes:
      config: name of the config.
      settings: its fields.
      environment: versions, device, revision and layout; None in the point of a sweep.
      resumed: an entry for each time that the run went on after a stop.
      id: of the run.
    """

    config: str
    settings: dict[str, Any]
    environment: dict[str, Any] | None = None
    resumed: tuple[dict[str, Any], ...] = ()
    id: str | None = None


@dataclass(frozen=True)
class RunFolder:
    """A run as far as it is recorded.

    Attributes:
      begun: config.json.
      lines: metrics.jsonl by algorithm, in the order of training; by round, each round once.
      summary: None where there is no summary.json yet.
      remarks: what is torn or missing, in words.
    """

    path: Path
    begun: Begun
    lines: dict[str, tuple[Line, ...]]
    summary: Summary | None
    remarks: tuple[str, ...] = ()

    @property
    def config(self) -> str:
        return self.begun.config

    @property
    def settings(self) -> dict[str, Any]:
        return self.begun.settings

    @property
    def environment(self) -> dict[str, Any] | None:
        """Versions, device and revision; None where they are not recorded yet."""
        if self.summary:
            names = ("versions", "device", "git_revision")
            return {name: getattr(self.summary, name) for name in names}
        return self.begun.environment

    @property
    def algorithms(self) -> list[str]:
        """Those that were asked for, with those that were trained."""
        wanted = self.settings.get("algorithms")
        ended = [*self.summary.rounds, *self.summary.diverged] if self.summary else []
        asked = map(str, wanted) if isinstance(wanted, list) else ()
        return list(dict.fromkeys([*asked, *self.lines, *ended]))


def read(folder: Path) -> RunFolder:
    """Raises ValueError: no run, or a damaged file; a last line that was cut off is only remarked."""
    begun = read_begun(folder)
    lines, remark = read_lines(folder)
    remarks = [remark] if remark else []
    found: dict[str, dict[int, Line]] = {}
    for line in lines:
        found.setdefault(line.algorithm, {})[line.round] = (
            line  # a repeated one replaces the earlier
        )
    summary = read_summary(folder)
    if summary and (lost := sorted(set(summary.rounds) - set(found))):
        remarks.append(f"{METRICS} has no line of {', '.join(lost)}: no curves of these")
    ordered = {name: tuple(of[t] for t in sorted(of)) for name, of in found.items()}
    return RunFolder(folder, begun, ordered, summary, tuple(remarks))


def read_begun(folder: Path) -> Begun:
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds no run (no {CONFIG}); give a run folder")
    return _read(folder / CONFIG, Begun, "restore it, or leave this run out")


def read_summary(folder: Path) -> Summary | None:
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
    lines = _bytes(path, "mend it, or leave this run out").split(b"\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            found.append(_parsed(text, Line))
            _check_seeds(found)
        except ValueError as error:
            torn = number == len(lines) and isinstance(
                error, json.JSONDecodeError | UnicodeDecodeError
            )
            if not (torn or tolerant):
                remedy = "take the line out, or leave this run out"
                raise ValueError(f"{path}, line {number}, is damaged ({error}); {remedy}") from None
            return found, f"{METRICS} is cut off in line {number}, which is left out"
    return found, ""


def _check_seeds(lines: Sequence[Line]) -> None:
    first, last = (len(line.accuracy.per_seed) for line in (lines[0], lines[-1]))
    if first != last:
        raise ValueError(f"{last} seeds, {first} before")


def _read(path: Path, kind: type[T], remedy: str) -> T:
    try:
        return _parsed(_bytes(path, remedy), kind)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from None


def _bytes(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}); {remedy}") from None


def _parsed(text: bytes, kind: type[T]) -> T:
    try:
        return typed(kind, json.loads(text.decode()))
    except (RecursionError, OverflowError) as error:
        raise ValueError(type(error).__name__) from None
