"""Trains the points of a sweep: compiled once where they differ in numbers alone, trained once where in nothing."""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import jax

from fedpriv.devices.fitting import fitted
from fedpriv.devices.layout import Strategy, current, use
from fedpriv.engine.history import DivergedError, History
from fedpriv.engine.rising_loss_warning import RisingLossWarning
from fedpriv.experiments.accounting.found import Found
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.base.writer import held
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.runs.recorder import Privacy, Recorder, cleared_folder, described
from fedpriv.experiments.search.shared_jit import Family, Program, trace
from fedpriv.experiments.search.sweep_grid import Point
from fedpriv.experiments.training.shared_arrays import as_bytes
from fedpriv.experiments.training.train_algorithms import simulate_algorithm, train_algorithm


class Prepared(NamedTuple):
    """A point of a sweep, ready to train; `planned`: rounds of each algorithm; `noise`: what was solved for each."""

    point: Point
    strategy: Strategy
    experiment: Experiment
    planned: dict[str, int]
    noise: dict[str, Found]


class Known(NamedTuple):
    """What is known of a training of a sweep before it.

    Attributes:
      strategy: the point's, with the number of clients that fit side by side.
      program: under this strategy.
      key: equal for trainings with the same result.
    """

    strategy: Strategy
    program: Program
    key: tuple


class Result(NamedTuple):
    """How a training of a sweep ended, of which algorithm and in which point."""

    point: Point
    algorithm: str
    history: History
    error: str | None


class _TracedError(Exception):
    """Leaves `simulate` once its program is traced."""


