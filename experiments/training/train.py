"""Trains a run's algorithms one after another, shows and records them, goes on where it was stopped."""

from __future__ import annotations

import contextlib
import math
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.base import signals
from experiments.base.command import one_line
from experiments.base.formats import label, short, width
from experiments.base.outside_errors import outside
from experiments.config import Experiment, Run
from experiments.runs.recorder import Privacy, Recorder
from experiments.runs.unfinished import CHECKPOINTS, fixed
from experiments.tables.run_picture import picture
from experiments.tables.terminal import table
from experiments.training.processes import Processes
from experiments.training.progress import Progress
from fedpriv.devices.layout import Strategy
from fedpriv.engine.checkpoint import Checkpoints, OtherRunError
from fedpriv.engine.history import DivergedError, Evaluation, History
from fedpriv.engine.simulate import simulate
from fedpriv.engine.training_loop import compiled


@dataclass(frozen=True)
class Job:
    """A run that is ready to be trained.

    Attributes:
      name: of the config.
      folder: of the run; only process 0 writes there.
      planned: rounds of each algorithm.
      recorder: None in a process that leaves recording to another.
      finished: what was trained before, where the run goes on.
    """

    name: str
    config: Run
    folder: Path
    strategy: Strategy
    experiment: Experiment
    planned: Mapping[str, int]
    joined: Processes
    recorder: Recorder | None
    finished: Mapping[str, History] = field(default_factory=dict)

    @property
    def goes_on(self) -> str:
        """What to say of a run that was stopped."""
        return f"python -m experiments.run --resume {shlex.quote(str(self.folder))} goes on"

    def checkpoints(self, algorithm: str) -> Path:
        return self.folder / CHECKPOINTS / algorithm


def train(job: Job) -> int:
    """Trains every algorithm that is not finished; returns the exit code."""
    histories: dict[str, History] = dict(job.finished)
    joined, recorder = job.joined, job.recorder
    status, code, done = "complete", 0, list[str]()
    try:
        with joined.stopping(job.goes_on):
            for algorithm in job.experiment.entries:
                if algorithm not in job.finished:
                    histories[algorithm] = History(tuple(range(job.config.seeds)))
                    _train_with_checkpoints(algorithm, job, histories[algorithm])
                done.append(algorithm)
                if recorder and recorder.retry():  # all of it is on the disk
                    for name in done:
                        shutil.rmtree(job.checkpoints(name), ignore_errors=True)
    except DivergedError as error:
        status, code = f"diverged: {algorithm}: {error}", 1
    except KeyboardInterrupt:
        status, code = "interrupted", 130
    except (
        OtherRunError
    ) as error:  # the data is another, say, at the same place or at another --data-dir
        status, code = f"failed: {error}", 2
    # By these, among others, JAX says that another process is gone; what it was must be seen all the same.
    except (ValueError, RuntimeError, OSError, MemoryError) as error:
        said = outside(error)
        if joined.count == 1 and not said:
            raise
        status, code = f"failed: {said}", 1
        if joined.count > 1:
            traceback.print_exception(error)
            joined.others_gone = True
            status = f"failed, perhaps because another process ended: {one_line(error)}"
    if recorder:
        with contextlib.suppress(OSError):  # others may still be in there
            (job.folder / CHECKPOINTS).rmdir()
        code = _finish(job, recorder, histories, status, code)
    if not joined.others_gone:
        with contextlib.suppress(KeyboardInterrupt, ConnectionError):  # the run is over
            joined.meet()  # the others wait while the first one writes
    return code


def _finish(
    job: Job, recorder: Recorder, histories: dict[str, History], status: str, code: int
) -> int:
    """Writes and shows what there is; returns the exit code: 1 where lines, models or the summary are not written."""
    problems, summary = [status] if code else [], None
    try:
        with signals.undisturbed():
            if not recorder.retry() and not code:  # so that --resume does not find it complete
                status = f"failed: {recorder.unrecorded()}"
            summary = recorder.summary(histories, job.experiment, dict(job.planned), status)
        if summary.rounds:
            _draw(histories, summary.metric, recorder.folder)
    except KeyboardInterrupt:
        problems, code = problems or ["interrupted"], code or 130
    if recorder.lost:
        problems, code = [*problems, recorder.unrecorded()], code or 1
    if summary and summary.rounds:
        print(table(summary, width(sys.stdout)))
    for line in _unseen(job, histories) if code else ():
        print(line, file=sys.stderr)
    if problems:
        said = "; ".join(problems)
        print(said if said == "interrupted" else f"error: {said}", file=sys.stderr)
    if problems and not status.startswith("diverged"):
        print(job.goes_on, file=sys.stderr)
    print(f"run folder: {recorder.folder}")
    return code


