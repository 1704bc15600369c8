"""The algorithms of a run, trained one after another, recorded, going on where they were stopped."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedpriv.devices.fitting import compiled
from fedpriv.devices.layout import Strategy
from fedpriv.engine.checkpoint import Checkpoints, OtherRunError
from fedpriv.engine.history import DivergedError, Evaluation, History, PublicEvaluation
from fedpriv.engine.rising_loss_warning import RisingLossWarning
from fedpriv.engine.simulate import simulate
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.command import one_line
from fedpriv.experiments.base.formats import short_name_of
from fedpriv.experiments.base.outside_errors import outside
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.public import LAST
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.runs.recorder import Privacy, Recorder
from fedpriv.experiments.runs.run_folder import CHECKPOINTS
from fedpriv.experiments.runs.unfinished import decisive_settings
from fedpriv.experiments.tables.run_picture import picture
from fedpriv.experiments.training.prepare import PreparedRun
from fedpriv.experiments.training.processes import Processes
from fedpriv.experiments.training.progress import RecordedProgress
from fedpriv.experiments.training.trained_run import TrainedRun
from fedpriv.privacy.epsilon_words import short_epsilon


def train_algorithms(run: PreparedRun) -> TrainedRun:
    """Trains every algorithm that is not finished; how it ended is the run's status.

    Raises:
      Exception: a bug, where one process trains alone.
    """
    seeds = tuple(range(run.settings.seeds))
    histories = {name: History(seeds, list(found)) for name, found in run.recorded.items()}
    histories |= run.finished
    joined, recorder = run.joined, run.recorder
    status, done = "complete", list[str]()
    ended_by: Exception | None = None
    try:
        with joined.stopping(run.goes_on):
            for algorithm in run.experiment.entries:
                if algorithm not in run.finished:
                    histories.setdefault(algorithm, History(seeds))
                    train_algorithm(
                        algorithm,
                        run.experiment,
                        replace(run.settings, rounds=run.planned[algorithm]),
                        run.strategy,
                        recorder,
                        histories[algorithm],
                        joined=joined,
                        checkpoints=_checkpoints(algorithm, run),
                        progress=run.progress,
                        secret_seed=run.secret_seed,
                    )
                done.append(algorithm)
                if recorder and recorder.retry():  # all of it is on the disk
                    for name in done:
                        shutil.rmtree(run.checkpoints(name), ignore_errors=True)
    except DivergedError as error:
        status, ended_by = f"diverged: {algorithm}: {error}", error
    except KeyboardInterrupt:
        status = "interrupted"
    except OtherRunError as error:  # the data is another, say, at the same place
        status, ended_by = f"failed: {error}; what was recorded stays as it was", error
    except RisingLossWarning as error:
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
    ended = TrainedRun(run.folder, status, histories, error=ended_by)
    if recorder:
        with contextlib.suppress(OSError):  # others may still be in there
            (run.folder / CHECKPOINTS).rmdir()
        ended = _recorded(ended, run, recorder)
    if not joined.others_gone:
        with contextlib.suppress(KeyboardInterrupt, ConnectionError):  # the run is over
            joined.meet()  # the others wait while the first one writes
    return ended


def _recorded(ended: TrainedRun, run: PreparedRun, recorder: Recorder) -> TrainedRun:
    """Writes what there is: lines, models, the summary and the picture."""
    status, histories = ended.status, dict(ended.history)
    summary, problems = None, tuple[str, ...]()
    try:
        with signals.undisturbed():
            if (
                not recorder.retry() and status == "complete"
            ):  # so that --resume does not find it complete
                status = f"failed: {recorder.unrecorded()}"
            summary = recorder.write_summary(histories, run.experiment, dict(run.planned), status)
        for name, report in summary.privacy.items():  # of rounds, too, that may have run since
            histories[name].certificate = report.certified[run.settings.view]
        if summary.rounds:
            draw(histories, summary, recorder.folder)
    except KeyboardInterrupt:
        status = "interrupted" if status == "complete" else status
    if recorder.lost and ended.status != "complete":
        problems = (recorder.unrecorded(),)
    elif recorder.lost:
        status = f"failed: {recorder.unrecorded()}"
    unseen = tuple(_unseen(run, histories)) if status != "complete" else ()
    return replace(ended, status=status, summary=summary, problems=problems, unseen=unseen)


def draw(histories: Mapping[str, History], summary: Summary, folder: Path) -> None:
    """Draws a run's picture, which holds nothing that is not in the run's lines: a run without it is whole."""
    path = folder / f"{summary.public.marked(summary.metric)}.png"
    try:
        picture(histories, summary.metric, path, summary.public, summary.names)
    except OSError as error:
        said = outside(error)
        say(f"warning: {path.name} cannot be written ({said})", file=sys.stderr)


def _unseen(run: PreparedRun, histories: Mapping[str, History]) -> Iterator[str]:
    """What may have been spent on an algorithm that was stopped before its first evaluation."""
    for name, history in histories.items():
        rounds = min(run.settings.every, run.planned[name])
        number = run.experiment.ledger.certify(name, rounds, view=run.settings.view)
        if not history.evaluations and math.isfinite(number.epsilon):
            yield (
                f"{short_name_of(name, run.experiment.names)} was stopped before its first evaluation: up to "
                f"{rounds} rounds may have run, eps {short_epsilon(number.epsilon)}"
            )


def _checkpoints(algorithm: str, run: PreparedRun) -> Checkpoints:
    """Where and how often those of the algorithm are taken."""

    def warn(text: str) -> None:
        if run.recorder:
            say(f"warning: {text}", file=sys.stderr)

    return Checkpoints(
        run.checkpoints(algorithm),
        run.settings.checkpoint.rounds,
        run.settings.checkpoint.minutes,
        {"config": run.name, "algorithm": algorithm, **decisive_settings(run.settings)},
        warn,
    )


def train_algorithm(
    algorithm: str,
    experiment: Experiment,
    settings: Settings,
    strategy: Strategy,
    recorder: Recorder | None,
    history: History,
    joined: Processes | None = None,
    checkpoints: Checkpoints | None = None,
    progress: bool = True,
    epsilon_of: str = "",
    **options: Any,
) -> None:
    """Trains one algorithm; what it has recorded is in `history` however it ends.

    Args:
      history: of an earlier process, until this one has gone on, or begun anew.
      recorder: None in a process that leaves recording to another.
      joined: the processes that train together, if there are several.
      checkpoints: where they are kept, if they are.
      progress: whether to show it.
      epsilon_of: what the epsilons shown are of, see `RecordedProgress`.
      options: of `simulate`.

    Raises:
      RisingLossWarning: where warnings are errors; all is recorded.
    """
    privacy = Privacy(experiment.ledger, algorithm)
    stopping = experiment.stopping(settings)
    further = tuple(stopping.beyond(experiment.metrics)) if stopping else ()
    history.not_covered = tuple(experiment.not_covered.get(LAST, ()))
    bar = None
    if recorder and progress:
        bar = RecordedProgress(
            algorithm,
            settings.rounds,
            privacy.certificate(settings.rounds, settings.view),
            privacy.claim(settings.rounds),
            experiment.entries[algorithm].solved,
            settings.metric,
            len(experiment.entries) - 1 - list(experiment.entries).index(algorithm),
            experiment.entries[algorithm].name,
            experiment.public,
            epsilon_of,
        )
        options["compiler"] = bar.timed(options.get("compiler", compiled))

    def show(e: Evaluation) -> None:
        if bar:
            so_far = e.round, settings.view
            bar.update(e, privacy.certificate(*so_far), privacy.groups(*so_far))

    going = False

    def add(evaluations: Sequence[Evaluation]) -> None:
        nonlocal going
        if not going:
            going = True
            history.evaluations.clear()
        history.evaluations.extend(evaluations)

    def record(e: Evaluation) -> None:
        add([e])
        if recorder:
            recorder.evaluation(algorithm, e, privacy)
        show(e)

    seen: list[PublicEvaluation] = []

    def on_evaluation(e: PublicEvaluation) -> bool:
        seen.append(e)
        if stopping and stopping.why(seen):  # alike in all processes
            return True
        if joined:
            joined.meet()
        return False

    def on_resume(evaluations: Sequence[Evaluation]) -> None:
        add(evaluations)
        seen.extend(e.public(further) for e in evaluations)
        if recorder:
            recorder.restore(algorithm, evaluations, privacy)
        if bar and len(evaluations) > 1:
            bar.done = evaluations[-2].round
        show(evaluations[-1])

    options |= {"record": record, "on_evaluation": on_evaluation, "not_covered": further}
    options["programs"] = experiment.ledger.trace(algorithm).digests
    if checkpoints:
        options["checkpoints"] = replace(checkpoints, on_resume=on_resume)
    try:
        rose = None
        try:
            done = simulate_algorithm(algorithm, experiment, settings, strategy, **options)
        except RisingLossWarning as error:
            done, rose = error.history, error
        history.compile_seconds = done.compile_seconds
        if recorder and settings.keep_model:
            recorder.models(algorithm, experiment.model, done)
        if rose:
            raise rose
    except DivergedError as error:
        history.compile_seconds = error.history.compile_seconds
        raise
    finally:
        if bar:
            bar.close()


def simulate_algorithm(
    algorithm: str, experiment: Experiment, settings: Settings, strategy: Strategy, **options: Any
) -> History:
    """`simulate` with an experiment's and a run's settings, and further ones, also other seeds; shows nothing."""
    entry = experiment.entries[algorithm]
    options = {"seeds": range(settings.seeds)} | options
    return simulate(
        entry.algorithm,
        experiment.model.init,
        entry.federations,
        experiment.test_of(algorithm),
        score=experiment.model.score,
        rounds=settings.rounds,
        every=settings.every,
        strategy=strategy,
        measure=experiment.measured(settings, algorithm),
        progress=False,
        **options,
    )
