"""Trains the points of a sweep: compiled once where they differ in numbers alone, trained once where in nothing."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import jax

from experiments.config import Experiment, Run
from experiments.program_numbers import as_bytes
from experiments.record import Recorder
from experiments.shared_jit import Program, SharedJit
from experiments.sweep_grid import Point, cleared
from experiments.training import simulated, train_one
from fedpriv.devices.compilation import compiling_with
from fedpriv.devices.layout import Strategy
from fedpriv.devices.memory import fitted, trial_layout
from fedpriv.engine.history import DivergedError, Evaluation, History

Simulation = Callable[..., History]


class Prepared(NamedTuple):
    """A point that is checked and ready to train; `planned` are the rounds of each algorithm."""

    point: Point
    strategy: Strategy
    experiment: Experiment
    planned: dict[str, int]


class Known(NamedTuple):
    """What is known of a training before it.

    Attributes:
      strategy: the point's, with the number of clients that fit side by side.
      program: under this strategy.
      key: equal for trainings with the same result.
    """

    strategy: Strategy
    program: Program
    key: tuple


class Result(NamedTuple):
    """How a training ended, and in which point."""

    point: Point
    history: History
    error: str | None


class _TracedError(Exception):
    """Leaves `simulate` once its program is traced."""

    def __init__(self, program: Program, args: tuple):
        super().__init__()
        self.program, self.arguments = program, args


class Sweep:
    """What the points of a sweep have in common.

    Attributes:
      shared: the programs; its counts are of this process.
      trained, reused: trainings that were run, and those whose result was taken from another point.
    """

    def __init__(self, name: str, folder: Path):
        self.shared = SharedJit()
        self.trained = self.reused = 0
        self._name, self._folder = name, folder
        self._known: dict[tuple[str, str], Known] = {}
        self._widths: dict[int, Literal["map", "vmap", "fit"] | int] = {}
        self._results: dict[tuple, Result] = {}

    def announce(self, prepared: Prepared) -> None:
        """Traces the point's programs, so that compiling the first of a kind serves this one, too."""
        for algorithm in prepared.experiment.entries:
            strategy = self._fitted(algorithm, prepared)
            program, args = self._traced(algorithm, prepared, strategy)
            digest = hashlib.sha256()
            for leaf in jax.tree.leaves(args):
                digest.update(as_bytes(leaf))
            config = prepared.point.config
            key = (program.identity, digest.digest(), config.rounds, config.every)
            self._known[prepared.point.name, algorithm] = Known(strategy, program, key)

    def _fitted(self, algorithm: str, prepared: Prepared) -> Strategy:
        """The point's strategy, its width found once for programs that differ in numbers alone.

        Left to `simulate`, every point would compile a trial, and as free memory changes, might get a width of its own.
        """
        if prepared.strategy.clients != "fit":
            return prepared.strategy
        trial, _ = self._traced(algorithm, prepared, trial_layout(prepared.strategy))
        if trial.family not in self._widths:
            self._widths[trial.family] = fitted(prepared.strategy, trial.executable).clients
        return replace(prepared.strategy, clients=self._widths[trial.family])

    def _traced(
        self, algorithm: str, prepared: Prepared, strategy: Strategy
    ) -> tuple[Program, tuple]:
        """The training's program, and its arguments."""

        def tracing(fn: Callable[..., Any], args: tuple, donated: Sequence[int]) -> NoReturn:
            raise _TracedError(self.shared.trace(fn, args, donated), args)

        config = _own(prepared, algorithm)
        try:
            with compiling_with(tracing):
                simulated(algorithm, prepared.experiment, config, strategy)
        except _TracedError as traced:
            return traced.program, traced.arguments
        raise AssertionError(f"{algorithm}: trained without being compiled")

    def train(self, prepared: Prepared) -> str:
        """Trains all algorithms of an announced point into its run folder; returns the run's status.

        One that diverges does not keep the others from being trained.
        """
        point, experiment = prepared.point, prepared.experiment
        folder = cleared(self._folder / point.name)
        recorder = Recorder(folder, self._name, replace(point.config, output=folder))
        histories: dict[str, History] = {}
        remarks: dict[str, dict[str, str]] = {"reused_from": {}, "diverged": {}}
        status = "complete"
        try:
            for algorithm in experiment.entries:
                histories[algorithm] = History(tuple(range(point.config.seeds)))
                self._train_one(algorithm, prepared, recorder, histories[algorithm], remarks)
        except KeyboardInterrupt:
            status = "interrupted"
        if status == "complete" and remarks["diverged"]:
            said = (f"{name}: {error}" for name, error in remarks["diverged"].items())
            status = f"diverged: {'; '.join(said)}"
        recorder.summary(histories, experiment, prepared.planned, status, remarks)
        return status

    def _train_one(
        self,
        algorithm: str,
        prepared: Prepared,
        recorder: Recorder,
        history: History,
        remarks: dict[str, dict[str, str]],
    ) -> None:
        known = self._known.pop((prepared.point.name, algorithm))
        earlier = self._results.get(known.key)
        simulation: Simulation = partial(_compiled, known.program)
        if earlier:
            remarks["reused_from"][algorithm] = earlier.point.name
            simulation = partial(_replayed, earlier)
            print(
                f"{algorithm}: the same program, numbers and data as at {earlier.point.title}; its result is taken",
                file=sys.stderr,
            )
        config, error = _own(prepared, algorithm), None
        try:
            train_one(
                algorithm,
                prepared.experiment,
                config,
                known.strategy,
                recorder,
                history,
                simulation,
            )
        except DivergedError as diverged:
            error = remarks["diverged"][algorithm] = str(diverged)
        self._results.setdefault(known.key, Result(prepared.point, history, error))
        self.reused += earlier is not None
        self.trained += earlier is None


def _own(prepared: Prepared, algorithm: str) -> Run:
    return replace(prepared.point.config, rounds=prepared.planned[algorithm])


def _compiled(program: Program, *args: Any) -> History:
    """`simulated` with the program that was traced for it."""
    with compiling_with(lambda *_: program.compile()):
        return simulated(*args)


def _replayed(
    result: Result,
    algorithm: str,
    experiment: Experiment,
    config: Run,
    strategy: Strategy,
    on_evaluation: Callable[[Evaluation], object],
) -> History:
    """A training's evaluations once more, or its end; in place of `simulated`."""
    for evaluation in result.history.evaluations:
        on_evaluation(evaluation)
    again = History(result.history.seeds, compile_seconds=0.0)
    if result.error:
        raise DivergedError(result.error, again)
    return again


class Interned:
    """Keeps arrays that are the same once, so that a grid's experiments share their data on the device."""

    def __init__(self) -> None:
        self._arrays: dict[bytes, Any] = {}

    def experiment(self, experiment: Experiment) -> Experiment:
        entries = {
            name: entry._replace(federations=[self._tree(f) for f in entry.federations])
            for name, entry in experiment.entries.items()
        }
        return replace(experiment, entries=entries, test=self._tree(experiment.test))

    def _tree(self, tree: Any) -> Any:
        return jax.tree.map(self._one, tree)

    def _one(self, array: Any) -> Any:
        digest = hashlib.sha256(type(array).__name__.encode() + as_bytes(array)).digest()
        return self._arrays.setdefault(digest, array)
