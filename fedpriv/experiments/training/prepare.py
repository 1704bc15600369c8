"""A run before it trains: whatever can go wrong because of what was given does so here."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpriv import distributed
from fedpriv.core.json_values import plain
from fedpriv.devices.layout import Strategy, split_cpu
from fedpriv.engine.history import Evaluation, History
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.accounting.found import Found, recorded_noise
from fedpriv.experiments.base import user_modules
from fedpriv.experiments.base.provenance import environment
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.base.writer import held
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.made import experiment_of, strategy_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.runs import secret_seed, unfinished
from fedpriv.experiments.runs.recorder import Recorder, described, new_folder
from fedpriv.experiments.runs.run_folder import CHECKPOINTS
from fedpriv.experiments.runs.sinks import Sink, check_installed, guarded, opened, told
from fedpriv.experiments.runs.statistics import STATISTICS, read_statistics, write_statistics
from fedpriv.experiments.runs.unfinished import Earlier
from fedpriv.experiments.training import statistics
from fedpriv.experiments.training.processes import Processes
from fedpriv.experiments.training.shared_arrays import SharedArrays
from fedpriv.experiments.training.trained_run import goes_on
from fedpriv.models.kept_model import model_folder
from fedpriv.privacy.epsilon_words import short_epsilon


class Request(NamedTuple):
    """What is to be trained, before it is prepared.

    Attributes:
      name: of the config.
      config: what makes its experiment.
      settings: of the run.
      earlier: the run that goes on, if one does.
      secret_seed: whether a new run draws a secret seed.
    """

    name: str
    config: Config
    settings: Settings
    earlier: Earlier | None = None
    secret_seed: bool = False


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to be trained.

    Attributes:
      name: of the config.
      folder: of the run; only process 0 writes there.
      planned: rounds of each algorithm.
      recorder: None in a process that leaves recording to another.
      finished: what was trained before, where the run goes on.
      recorded: all evaluations of before, by algorithm.
      progress: whether to show it.
      secret_seed: of `simulate`; None where seeds are 0, 1, ...
    """

    name: str
    settings: Settings
    folder: Path
    strategy: Strategy
    experiment: Experiment
    planned: Mapping[str, int]
    joined: Processes
    recorder: Recorder | None
    finished: Mapping[str, History] = field(default_factory=dict)
    recorded: Mapping[str, Sequence[Evaluation]] = field(default_factory=dict)
    progress: bool = True
    secret_seed: int | None = field(default=None, repr=False)

    @property
    def goes_on(self) -> str:
        return goes_on(self.folder)

    def checkpoints(self, algorithm: str) -> Path:
        return self.folder / CHECKPOINTS / algorithm


def prepare(
    request: Request,
    joined: Processes,
    sinks: Sequence[Sink],
    until_end: ExitStack,
    progress: bool = True,
) -> PreparedRun:
    """Prepares a run: checked in all processes, with its folder.

    Args:
      until_end: keeps others from the folder.

    Raises:
      ValueError: something that was given is wrong.
    """
    name, config, settings, earlier, new_secret = request
    has_secret = earlier.secret_seed if earlier else new_secret
    warning, finished = None, {}
    with joined.agreed():
        if joined.first:
            check_installed(settings.record)
        if joined.first and earlier and has_secret:
            secret_seed.read(earlier.folder)  # before anything is written
        split_cpu(settings.layout.devices)
        strategy = strategy_of(settings.layout)
        noise = recorded_noise(earlier) if earlier else _solved(config, settings, joined, progress)
        experiment = built(config, settings, noise, SharedArrays(), has_secret)
        planned = budget.planned_rounds(experiment.ledger, settings)
        here = environment(strategy) | {"code": user_modules.digests(config)}
        about: dict[str, Any] = {"id": uuid.uuid4().hex, "environment": here, "resumed": []}
        about |= described(experiment, noise, planned)
        about |= {"secret_seed": True} if has_secret else {}
        if earlier:
            unfinished.check_cost(earlier, partial(experiment.ledger.certify, view="third_party"))
            finished = earlier.finished(planned, settings.keep_model, experiment.stopping(settings))
            going, warning = unfinished.resumed(earlier, here, finished)
            about = described(experiment, noise, planned) | going
    if joined.count > 1:
        same = replace(settings, output=None, data_dir=None)
        going_on = [str(earlier is not None), str(has_secret), *finished]
        distributed.check_equal(settings=plain(same), rounds=planned, noise=noise, resumed=going_on)
    recorder, secret = None, 0
    with joined.agreed():
        if joined.first:
            recorder = _recorder(name, settings, earlier, about, sinks, until_end)
            secret = secret_seed.read(recorder.folder) if has_secret else 0
            user_modules.keep(config, recorder.folder / _code(earlier, here))
            if earlier:
                recorder.go_on(earlier.lines, earlier.clients, finished)
            if warning:
                say(f"warning: {warning}", file=sys.stderr)
    made = _of_first(os.fsencode(recorder.folder if recorder else ""), joined)
    # A folder that is given may have another path for each process.
    where = recorder.folder if recorder else settings.output or Path(os.fsdecode(made))
    secrets = _of_first(secret.to_bytes(8), joined) if has_secret else None
    root = None if secrets is None else int.from_bytes(secrets)
    if settings.statistics is not None:
        with joined.agreed():
            experiment = _on_normalised(experiment, settings, earlier, root, recorder, progress)
    return PreparedRun(
        name,
        settings,
        where,
        strategy,
        experiment,
        planned,
        joined,
        recorder,
        finished,
        earlier.evaluations if earlier else {},
        progress,
        secret_seed=root,
    )


