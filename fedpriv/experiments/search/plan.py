"""A sweep before it trains: its points or trials, what is done of them, and what is ready to train."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax

from fedpriv.core.arguments import Range, checked
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices.distributed import slurm_step
from fedpriv.devices.layout import split_cpu
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.accounting.found import Found
from fedpriv.experiments.base import user_modules
from fedpriv.experiments.base.command import one_line
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.made import strategy_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.search import best_of
from fedpriv.experiments.search.sweep_folder import (
    begin_sweep_folder,
    point_ended,
    read_sweep_folder,
    sweep_description,
)
from fedpriv.experiments.search.sweep_grid import FOLD, Axes, Point, axes, points
from fedpriv.experiments.search.training_together import Prepared
from fedpriv.experiments.training.prepare import built
from fedpriv.experiments.training.shared_arrays import SharedArrays
from fedpriv.models.score import better_higher, main_metric
from fedpriv.privacy import Certificate

FOLDS = Annotated[int, Range("a whole number, 2 or more", 2, 2**24, integer=True)]


class Asked(NamedTuple):
    """What is to be swept: a sweep before it is planned.

    Attributes:
      name: of the config.
      grid: fields and their values.
      settle: the settings of the point with these fields.
      given: fields that are the same at every point.
      folds, best_of: as `sweep`.
    """

    name: str
    config: Config
    grid: Axes
    settle: Callable[[Mapping[str, Any]], Settings]
    given: Collection[str] = ()
    folds: int | None = None
    best_of: float | None = None


class Planned(NamedTuple):
    """A sweep before it trains.

    Attributes:
      folder: of the points.
      every: the points, or the trials.
      wanted: what sweep.json says.
      ready: those that are not done yet.
      certificate: of the best of the trials.
      higher: whether the metric that chooses it is better when higher.
    """

    folder: Path
    every: list[Point]
    wanted: dict[str, Any]
    ready: list[Prepared]
    certificate: Certificate | None = None
    higher: bool = True


def planned(asked: Asked, folder: Path, progress: bool = True) -> Planned:
    """Everything that can go wrong because of what was given does so here, before anything trains."""
    _require_place()
    module, mean = asked.config, asked.best_of
    asked = _with_folds(asked) if asked.folds is not None else asked
    grid = axes(asked.grid)
    if twice := sorted(set(grid) & set(asked.given)):
        raise ValueError(f"{twice[0]}: swept by the grid, too; give one of them")
    every = points(asked.grid, asked.settle if mean is None else _one_seed(asked.settle))
    _require_settings(every, module)
    wanted = sweep_description(asked.name, module, grid, every)
    if mean is not None:
        best_of.require_settings(every, mean)
        wanted["best_of"] = mean
    there = read_sweep_folder(folder, wanted, module)
    trials = every
    if mean is not None:
        again = there["trials"] if there else None
        wanted["trials"] = again or best_of.drawn(len(every), mean, random.SystemRandom())
        trials = [
            every[i]._replace(name=f"trial-{n}", key=key)
            for n, (i, key) in enumerate(wanted["trials"], 1)
        ]
    left = [p for p in trials if not (there and point_ended(folder / p.name))]
    if there and progress:
        say(f"{len(trials) - len(left)} of {len(trials)} points are done", file=sys.stderr)
    plan = Planned(folder, trials, wanted, _prepared(module, left if mean is None else every, mean))
    if mean is not None:
        plan = _certified(plan, left, mean)
    if plan.ready:  # else all is done, and `build` has imported nothing
        wanted["code"] = user_modules.digests(module)  # with what `build` has imported
        begin_sweep_folder(folder, wanted)
        user_modules.keep(module, folder / user_modules.KEPT)
    return plan


def _require_place() -> None:
    """Raises ValueError: a sweep cannot run like this."""
    if slurm_step():
        raise ValueError("sweep: runs in one process; start it without srun")
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        raise ValueError("JAX_DISABLE_JIT: a sweep compiles its points together; unset it")


def _with_folds(asked: Asked) -> Asked:
    """The grid with a further axis, of the parts of the training records that are held out."""
    folds = checked("folds", asked.folds, FOLDS)
    if asked.best_of is not None:
        raise ValueError(f"folds: {folds} choose by training records; leave best_of out")
    parts = [(k, folds) for k in range(1, folds + 1)]
    return asked._replace(grid=[*asked.grid, (FOLD, parts)])


def _one_seed(
    settle: Callable[[Mapping[str, Any]], Settings],
) -> Callable[[Mapping[str, Any]], Settings]:
    """For trials, of each of which the one model may be what is kept."""
    return lambda values: replace(settle(values), seeds=1, keep_model=True)


def _require_settings(every: Sequence[Point], module: Config) -> None:
    default = module.settings
    if any((p.settings.checkpoint, p.settings.record) != (default.checkpoint, ()) for p in every):
        raise ValueError(
            "checkpoint, record: a sweep restarts the point at which it was stopped, and records in its folders; "
            "leave these out"
        )
    if any(p.settings.statistics is not None for p in every):
        raise ValueError(
            "statistics: a sweep compiles its points before anything is released; leave it out, or run the points one "
            "by one with fedpriv run"
        )
    if len({p.settings.metric for p in every}) > 1:
        raise ValueError("metric: one metric compares all points; leave it out of the grid")


def _prepared(module: Config, left: Sequence[Point], mean: float | None) -> list[Prepared]:
    devices = [n for p in left if (n := p.settings.layout.devices) is not None]
    split_cpu(max(devices, default=None) if len(devices) == len(left) else None)
    noises = _solved(module, left, mean)
    shared, ready = SharedArrays(), list[Prepared]()
    for point, noise in zip(left, noises, strict=True):
        with _at(point):
            strategy = strategy_of(point.settings.layout)
            experiment = built(module, point.settings, noise, shared)
            _require_in_memory(experiment)
            planned = budget.planned_rounds(experiment.ledger, point.settings)
        ready.append(Prepared(point, strategy, experiment, planned, noise))
    return ready


def _solved(module: Config, left: Sequence[Point], mean: float | None) -> list[dict[str, Found]]:
    """What `target_epsilon` finds for each point; of trials, see `best_of.with_noise_for_all`."""
    known, found = list[budget.Solved](), list[dict[str, Found]]()
    for point in left:
        with _at(point):
            found.append(budget.solved(module, point.settings, known, mean or 1.0))
    return found if mean is None else best_of.with_noise_for_all(module, left, found, mean)


@contextmanager
def _at(point: Point) -> Iterator[None]:
    """What is refused within is said to be at this point."""
    try:
        yield
    except (ValueError, OSError) as error:
        at = ValueError(f"{one_line(error)} (at {point.title})")
        raise at.with_traceback(error.__traceback__) from None


def _require_in_memory(experiment: Experiment) -> None:
    for name, entry in experiment.entries.items():
        if any(isinstance(federation, StreamedFederation) for federation in entry.federations):
            raise ValueError(
                f"federation: {name} trains on a StreamedFederation, for which a sweep cannot compile; give a "
                "Federation in memory, or run the points one by one with fedpriv run"
            )


def _certified(plan: Planned, left: Sequence[Point], mean: float) -> Planned:
    """The plan for the trials that are left, of which several may be at one of its points."""
    at = {prepared.point.title: prepared for prepared in plan.ready}
    first = plan.ready[0].experiment
    settings = plan.ready[0].point.settings
    metric = main_metric(first.selectable(settings), settings.metric)
    return plan._replace(
        ready=[at[trial.title]._replace(point=trial) for trial in left],
        certificate=best_of.certified(plan.ready, mean),
        higher=better_higher(metric, first.higher),
    )
