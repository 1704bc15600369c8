"""A sweep: a config trained at every point of a grid; choosing among the points, on folds or under a certificate.

Every point of the grid (the product of all its fields) is a run folder in the sweep's. Points whose programs are the
same up to numbers are compiled once; what has the same program, numbers and data is trained once. A sweep that was
stopped goes on when it is asked for again with the same folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.core.arguments import MeanRuns, check_path, checked
from fedpriv.core.cards import in_a_line
from fedpriv.core.complaints import require
from fedpriv.core.json_values import flat, plain
from fedpriv.devices.layout import split_cpu
from fedpriv.experiments.base import command
from fedpriv.experiments.base.files import new_folder_by_time, write_text
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import changed
from fedpriv.experiments.runs.run_folder import CONFIG, RunFolder, read, read_all
from fedpriv.experiments.search import choose, sweep_table
from fedpriv.experiments.search.best_of import keep_best, said
from fedpriv.experiments.search.choose import Score
from fedpriv.experiments.search.plan import Asked, Planned, planned
from fedpriv.experiments.search.sweep_grid import FOLD
from fedpriv.experiments.search.training_together import Sweep
from fedpriv.experiments.tables.frame import as_csv, frame, records
from fedpriv.experiments.tables.grid import as_markdown
from fedpriv.experiments.tables.latex import latex
from fedpriv.experiments.tables.run_card import card_of_runs
from fedpriv.privacy.epsilon_words import short_epsilon


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended or was stopped.

    Attributes:
      folder: the sweep's folder.
      complete: whether every point was trained.
      runs: the points that were begun.
      scores: with `folds`, the scores of each algorithm at each point.
      chosen: with `folds`, the best score of each algorithm; no epsilon covers the choice.
      text: its report, for people.
      answer: the same for machines, as JSON.
    """

    folder: Path
    complete: bool
    runs: list[RunFolder]
    scores: list[Score] = field(default_factory=list)
    chosen: dict[str, Score] = field(default_factory=dict)
    text: str = ""
    answer: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return in_a_line(f"Swept({self.folder}: {self._status})")

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of its runs."""
        return card_of_runs("Sweep", self.folder, self._status, self.runs).html()

    @property
    def _status(self) -> str:
        return f"{'complete' if self.complete else 'interrupted'}, {len(self.runs)} runs"


def sweep(
    config: str | Path | Config,
    grid: Mapping[str, Sequence[Any]],
    *,
    folder: str | Path | None = None,
    folds: int | None = None,
    best_of: float | None = None,
    progress: bool = True,
    **settings: Any,
) -> Swept:
    """Trains a config at every point of a grid, into a folder; the same call again continues.

    Args:
      config: as for `train`.
      grid: field (nested ones with dots) -> values to try; the points are all combinations.
      folder: folder of the sweep; by default runs/sweep-CONFIG-DATE-TIME.
      folds: divide the training records into so many parts, train each point once without each part, and compare points
        by their scores on the parts left out. The test records stay unseen. No epsilon covers the choice.
      best_of: train a random number of points, geometric with this mean, each with one seed and its own noise. Keep the
        model that is best on the test records, and a certificate that covers this choice. With `target_epsilon` the
        noise of all points is such that this certificate costs it, see `best_of.with_noise_for_all`.
      progress: whether to show progress on standard error.
      settings: settings of all points.

    Returns:
      The runs; after Ctrl-C, those that were begun. The folder has tables of them. No epsilon in these covers choosing
      a point.

    Raises:
      ValueError: an argument is wrong; nothing was trained.
      OSError, MemoryError: something outside failed; what was trained so far is in the folder.
    """
    split_cpu()
    require(isinstance(grid, Mapping), "grid", grid, "give fields and their values, a mapping")
    best_of = checked("best_of", best_of, MeanRuns | None)
    if folder is not None:
        check_path("folder", folder, "give the path of a folder")
    name, module = modules.named(config)
    if "output" in settings:
        raise ValueError("output: a sweep has a folder; give folder")
    base = changed(module.settings, settings)
    asked = Asked(
        name,
        module,
        [*grid.items()],
        lambda values: changed(base, values),
        [*flat(settings)],
        folds,
        best_of,
    )
    with folder_of(asked, folder) as where:
        return swept(asked, where, progress)


@contextmanager
def folder_of(asked: Asked, given: str | Path | None) -> Iterator[Path]:
    """The folder that is given, or a new one, which goes again if nothing is put into it."""
    if given is not None:
        yield Path(given)
        return
    folder = new_folder_by_time(f"sweep-{Path(asked.name).stem}")
    try:
        yield folder
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def swept(asked: Asked, folder: Path, progress: bool = True) -> Swept:
    """What `sweep` returns and raises."""
    try:
        plan = planned(asked, folder, progress)
        if progress:
            say(f"sweep folder: {folder}", file=sys.stderr)
        with command.checked():
            return _outcome(plan, train_points(plan, progress))
    except KeyboardInterrupt:
        return Swept(folder, False, _runs(folder))


def _runs(folder: Path) -> list[RunFolder]:
    return read_all([folder])[0] if any(folder.glob(f"*/{CONFIG}")) else []


def train_points(planned: Planned, progress: bool = True) -> Sweep:
    """Trains what is ready; a point's experiment is let go of once it is trained.

    Raises:
      KeyboardInterrupt: it was interrupted.
      OSError: not all of a point could be written.
      Exception: a bug, which has a note of the point.
    """
    choice = planned.certificate
    of = f"of this trial alone ({short_epsilon(choice.epsilon)} of the choice)" if choice else ""
    trained, ready = Sweep(planned.wanted["config"], planned.folder, progress, of), planned.ready
    total = len(ready)
    try:
        for prepared in ready:
            trained.announce(prepared)
        while ready:
            prepared = ready.pop(0)
            if progress:
                say(f"[{total - len(ready)}/{total}] {prepared.point.title}", file=sys.stderr)
            status = trained.train(prepared)
            if status == "interrupted":
                raise KeyboardInterrupt
            if status != "complete":
                say(status, file=sys.stderr)
    except Exception as error:
        error.add_note(
            f"failed at {prepared.point.title}; the same sweep with its folder continues"
        )
        raise
    return trained


def _outcome(plan: Planned, trained: Sweep) -> Swept:
    """Of a sweep whose points are all trained; writes what the folder is to hold beside them."""
    folder, found = plan.folder, sweep_table.summaries(plan.folder, plan.every)
    if plan.certificate is not None:
        about = keep_best(folder, found, plan.higher, plan.certificate, plan.wanted["best_of"])
        text = f"{said(about)}\nsweep folder: {folder}"
        return Swept(folder, True, [], text=text, answer=plain(about))
    rows, table, scores, chosen = sweep_table.rows(found), sweep_table.table(found), [], {}
    if FOLD in plan.wanted["grid"]:
        scores = choose.scores(found)
        chosen = choose.chosen(scores, read(folder / plan.every[0].name).begun.higher)
        table = choose.table(scores, chosen, len(plan.wanted["grid"][FOLD]))
        table = table._replace(notes=[*table.notes, *sweep_table.remarks(found)])
    cost = (
        f"compiled programs: {trained.compilations} for {trained.trained} trainings ({trained.seconds:.1f} s with "
        f"tracing); trainings that reuse another point's result: {trained.reused} (both since the sweep was last "
        "started)"
    )
    text = as_markdown(table._replace(notes=[*table.notes, cost])) + "\n"
    write_text(folder / "table.csv", as_csv(frame(rows)))
    write_text(folder / "table.tex", latex(table))
    write_text(folder / "table.md", text)
    answer = {key: plan.wanted[key] for key in ("config", "grid")} | {"output": str(folder)}
    answer |= {"rows": [plain(line) for line in records(rows)]}
    answer |= {"chosen": {name: score.values for name, score in chosen.items()}}
    answer |= {"not_covered": choose.not_covered(scores[0].metric)} if scores else {}
    answer |= {"trained": trained.trained, "reused": trained.reused}
    answer |= {"compiled": trained.compilations, "compile_seconds": trained.seconds}
    text = f"{text}\nsweep folder: {folder}"
    return Swept(folder, True, _runs(folder), scores, chosen, text, plain(answer))