def _on_normalised(
    experiment: Experiment,
    settings: Settings,
    found: Earlier | None,
    root: int | None,
    recorder: Recorder | None,
    progress: bool,
) -> Experiment:
    """On features normalised by statistics, which are released and written before anything trains."""
    known = read_statistics(found.folder) if found else {}
    experiment, released = statistics.on_normalised(experiment, settings, known, root)
    if recorder and released != known:
        write_statistics(recorder.folder, released)
        if progress:
            costs = dict.fromkeys(short_epsilon(of.certified.epsilon) for of in released.values())
            worst = max(of.relative_error for of in released.values())
            say(
                f"released mean and variance of the features: eps {', '.join(costs)} of {settings.target_epsilon:g}, "
                f"standard errors of means up to {100 * worst:.2g} % of the range; {recorder.folder / STATISTICS}",
                file=sys.stderr,
            )
    return experiment


def _of_first(own: bytes, joined: Processes) -> bytes:
    """What the first process has, at most 1,000 bytes: it alone makes the folder, and uses the files in it."""
    if joined.count == 1:
        return own
    said = len(own).to_bytes(2) + own[:1000]
    first = distributed.gather(np.frombuffer(said.ljust(1002, b"\0"), np.uint8))[0].tobytes()
    return first[2 : 2 + int.from_bytes(first[:2])]


def _code(found: Earlier | None, here: Mapping[str, Any]) -> str:
    """The folder for a copy of the user's code; that of what ran before is kept."""
    if found is None or found.about["environment"]["code"] == here["code"]:
        return user_modules.KEPT
    return f"{user_modules.KEPT}/resumed-{len(found.about['resumed']) + 1}"


def _recorder(
    name: str,
    settings: Settings,
    found: Earlier | None,
    about: dict[str, Any],
    sinks: Sequence[Sink],
    until_end: ExitStack,
) -> Recorder:
    """Of a new folder, or of the one that goes on."""
    folder = found.folder if found else new_folder(settings, name)
    until_end.enter_context(held(folder))
    own = replace(found.settings, metric=settings.metric) if found else settings
    identity = {"config": name, "settings": plain(own), **about}
    every = [*opened(settings.record, folder, identity, until_end), *sinks]
    if about.get("secret_seed") and not found:
        secret_seed.draw(folder)
    if about.get("secret_seed"):
        for line in told(settings.record, sinks, folder, settings.record_private):
            say(line, file=sys.stderr)
    given = [guarded(sink, settings.record_private) for sink in every]
    return Recorder(folder, name, own, about, given)


def _solved(
    module: Config, settings: Settings, joined: Processes, progress: bool
) -> dict[str, Found]:
    targets = settings.group_epsilons or [settings.target_epsilon]
    if targets != [None] and joined.first and progress:
        said = " and ".join(f"{target:g}" for target in targets)
        say(f"solving for the noise of epsilon {said}", file=sys.stderr)
    return budget.solved(module, settings)


def built(
    module: Config,
    settings: Settings,
    noise: Mapping[str, Found],
    shared: SharedArrays,
    has_secret: bool = False,
) -> Experiment:
    """For a run: the config's experiment, checked, each algorithm with the noise that was solved for it."""

    def make(own: Settings) -> Experiment:
        return replace(shared.experiment(experiment_of(module, own)), secret_seed=has_secret)

    experiment = budget.made(make, settings, noise)
    check(experiment, settings)
    budget.check_reached(experiment.ledger, settings, noise)
    return experiment


def check(experiment: Experiment, settings: Settings) -> None:
    """Before training: finds what the last algorithm is refused for before the first one trains; compiles nothing.

    Raises:
      ValueError: it is refused, or the score gives no numbers, or not a metric that is wanted.
    """
    for name in experiment.entries:
        model_folder("", name, 0)
        experiment.ledger.trace(name)
    experiment.selectable(settings)
    experiment.stopping(settings)
