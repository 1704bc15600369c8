"""What a run leaves behind: config.json, metrics.jsonl as it goes, summary.json and accuracy.png."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments.config import Experiment, Ledger, Run
from experiments.environment import device, git_revision, versions
from experiments.files import write_text
from experiments.lines import JsonLines, record
from experiments.plain import plain, spread
from experiments.resume import CHECKPOINTS
from experiments.sinks import Sink, guarded
from fedpriv.engine.history import Evaluation, History
from fedpriv.privacy import VIEWS, Certificate, Claim

METRICS = "metrics.jsonl"


def folder_of(config: Run, name: str) -> Path:
    """Where the run is to be recorded."""
    return config.output or Path("runs") / f"{Path(name).stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def new_folder(config: Run, name: str) -> Path:
    """Makes the run folder.

    Raises:
      ValueError: it holds a run already, or what is left of one, or cannot be made.
    """
    folder = folder_of(config, name)
    if any((folder / name).exists() for name in ("config.json", METRICS)):
        raise ValueError(
            f"output: {folder} already holds a run; choose another folder, or go on with --resume {folder}"
        )
    if (folder / CHECKPOINTS).exists():
        raise ValueError(
            f"output: {folder} has checkpoints of a run whose config.json is gone; delete {folder / CHECKPOINTS}, or "
            "choose another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output: cannot make {folder} ({error.strerror}); choose another"
        ) from None
    return folder


class Privacy:
    """Epsilons of one algorithm by rounds done, each computed once."""

    def __init__(self, ledger: Ledger, algorithm: str):
        self._ledger, self._algorithm = ledger, algorithm

    def claim(self, rounds: int) -> Claim | None:
        return self._ledger.claim(self._algorithm, rounds)

    def certificate(self, rounds: int, view: str) -> Certificate:
        return self._ledger.certify(self._algorithm, rounds, view=view)

    def record(self, algorithm: str, e: Evaluation) -> dict[str, Any]:
        """The line of an evaluation."""
        return record(algorithm, e, self.claim(e.round), self.certificate(e.round, "third_party"))

    def report(self, rounds: int) -> dict[str, Any]:
        """The claim and a certificate for every view, as JSON."""
        claim = self.claim(rounds)
        certified = {view: plain(self.certificate(rounds, view)) for view in VIEWS}
        return {"rounds": rounds, "claimed": plain(claim), "certified": certified}


class Recorder:
    """Writes a run's folder. A line of metrics.jsonl is on the disk before training goes on.

    Args:
      folder: of the run.
      name: of the config.
      config: the settings.
      about: what else config.json is to say.
      sinks: get every line, too.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        config: Run,
        about: Mapping[str, Any] = MappingProxyType({}),
        sinks: Sequence[Sink] = (),
    ):
        self.folder, self._config = folder, config
        self._identity = {"config": name, "settings": plain(config)}
        self._about, self._resumed = about, about.get("resumed", [])
        self._lines = JsonLines(folder / METRICS)
        self._sinks = [guarded(sink) for sink in sinks]
        self._earlier: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._describe()

    def _describe(self) -> None:
        _write(self.folder / "config.json", {**self._identity, **self._about})

    def evaluation(self, algorithm: str, e: Evaluation, privacy: Privacy) -> None:
        line = privacy.record(algorithm, e)
        self._lines.write(line)
        self._pass_on([line])

    def go_on(self, lines: Sequence[Mapping[str, Any]], finished: Collection[str]) -> None:
        """Begins again with the lines of algorithms that were finished; sinks get them once more.

        What an earlier summary said is no longer so.
        """
        (self.folder / "summary.json").unlink(missing_ok=True)
        self._earlier = {(line["algorithm"], line["round"]): line for line in lines}
        kept = [line for line in lines if line["algorithm"] in finished]
        self._lines.replace(kept)
        self._pass_on(kept)

    def restore(self, algorithm: str, evaluations: Sequence[Evaluation], privacy: Privacy) -> None:
        """The lines of an algorithm up to its checkpoint; what was lost of them is written anew."""
        lines = [
            self._earlier.get((algorithm, e.round)) or privacy.record(algorithm, e)
            for e in evaluations
        ]
        self._lines.write(*lines)
        self._pass_on(lines)
        self._resumed[-1]["rounds"][algorithm] = evaluations[-1].round
        self._describe()

    def _pass_on(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for sink in self._sinks:
            for line in lines:
                sink.write(line)

    def summary(
        self,
        histories: dict[str, History],
        experiment: Experiment,
        planned: dict[str, int],
        status: str,
        remarks: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Writes and returns summary.json; every quantity is a mapping by algorithm.

        Args:
          planned: rounds that each algorithm was to train for.
          remarks: further entries.
        """
        done = {name: h for name, h in histories.items() if h.evaluations}
        spent = {n: self._spent(n, int(h.rounds[-1]), status) for n, h in done.items()}
        spent = {n: min(rounds, planned[n]) for n, rounds in spent.items()}
        results = {
            **self._identity,
            "algorithm_settings": {n: dict(experiment.entries[n].settings) for n in done},
            "status": status,
            "rounds": {n: int(h.rounds[-1]) for n, h in done.items()},
            "rounds_planned": {n: planned[n] for n in done},
            "accuracy": {
                "best": {n: spread(h.accuracy.max(0)) for n, h in done.items()},
                "final": {n: spread(h.accuracy[-1]) for n, h in done.items()},
            },
            "uplink_mb_per_client": {n: float(h.uplink_mb[-1].mean()) for n, h in done.items()},
            "downlink_mb_per_client": {n: float(h.downlink_mb[-1].mean()) for n, h in done.items()},
            "privacy": {
                n: Privacy(experiment.ledger, n).report(rounds) for n, rounds in spent.items()
            },
            "privacy_notes": experiment.notes,
            "rounds_per_second": {n: rounds_per_second(h) for n, h in done.items()},
            "compile_seconds": {n: h.compile_seconds for n, h in done.items()},
            "versions": versions(),
            "device": device(),
            "git_revision": git_revision(),
            "resumed": self._resumed,
            **remarks,
        }
        _write(self.folder / "summary.json", results)
        return plain(results)

    def _spent(self, algorithm: str, done: int, status: str) -> int:
        """Rounds whose epsilon is spent: one that was cut short went on for up to `every` after its last evaluation.

        So it did whenever it was stopped before; what a checkpoint did not keep is done again, but was done.
        """
        every = self._config.every
        before = [entry.get("reached", {}).get(algorithm, 0) + every for entry in self._resumed]
        return max([done if status == "complete" else done + every, *before])


def rounds_per_second(history: History) -> float:
    """Rounds of all seeds per second, evaluation included, compilation not."""
    seconds = sum(e.seconds for e in history.evaluations)
    return history.evaluations[-1].round * len(history.seeds) / seconds


def _write(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(plain(content), indent=2) + "\n")
