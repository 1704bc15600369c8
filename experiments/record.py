"""What a run leaves behind: config.json, metrics.jsonl as it goes, summary.json and accuracy.png."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.config import Experiment, Run
from fedpriv.history import Evaluation, History
from fedpriv.privacy import VIEWS, Certificate, Claim, certify
from fedpriv.types import Algorithm

PACKAGES = ("jax", "jaxlib", "flax", "optax", "dp-accounting", "numpy", "tensorflow-datasets")


def new_folder(config: Run, name: str) -> Path:
    """Makes the run folder.

    Raises:
      ValueError: it holds a run already, or cannot be made.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = config.output or Path("runs") / f"{name}-{stamp}"
    if (folder / "config.json").exists():
        raise ValueError(f"output: {folder} already holds a run; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output: cannot make {folder} ({error.strerror}); choose another"
        ) from None
    return folder


class Privacy:
    """Epsilons of one algorithm by rounds done, each computed once."""

    def __init__(self, algorithm: Algorithm, delta: float):
        self._algorithm, self._delta = algorithm, delta

    def claim(self, rounds: int) -> Claim | None:
        return self._algorithm.claim(rounds, self._delta)

    def certificate(self, rounds: int, view: str) -> Certificate:
        return certify(self._algorithm, rounds, self._delta, view=view)

    def report(self, rounds: int) -> dict[str, Any]:
        """The claim and a certificate for every view, as JSON."""
        claim = self.claim(rounds)
        certified = {view: plain(self.certificate(rounds, view)) for view in VIEWS}
        return {"rounds": rounds, "claimed": plain(claim), "certified": certified}


class Recorder:
    """Writes a run's folder. A line of metrics.jsonl is on the disk before training goes on."""

    def __init__(self, folder: Path, name: str, config: Run):
        self.folder, self._config = folder, config
        self._identity = {"config": name, "settings": plain(config)}
        _write(folder / "config.json", self._identity)

    def evaluation(self, algorithm: str, e: Evaluation, privacy: Privacy) -> None:
        line = {
            "algorithm": algorithm,
            "round": e.round,
            "accuracy": spread(e.accuracy),
            "loss": spread(e.loss),
            "uplink_mb_per_client": float(np.mean(e.uplink_mb)),
            "downlink_mb_per_client": float(np.mean(e.downlink_mb)),
            "privacy": {
                "claimed": plain(privacy.claim(e.round)),
                "certified": plain(privacy.certificate(e.round, "third_party")),
            },
            "diagnostics_not_private": {
                k: spread(v) for k, v in [*e.diagnostics.items(), *e.measures.items()]
            },
            "seconds": e.seconds,
        }
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(plain(line)) + "\n")

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
        # A run that was cut short went on for up to `every` rounds after its last evaluation, and spent their epsilon.
        more = 0 if status == "complete" else self._config.every
        spent = {n: min(int(h.rounds[-1]) + more, planned[n]) for n, h in done.items()}
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
                n: Privacy(experiment.entries[n].algorithm, experiment.delta).report(rounds)
                for n, rounds in spent.items()
            },
            "privacy_notes": experiment.notes,
            "rounds_per_second": {n: rounds_per_second(h) for n, h in done.items()},
            "compile_seconds": {n: h.compile_seconds for n, h in done.items()},
            "versions": versions(),
            "device": device(),
            "git_revision": git_revision(),
            **remarks,
        }
        _write(self.folder / "summary.json", results)
        return plain(results)


def spread(per_seed: np.ndarray) -> dict[str, Any]:
    """Mean, standard deviation (n - 1; null for one seed) and the values of the seeds."""
    values = np.asarray(per_seed, float)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "std": std, "per_seed": values.tolist()}


def rounds_per_second(history: History) -> float:
    """Rounds of all seeds per second, evaluation included, compilation not."""
    seconds = sum(e.seconds for e in history.evaluations)
    return history.evaluations[-1].round * len(history.seeds) / seconds


def versions() -> dict[str, str]:
    """Of Python and of the packages that numbers depend on."""
    return {"python": platform.python_version()} | {p: version(p) for p in PACKAGES}


def device() -> dict[str, Any]:
    """What computes, and how exactly: "default" is TF32 or less on some accelerators, float32 on CPU."""
    import jax

    first = jax.local_devices()[0]
    counts = {"count": jax.device_count(), "processes": jax.process_count()}
    precision = jax.config.jax_default_matmul_precision or "default"
    about = {"platform": first.platform, "kind": first.device_kind, "matmul_precision": precision}
    return about | counts


def git_revision() -> str | None:
    """The commit of the working folder, with "+" where files differ from it; None outside a repository."""
    here = Path(__file__).parent
    try:
        run = [
            subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=True)
            for args in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return run[0].stdout.strip() + ("+" if run[1].stdout.strip() else "")


def plain(value: Any) -> Any:
    """`value` as JSON knows it; infinity becomes the string "inf", NaN "nan"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _write(path: Path, content: dict[str, Any]) -> None:
    """As a whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.write_text(json.dumps(plain(content), indent=2) + "\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
