"""A sweep: a config trained at every point of a grid, or at random points of which the best alone is released.

Every point of the grid (the product of all its fields) is a run folder in the sweep's. Points whose programs are the
same up to numbers are compiled once; what has the same program, numbers and data is trained once. A sweep that was
stopped goes on when it is asked for again with the same folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments import config as configuration
from experiments.accounting import budget
from experiments.base import user_modules
from experiments.base.command import checked, one_line
from experiments.base.files import write_text
from experiments.base.json_values import flat, plain
from experiments.config import Experiment, Run, modules
from experiments.config.modules import Config
from experiments.config.settings import changed
from experiments.runs.run_folder import CONFIG, RunFolder, read_all
from experiments.search import best_of, sweep_table
from experiments.search.sweep_grid import Point, axes, begin, begun, described, ended, points
from experiments.search.training_together import Prepared, Sweep
from experiments.tables.frame import frame, records
from experiments.tables.grid import as_markdown
from experiments.tables.latex import latex
from experiments.training.prepare import built
from experiments.training.shared_arrays import Interned
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices.distributed import slurm_step
from fedpriv.devices.layout import split_cpu
from fedpriv.engine import compilation_cache


class Asked(NamedTuple):
    """What is to be swept.

    Attributes:
      name: of the config.
      grid: field -> its values.
      settle: the settings of the point with these fields.
      best_of: mean number of random trials of which the best is released; None: all points are trained.
    """

    name: str
    config: Config
    grid: Mapping[str, Sequence[Any]]
    settle: Callable[[Mapping[str, Any]], Run]
    best_of: float | None = None


class Planned(NamedTuple):
    """A sweep before it trains.

    Attributes:
      folder: of the points.
      every: the points.
      wanted: what sweep.json says.
      ready: the points that are not done yet.
      choice: among these points, with `best_of`.
    """

    folder: Path
    every: list[Point]
    wanted: dict[str, Any]
    ready: list[Prepared]
    choice: best_of.Choice | None = None


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended, or was stopped.

    Attributes:
      folder: of the sweep.
      complete: whether every point was trained.
      runs: the points that were begun.
    """

    folder: Path
    complete: bool
    runs: list[RunFolder]