class Sweep:
    """What the points of a sweep have in common.

    Args:
      epsilon_of: what the epsilons in progress are of, where that is not what is released.

    Attributes:
      trained, reused: trainings that were run, and those whose result was taken from another point.
      seconds: spent tracing and compiling.
    """

    def __init__(self, name: str, folder: Path, progress: bool = True, epsilon_of: str = ""):
        self.trained = self.reused = 0
        self.seconds = 0.0
        self._name, self._folder, self._progress = name, folder, progress
        self._epsilon_of = epsilon_of
        self._families: list[Family] = []
        self._known: dict[tuple[str, str], Known] = {}
        self._widths: dict[int, Literal["map", "vmap", "fit"] | int] = {}
        self._results: dict[tuple, Result] = {}

    @property
    def compilations(self) -> int:
        return sum(family.compilations for family in self._families)

    def announce(self, prepared: Prepared) -> None:
        """Traces the point's programs, so that compiling the first of a kind serves this one, too."""
        began = time.perf_counter()
        for algorithm in prepared.experiment.entries:
            strategy = self._fitted(algorithm, prepared)
            program, args = self._traced(algorithm, prepared, strategy)
            digest = hashlib.sha256(b"".join(map(as_bytes, jax.tree.leaves(args)))).digest()
            settings = prepared.point.settings
            how = (settings.rounds, settings.every, settings.keep_model)
            stopping = prepared.experiment.stopping(settings)
            key = (id(program.family), program.identity, digest, *how, stopping)
            self._known[prepared.point.name, algorithm] = Known(strategy, program, key)
        self.seconds += time.perf_counter() - began

    def _fitted(self, algorithm: str, prepared: Prepared) -> Strategy:
        """The point's strategy, its width found once for programs that differ in numbers alone.

        Left to `simulate`, every point might get a width of its own, as free memory changes.
        """
        if prepared.strategy.clients != "fit":
            return prepared.strategy

        def family() -> Family:
            return self._traced(algorithm, prepared, current())[0].family

        with use(replace(prepared.strategy, clients="vmap")):
            kind = id(family())
        if kind not in self._widths:
            width = fitted(prepared.strategy, lambda: family().program).clients
            self._widths[kind] = width
        return replace(prepared.strategy, clients=self._widths[kind])

    def _traced(
        self, algorithm: str, prepared: Prepared, strategy: Strategy
    ) -> tuple[Program, tuple]:
        """The training's program, and its arguments."""
        found: list[tuple[Program, tuple]] = []

        def tracing(fn: Callable[..., Any], args: tuple, donated: Sequence[int]) -> NoReturn:
            found.append((trace(self._families, fn, args, donated), args))
            raise _TracedError

        with suppress(_TracedError):
            own = _own(prepared, algorithm)
            given = {"seeds": prepared.point.seeds, "compiler": tracing}
            simulate_algorithm(algorithm, prepared.experiment, own, strategy, **given)
        return found[0]

    def train(self, prepared: Prepared) -> str:
        """Trains all algorithms of an announced point into its run folder; returns the run's status.

        One that diverges does not keep the others from being trained.

        Raises:
          ValueError: another process writes to that folder.
          OSError: after training: not all of it could be written.
        """
        folder = self._folder / prepared.point.name
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder):
            return self._train_into(folder, prepared)

    def _train_into(self, folder: Path, prepared: Prepared) -> str:
        point, experiment = prepared.point, prepared.experiment
        settings = replace(point.settings, output=cleared_folder(folder))
        about = described(experiment, prepared.noise, prepared.planned)
        recorder = Recorder(folder, self._name, settings, about)
        histories: dict[str, History] = {}
        remarks: dict[str, dict[str, str]] = {"reused_from": {}, "diverged": {}}
        status = "complete"
        try:
            for algorithm in experiment.entries:
                histories[algorithm] = History(point.seeds)
                known = self._known.pop((point.name, algorithm))
                if earlier := self._results.get(known.key):
                    remarks["reused_from"][algorithm] = earlier.point.name
                    if self._progress:
                        say(
                            f"{algorithm}: the same program, numbers and data as at {earlier.point.title}; its "
                            "result is taken",
                            file=sys.stderr,
                        )
                    error = _replay(earlier, algorithm, prepared, recorder, histories[algorithm])
                    there = self._folder / earlier.point.name / "model" / earlier.algorithm
                    if there.exists():
                        shutil.copytree(there, folder / "model" / algorithm)
                    self.reused += 1
                else:
                    error = self._train(algorithm, prepared, known, recorder, histories[algorithm])
                if error:
                    remarks["diverged"][algorithm] = error
        except KeyboardInterrupt:
            status = "interrupted"
        if status == "complete" and remarks["diverged"]:
            said = (f"{name}: {error}" for name, error in remarks["diverged"].items())
            status = f"diverged: {'; '.join(said)}"
        recorder.write_summary(histories, experiment, prepared.planned, status, remarks)
        if not recorder.retry():
            raise next(iter(recorder.lost.values()))
        return status

    def _train(
        self,
        algorithm: str,
        prepared: Prepared,
        known: Known,
        recorder: Recorder,
        history: History,
    ) -> str | None:
        """Why it diverged, if it did."""
        error = None
        settings = _own(prepared, algorithm)

        def compiler(fn: Any, args: tuple, donated: Any) -> Callable[..., Any]:
            return known.program.compile(args)

        try:
            train_algorithm(
                algorithm,
                prepared.experiment,
                settings,
                known.strategy,
                recorder,
                history,
                progress=self._progress,
                epsilon_of=self._epsilon_of,
                seeds=prepared.point.seeds,
                compiler=compiler,
            )
        except DivergedError as diverged:
            error = str(diverged)
        except RisingLossWarning as rose:  # an error, where warnings are; one point ends no sweep
            say(f"warning: {rose}", file=sys.stderr)
        self._results[known.key] = Result(prepared.point, algorithm, history, error)
        self.trained += 1
        self.seconds += history.compile_seconds or 0.0
        return error


def _own(prepared: Prepared, algorithm: str) -> Settings:
    return replace(prepared.point.settings, rounds=prepared.planned[algorithm])


def _replay(
    earlier: Result, algorithm: str, prepared: Prepared, recorder: Recorder, history: History
) -> str | None:
    """Records a training's evaluations once more; why it diverged, if it did."""
    privacy = Privacy(prepared.experiment.ledger, algorithm)
    for evaluation in earlier.history.evaluations:
        history.evaluations.append(evaluation)
        recorder.evaluation(algorithm, evaluation, privacy)
    history.compile_seconds = 0.0
    return earlier.error
