"""A run that is ready, and its training: the algorithms one after another, recorded, going on where it was stopped."""

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
from experiments.base.formats import label, short
from experiments.base.outside_errors import outside
from experiments.config import Experiment, Run
from experiments.runs.contents import Summary
from experiments.runs.recorder import Privacy, Recorder
from experiments.runs.unfinished import CHECKPOINTS, fixed
from experiments.tables.run_picture import picture
from experiments.training.processes import Processes
from experiments.training.progress import Progress
from fedpriv.devices.layout import Strategy
from fedpriv.engine.checkpoint import Checkpoints, OtherRunError
from fedpriv.engine.history import DivergedError, Evaluation, History
from fedpriv.engine.simulate import simulate
from fedpriv.engine.training_loop import compiled
from fedpriv.privacy import Certificate


@dataclass(frozen=True)
class Job:
    """A run that is ready to be trained.

    Attributes:
      name: of the config.
      folder: of the run; only process 0 writes there.
      planned: rounds of each algorithm.
      recorder: None in a process that leaves recording to another.
      finished: what was trained before, where the run goes on.
      progress: whether to show it.
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
    progress: bool = True

    @property
    def goes_on(self) -> str:
        return goes_on(self.folder)

    def checkpoints(self, algorithm: str) -> Path:
        return self.folder / CHECKPOINTS / algorithm


@dataclass(frozen=True)
class TrainedRun:
    """What a training has come to.

    Attributes:
      folder: of the run.
      status: "complete", "interrupted", "diverged: ..." or "failed: ...".
      history: of each algorithm that was trained, if only a part of its rounds.
      summary: summary.json; None before the first evaluation, and in a process that leaves recording to another.
      problems: what else went wrong, in a line each, such as what could not be written.
      unseen: a line for each algorithm that was stopped before its first evaluation: what it may have cost.
      error: that ended it, if one did.
      ended_before: whether it had come to its end earlier, so that nothing was trained.
    """

    folder: Path
    status: str
    history: Mapping[str, History]
    summary: Summary | None = None
    problems: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    error: BaseException | None = None
    ended_before: bool = False

    @property
    def certificates(self) -> dict[str, dict[str, Certificate]]:
        """By algorithm and view, of the rounds that were trained."""
        found = self.summary.privacy if self.summary else {}
        return {name: dict(report.certified) for name, report in found.items()}

    @property
    def goes_on(self) -> str:
        """The command that goes on with it."""
        return goes_on(self.folder)


def goes_on(folder: Path) -> str:
    """What to say of a run that was stopped."""
    return f"python -m experiments.run --resume {shlex.quote(str(folder))} goes on"


class TrainingError(RuntimeError):
    """A training that did not come to its end; `run` is what there is of it."""

    def __init__(self, run: TrainedRun, text: str):
        super().__init__(text)
        self.run = run


def train_all(job: Job) -> TrainedRun:
    """Trains every algorithm that is not finished; how it ended is the run's status.

    Raises:
      Exception: a bug, where one process trains alone.
    """
    histories: dict[str, History] = dict(job.finished)
    joined, recorder = job.joined, job.recorder
    status, ended_by, done = "complete", None, list[str]()
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
        status, ended_by = f"diverged: {algorithm}: {error}", error
    except KeyboardInterrupt:
        status = "interrupted"
    except OtherRunError as error:  # the data is another, say, at the same place
        status, ended_by = f"failed: {error}", error
    # By these, among others, JAX says that another process is gone; what it was must be seen all the same.
    except (ValueError, RuntimeError, OSError, MemoryError) as error:
        said, ended_by = outside(error), error
        if joined.count == 1 and not said:
            raise
        status = f"failed: {said}"
        if joined.count > 1:
            traceback.print_exception(error)
            joined.others_gone = True
            status = f"failed, perhaps because another process ended: {one_line(error)}"
    ended = TrainedRun(job.folder, status, histories, error=ended_by)
    if recorder:
        with contextlib.suppress(OSError):  # others may still be in there
            (job.folder / CHECKPOINTS).rmdir()
        ended = _recorded(ended, job, recorder)
    if not joined.others_gone:
        with contextlib.suppress(KeyboardInterrupt, ConnectionError):  # the run is over
            joined.meet()  # the others wait while the first one writes
    return ended


def _recorded(ended: TrainedRun, job: Job, recorder: Recorder) -> TrainedRun:
    """Writes what there is: lines, models, the summary and the picture."""
    status, histories = ended.status, dict(ended.history)
    summary, problems = None, tuple[str, ...]()
    try:
        with signals.undisturbed():
            if (
                not recorder.retry() and status == "complete"
            ):  # so that --resume does not find it complete
                status = f"failed: {recorder.unrecorded()}"
            summary = recorder.summary(histories, job.experiment, dict(job.planned), status)
        if summary.rounds:
            _draw(histories, summary.metric, recorder.folder, summary.names)
    except KeyboardInterrupt:
        status = "interrupted" if status == "complete" else status
    if recorder.lost and ended.status != "complete":
        problems = (recorder.unrecorded(),)
    elif recorder.lost:
        status = f"failed: {recorder.unrecorded()}"
    unseen = tuple(_unseen(job, histories)) if status != "complete" else ()
    return replace(ended, status=status, summary=summary, problems=problems, unseen=unseen)


def _draw(
    histories: Mapping[str, History], metric: str, folder: Path, names: Mapping[str, str]
) -> None:
    """The picture, which holds nothing that is not in the run's lines: a run without it is whole."""
    path = folder / f"{metric}.png"
    try:
        picture(histories, metric, path, names)
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
                f"{label(name, job.experiment.names)} was stopped before its first evaluation: up to {rounds} rounds "
                f"may have run, eps {short(number.epsilon)}"
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
        progress=job.progress,
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
    progress: bool = True,
    **options: Any,
) -> None:
    """Trains one algorithm; what it has recorded is in `history` however it ends.

    Args:
      recorder: None in a process that leaves recording to another.
      joined: the processes that train together, if there are several.
      checkpoints: where they are kept, if they are.
      progress: whether to show it.
      options: of `simulate`.
    """
    privacy = Privacy(experiment.ledger, algorithm)
    stopping = experiment.stopping(config)
    bar = None
    if recorder and progress:
        bar = Progress(
            algorithm,
            config.rounds,
            privacy.certificate(config.rounds, config.view),
            privacy.claim(config.rounds),
            experiment.entries[algorithm].solved,
            config.metric,
            len(experiment.entries) - 1 - list(experiment.entries).index(algorithm),
            experiment.entries[algorithm].name,
        )
        options["compiler"] = bar.timed(options.get("compiler", compiled))

    def show(e: Evaluation) -> None:
        if bar:
            bar.update(e, privacy.certificate(e.round, config.view))

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
        if bar and len(evaluations) > 1:
            bar.done = evaluations[-2].round
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
        if bar:
            bar.close()


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
