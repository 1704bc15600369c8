"""Training into a run folder, from Python: `run` begins one, `resume` goes on with one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fedpriv.core.arguments import check_path
from fedpriv.devices.layout import split_cpu
from fedpriv.engine.history import History
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.command import checked
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs.other_metric import show
from fedpriv.experiments.runs.run_folder import CONFIG, read, read_begun
from fedpriv.experiments.runs.sinks import Sink
from fedpriv.experiments.runs.unfinished import Earlier, earlier, going_on, how_ended
from fedpriv.experiments.training.prepare import Request, prepare
from fedpriv.experiments.training.processes import Processes
from fedpriv.experiments.training.train_algorithms import draw, train_algorithms
from fedpriv.experiments.training.trained_run import TrainedRun, TrainingError


def run(
    config: str | Path | Config = "quickstart",
    *,
    folder: str | Path | None = None,
    secret_seed: bool = False,
    progress: bool = True,
    sinks: Sequence[Sink] = (),
    **settings: Any,
) -> TrainedRun:
    """Trains a config's algorithms into a run folder.

    Args:
      config: a name in configs/, the path of a file, a module, or an object (`experiments.config.modules.Config`).
      folder: a new folder for the run; by default runs/CONFIG-DATE-TIME.
      secret_seed: whether to draw the seed of everything random from the system's entropy. It is kept in the run
        folder, in `secret_seed`, for its owner's eyes; `resume` goes on with it.
      progress: whether to show progress, on standard error or as a bar in a notebook.
      sinks: also get the lines of metrics.jsonl.
      settings: fields of the config; nested ones as mappings, such as `local={"epochs": 2}`.

    Returns:
      What was trained; after Ctrl-C, what was trained until then, with the status "interrupted".

    Raises:
      ValueError: an argument is wrong; nothing was trained.
      TrainingError: a model diverged, or something outside failed; its `run` is what was trained.
    """
    if not isinstance(secret_seed, bool):  # what was given may be a secret
        raise ValueError("secret_seed: neither True nor False; give True to have one drawn")

    def request() -> Request:
        name, module = modules.named(config)
        given = settings if folder is None else {**settings, "output": str(folder)}
        return Request(name, module, changed(module.settings, given), secret_seed=secret_seed)

    return _train_or_raise(request, sinks, progress)


def resume(
    folder: str | Path,
    *,
    config: str | Path | Config | None = None,
    progress: bool = True,
    sinks: Sequence[Sink] = (),
    **settings: Any,
) -> TrainedRun:
    """Continues a stopped run to the end that it would have had; reads one that has ended.

    One that has ended shows another `metric` where one is given; nothing is trained again.

    Args:
      folder: of the run.
      config: the object that it was begun with, if that was neither a name nor a file.
      settings: fields that do not change results, such as `checkpoint` or the `metric` that is shown; others must be as
        before.

    Returns, Raises: as `run`.
    """
    check_path("folder", folder, "give the folder of a run")

    def request() -> Request:
        own = None if config is None else modules.named(config)[1]
        found, module = earlier(Path(folder), own)
        settled = going_on(found, found.name, changed(found.settings, settings))
        return Request(found.name, module, settled, found)

    return _train_or_raise(request, sinks, progress)


def train_or_resume(config: str | Path | Config, folder: Path, **settings: Any) -> TrainedRun:
    """`run` into the folder, or `resume` where a run was begun there with the same settings."""
    if not (folder / CONFIG).exists():
        return run(config, folder=folder, **settings)
    name, _ = modules.named(config)
    if (found := read_begun(folder).config) != name:
        raise ValueError(f"{folder}: holds a run of {found}, not of {name}; choose another folder")
    return resume(folder, **settings)


def _train_or_raise(
    request: Callable[[], Request], sinks: Sequence[Sink], progress: bool
) -> TrainedRun:
    """`prepare_and_train` in this process; raises TrainingError where the run did not come to its end."""
    split_cpu()  # before a config's own devices, so that the next one may have others
    joined = Processes()
    ended = prepare_and_train(request, joined, sinks, progress)
    if joined.terminated:  # all is recorded; what ends a batch job ends it
        signal.raise_signal(signal.SIGTERM)
    if ended.status in ("complete", "interrupted"):
        return ended
    said = "; ".join([ended.status, *ended.problems, f"run folder: {ended.folder}"])
    raise TrainingError(ended, said) from ended.error


def prepare_and_train(
    request: Callable[[], Request],
    joined: Processes,
    sinks: Sequence[Sink] = (),
    progress: bool = True,
) -> TrainedRun:
    """Prepares the run that is requested and trains it; how it ended is the run's status.

    Args:
      request: says what; what it finds wrong is wrong in all processes.

    Raises:
      ValueError: something that was given is wrong.
      ConnectionError: another process is gone.
    """
    with ExitStack() as until_end:
        with joined.agreed():
            requested = request()
        if requested.earlier and (status := how_ended(requested.earlier.folder)):
            return _ended_before(requested.earlier, status, requested.settings.metric, joined.first)
        prepared = prepare(requested, joined, sinks, until_end, progress)
        with checked(), signals.unheard():
            return train_algorithms(prepared)


def _ended_before(before: Earlier, status: str, metric: str | None, writes: bool) -> TrainedRun:
    """A run that has come to its end before; shows another metric where one is asked for.

    Raises:
      ValueError: that is not recorded.
    """
    seeds = tuple(range(before.settings.seeds))
    history = {name: History(seeds, each) for name, each in before.evaluations.items()}
    summary = None
    if writes and metric != before.settings.metric:
        summary = show(before.folder, metric)
        draw(history, summary, before.folder)
    with suppress(ValueError):  # of another version
        summary = summary or read(before.folder).summary
    return TrainedRun(before.folder, status, history, summary, ended_before=True)