def sweep(
    config: str | Path | Config,
    grid: Mapping[str, Sequence[Any]],
    *,
    folder: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> Swept:
    """Trains a config at every point of a grid, into a folder; asked again, it goes on.

    Args:
      config: as for `train`.
      grid: field, nested ones by dots -> the values to try; points are all combinations.
      folder: of the sweep; by default runs/sweep-CONFIG-DATE-TIME.
      progress: whether to show it on standard error.
      settings: of all points.

    Returns:
      The runs; after Ctrl-C those that were begun. Tables of them are in the folder. No epsilon in them covers choosing
      a point.

    Raises:
      ValueError: something that was given is wrong; nothing was trained.
      OSError, MemoryError: something outside failed; what was trained is in the folder.
    """
    split_cpu()
    name, module = modules.named(config)
    if "output" in settings:
        raise ValueError("output: a sweep has a folder; give folder")
    if twice := sorted({field.replace("-", "_") for field in grid} & set(flat(settings))):
        raise ValueError(f"{twice[0]}: swept by the grid, too; give one of them")
    base = changed(module.config, settings)
    asked = Asked(name, module, grid, lambda values: changed(base, values))
    where = Path(folder) if folder else new_name(name)
    complete = True
    try:
        ready = planned(asked, where, progress)
        with checked():
            trained = train_points(ready, progress)
        write_tables(ready, trained)
    except KeyboardInterrupt:
        complete = False
    return Swept(where, complete, read_all([where])[0] if _any_begun(where) else [])


def _any_begun(folder: Path) -> bool:
    return any(folder.glob(f"*/{CONFIG}"))


def new_name(config: str) -> Path:
    """The folder of a sweep that is given none."""
    return Path("runs") / f"sweep-{Path(config).stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def planned(asked: Asked, folder: Path, progress: bool = True) -> Planned:
    """Everything that can go wrong because of what was given does so here, before anything trains."""
    if slurm_step():
        raise ValueError("sweep: runs in one process; start it without srun")
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        raise ValueError("JAX_DISABLE_JIT: a sweep compiles its points together; unset it")
    name, module, grid, settle, mean = asked
    if mean is not None:
        best_of.require_options(mean, grid)
        compilation_cache.keep_no_programs()  # it would show later which points were tried
        folder = best_of.inside(folder)
    every = whole = points(grid, settle)
    default = module.config
    if any((p.config.checkpoint, p.config.record) != (default.checkpoint, ()) for p in every):
        raise ValueError(
            "checkpoint, record: a sweep goes on with the point it was stopped at, from its start, and records in "
            "its folders; leave these out"
        )
    texts = axes(grid)
    if mean is not None:
        best_of.require_settings(every)
        every = best_of.trials(folder, every, texts, mean)
    again = begun(folder, described(name, module, texts, every, mean), module)
    left = [p for p in every if not (again and ended(folder / p.name))]
    if again and progress:
        print(f"{len(every) - len(left)} of {len(every)} points are done", file=sys.stderr)
    ready, choice = _prepared(module, left if mean is None else whole), None
    if mean is not None:
        choice = best_of.choice(ready, mean)
        at = {prepared.point.title: prepared for prepared in ready}
        ready = [at[point.title]._replace(point=point) for point in left]
    wanted = described(name, module, texts, every, mean)
    if ready:  # else all is done, and `build` has imported nothing
        begin(folder, wanted, mode=0o777 if mean is None else 0o700)
        user_modules.keep(module, folder / user_modules.KEPT)
    return Planned(folder, every, wanted, ready, choice)


def _prepared(module: Config, left: Sequence[Point]) -> list[Prepared]:
    devices = [p.config.layout.devices for p in left]
    split_cpu(None if None in devices else max(devices, default=None))
    interned, known = Interned(), list[budget.Solved]()
    ready = []
    for point in left:
        try:
            strategy = configuration.strategy(point.config.layout)
            noise = budget.solved(module, point.config, known)
            experiment = built(module, point.config, noise, interned)
            _require_in_memory(experiment)
            planned = budget.planned_rounds(experiment.ledger, point.config)
        except (ValueError, OSError) as error:
            at = ValueError(f"{one_line(error)} (at {point.title})")
            raise at.with_traceback(error.__traceback__) from None
        ready.append(Prepared(point, strategy, experiment, planned, noise))
    return ready


def _require_in_memory(experiment: Experiment) -> None:
    for name, entry in experiment.entries.items():
        if any(isinstance(federation, StreamedFederation) for federation in entry.federations):
            raise ValueError(
                f"federation: {name} trains on a StreamedFederation, which a sweep cannot compile for; give a "
                "Federation in memory, or run the points one by one with experiments.run"
            )


def train_points(planned: Planned, progress: bool = True) -> Sweep:
    """Trains what is ready; a point's experiment is let go of once it is trained.

    Raises:
      KeyboardInterrupt: it was interrupted.
      OSError: not all of a point could be written.
      Exception: a bug, which has a note of the point.
    """
    trained, ready = Sweep(planned.wanted["config"], planned.folder, progress), planned.ready
    total = len(ready)
    try:
        for prepared in ready:
            trained.announce(prepared)
        while ready:
            prepared = ready.pop(0)
            if progress:
                print(f"[{total - len(ready)}/{total}] {prepared.point.title}", file=sys.stderr)
            status = trained.train(prepared)
            if status == "interrupted":
                raise KeyboardInterrupt
            if status != "complete":
                print(status, file=sys.stderr)
    except Exception as error:
        error.add_note(f"failed at {prepared.point.title}; the same sweep with its folder goes on")
        raise
    return trained


def write_tables(planned: Planned, trained: Sweep) -> tuple[str, list[dict[str, Any]]]:
    """Writes table.md, table.csv and table.tex; returns the first as text, the second as rows."""
    folder, found = planned.folder, sweep_table.summaries(planned.folder, planned.every)
    rows, table = sweep_table.rows(found), sweep_table.table(found)
    write_text(folder / "table.csv", frame(rows).to_csv(index=False))
    write_text(folder / "table.tex", latex(table))
    cost = (
        f"compiled programs: {trained.compilations} for {trained.trained} trainings ({trained.seconds:.1f} s with "
        f"tracing); trainings whose result is another point's: {trained.reused} (both since the sweep was last started)"
    )
    said = as_markdown(table._replace(notes=[*table.notes, cost])) + "\n"
    write_text(folder / "table.md", said)
    return said, [plain(line) for line in records(rows)]


def release(planned: Planned, folder: Path) -> dict[str, Any]:
    """Writes the best trial's model and certificate into the folder, nothing of the others."""
    assert planned.choice is not None
    found = sweep_table.summaries(planned.folder, planned.every)
    return best_of.released(folder, planned.wanted["config"], planned.choice, found)
