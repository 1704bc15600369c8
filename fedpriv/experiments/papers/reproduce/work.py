"""The work of items: done into folders, kept there for all items of a paper, read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.core.json_values import flat, plain
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.provenance import provenance
from fedpriv.experiments.config import modules
from fedpriv.experiments.papers.reproduce.item import (
    Computation,
    Computed,
    Item,
    Scale,
    Training,
    Work,
)
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.runs.recorder import cleared_folder
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.runs.unfinished import how_ended
from fedpriv.experiments.training.train import train_or_resume

UNFINISHED = "Trained so far"  # in the table of an item that is not done
OVERRIDDEN = {"algorithms", "rounds", "seeds", "every", "output", "data_dir", "layout"}
TRUTH = {"true": True, "false": False}
OVERRIDDEN |= {"checkpoint", "record", "record_private", "keep_model"}


@dataclass(frozen=True)
class Shelf:
    """The folders of one scale: OUTPUT/PAPER/runs[-SCALE]/KEY for the trainings, which the items of a paper share, and
    OUTPUT/PAPER/ITEM[-SCALE]/ for their tables and pictures.

    Attributes:
      output: the folder of everything.
      suffix: "" for the full thing, else "-" and the scale's name.
    """

    output: Path
    suffix: str = ""

    @classmethod
    def of(cls, output: Path, scale: Scale) -> Shelf:
        return cls(output, "" if scale.name == Scale().name else f"-{scale.name}")

    def run(self, item: Item, work: Work) -> Path:
        return self.output / item.paper / f"runs{self.suffix}" / work.key

    def item(self, item: Item) -> Path:
        return self.output / item.paper / f"{item.name}{self.suffix}"

    def results(self, item: Item) -> dict[Work, RunFolder | Computed]:
        """Of the item's work, what is done; raises ValueError as `result` does."""
        found = {work: result(work, self.run(item, work)) for work in item.needs}
        return {work: run for work, run in found.items() if run}

    def ended(self, item: Item, work: Work) -> bool:
        return how_ended(self.run(item, work)) is not None

    def done(self, item: Item) -> int:
        """How many pieces of the item's work."""
        return sum(self.ended(item, work) for work in item.needs)


def status(item: Item, output: Path) -> str:
    """How far the item has come, at the scale at which it came farthest."""
    if item.illustration:
        return "nothing to measure"
    shelves = _shelves(output, item.paper)
    for shelf in shelves:
        table = shelf.item(item) / "table.md"
        whole = table.exists() and UNFINISHED not in table.read_text()
        if whole and shelf.done(item) == len(item.needs):
            return "done" + _at(shelf)
    best = max(shelves, key=lambda shelf: shelf.done(item))
    if count := best.done(item):
        return f"partly ({count} of {len(item.needs)}){_at(best)}"
    return "not yet"


def _shelves(output: Path, paper: str) -> list[Shelf]:
    """The full one, then those of every scale that something was done at."""
    names = [folder.name for folder in sorted((output / paper).glob("*-s*/")) if folder.is_dir()]
    scales = (name[name.index("-") :] for name in names)
    return [Shelf(output, suffix) for suffix in dict.fromkeys(["", *scales])]


def _at(shelf: Shelf) -> str:
    return f" at {shelf.suffix[1:].replace('-', ' ')}" if shelf.suffix else ""


def perform(
    work: Work, scale: Scale, folder: Path, data_dir: Path | None, progress: bool = True
) -> None:
    """Does an item's `work` into `folder`, a training from its last checkpoint on.

    Raises:
      ValueError: what a computation finds wrong, or what is wrong with a training's settings or folder.
      TrainingError: a training diverged, or something outside failed.
      OSError: the folder cannot be written to.
      KeyboardInterrupt: it was stopped.
    """
    if isinstance(work, Training):
        settings = settings_of(work, scale, data_dir)
        ended = train_or_resume(work.config, folder, progress=progress, **settings)
        if ended.status == "interrupted":
            raise KeyboardInterrupt
        return
    cleared_folder(folder)
    found = {"status": "complete", **provenance(), **work.compute(scale, data_dir)}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / run_folder.SUMMARY, json.dumps(plain(found), indent=2) + "\n")


def settings_of(training: Training, scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """The settings of an item's training, without its folder."""
    default = modules.load(training.config).settings
    settings = {
        "algorithms": (training.algorithm,),
        **{name: TRUTH.get(str(value), value) for name, value in training.at(scale).items()},
        "rounds": scale.of(training.rounds),
        "seeds": scale.seeds(training.seeds),
        "every": scale.of(training.every or default.every),
        "keep_model": False,  # gigabytes, which no table needs
    }
    return settings | ({"data_dir": data_dir} if data_dir else {})


def result(work: Work, folder: Path) -> RunFolder | Computed | None:
    """What `folder` holds of an item's `work`, None if it was not done, or not to its end.

    A training that diverged got to its end; its status says so.

    Raises:
      ValueError: it is damaged, or was trained when the config had other defaults.
    """
    if not how_ended(folder):
        return None
    try:
        if isinstance(work, Computation):
            return Computed(json.loads((folder / run_folder.SUMMARY).read_text()))
        found = run_folder.read(folder)
        if found.summary is None or (found.summary.rounds and found.damage):
            raise ValueError
    except ValueError:
        raise ValueError(f"{folder}: is damaged; delete it, so that it is done again") from None
    if difference := _changed(work, found):
        raise ValueError(
            f"{folder}: was trained with {difference}; delete it, or give another --output"
        )
    return found


def _changed(training: Training, run: RunFolder) -> str | None:
    """The first setting that the training leaves to the config and that is another one now."""
    now, then = flat(plain(modules.load(training.config).settings)), flat(run.settings)
    own = {name.replace("-", "_") for name in training.settings}
    for name in sorted(now.keys() & then.keys() - own):
        if name.partition(".")[0] not in OVERRIDDEN and now[name] != then[name]:
            return f"{name} {then[name]}, where configs/{training.config}.py now has {now[name]}"
    return None