def _draw(histories: Mapping[str, History], metric: str, folder: Path) -> None:
    """The picture, which holds nothing that is not in the run's lines: a run without it is whole."""
    path = folder / f"{metric}.png"
    try:
        picture(histories, metric, path)
    except OSError as error:
        said = outside(error)
        print(f"warning: {path.name} cannot be written ({said})", file=sys.stderr)


def _unseen(job: Job, histories: Mapping[str, History]) -> Iterator[str]:
    """What may have been spent on an algorithm that was stopped before its first evaluation."""
    for name, history in histories.items():
        rounds = min(job.config.every, job.planned[name])
        number = job.experiment.ledger.certify(name, rounds, view=job.config.view)
        if not history.evaluations and math.isfinite(number.epsilon):
            yield (
                f"{label(name)} was stopped before its first evaluation: up to {rounds} rounds may have run, eps "
                f"{short(number.epsilon)}"
            )


def _train_with_checkpoints(algorithm: str, job: Job, history: History) -> None:
    config = replace(job.config, rounds=job.planned[algorithm])

    def warn(text: str) -> None:
        if job.recorder:
            print(f"warning: {text}", file=sys.stderr)

    checkpoints = Checkpoints(
        job.checkpoints(algorithm),
        job.config.checkpoint.rounds,
        job.config.checkpoint.minutes,
        {"config": job.name, "algorithm": algorithm, **fixed(job.config)},
        warn,
    )
    train_one(
        algorithm,
        job.experiment,
        config,
        job.strategy,
        job.recorder,
        history,
        joined=job.joined,
        checkpoints=checkpoints,
    )


def train_one(
    algorithm: str,
    experiment: Experiment,
    config: Run,
    strategy: Strategy,
    recorder: Recorder | None,
    history: History,
    joined: Processes | None = None,
    checkpoints: Checkpoints | None = None,
    **options: Any,
) -> None:
    """Trains one algorithm; what it has recorded is in `history` however it ends.

    Args:
      recorder: None in a process that leaves recording to another.
      joined: the processes that train together, if there are several.
      checkpoints: where they are kept, if they are.
      options: of `simulate`.
    """
    privacy = Privacy(experiment.ledger, algorithm)
    stopping = experiment.stopping(config)
    progress = None
    if recorder:
        progress = Progress(
            algorithm,
            config.rounds,
            privacy.certificate(config.rounds, config.view),
            privacy.claim(config.rounds),
            experiment.entries[algorithm].solved,
            config.metric,
            len(experiment.entries) - 1 - list(experiment.entries).index(algorithm),
        )
        options["compiler"] = progress.timed(options.get("compiler", compiled))

    def show(e: Evaluation) -> None:
        if progress:
            progress.update(e, privacy.certificate(e.round, config.view))

    def on_evaluation(e: Evaluation) -> bool:
        history.evaluations.append(e)
        if recorder:
            recorder.evaluation(algorithm, e, privacy)
        show(e)
        if stopping and stopping.why(history.evaluations):  # alike in all processes
            return True
        if joined:
            joined.meet()
        return False

    def on_resume(evaluations: Sequence[Evaluation]) -> None:
        history.evaluations.extend(evaluations)
        if recorder:
            recorder.restore(algorithm, evaluations, privacy)
        if progress and len(evaluations) > 1:
            progress.done = evaluations[-2].round
        show(evaluations[-1])

    options |= {"on_evaluation": on_evaluation}
    if checkpoints:
        options["checkpoints"] = replace(checkpoints, on_resume=on_resume)
    try:
        done = simulated(algorithm, experiment, config, strategy, **options)
        history.compile_seconds = done.compile_seconds
        if recorder and config.keep_model:
            recorder.models(algorithm, experiment.model, done)
    except DivergedError as error:
        history.compile_seconds = error.history.compile_seconds
        raise
    finally:
        if progress:
            progress.close()


def simulated(
    algorithm: str, experiment: Experiment, config: Run, strategy: Strategy, **options: Any
) -> History:
    """`simulate` with the experiment's and the config's settings, and further ones, also other seeds."""
    entry = experiment.entries[algorithm]
    options = {"seeds": range(config.seeds)} | options
    return simulate(
        entry.algorithm,
        experiment.model.init,
        entry.federations,
        experiment.test,
        score=experiment.model.score,
        rounds=config.rounds,
        every=config.every,
        strategy=strategy,
        measure=experiment.measured(config),
        **options,
    )
