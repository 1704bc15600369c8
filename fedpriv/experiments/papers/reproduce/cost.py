"""How long the rest of an item takes on this machine, from the rounds that were trained on it."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedpriv.core.terminal_text import span
from fedpriv.experiments.base.provenance import device
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.papers.reproduce.item import Item, Scale, Training, Work
from fedpriv.experiments.papers.reproduce.work import Shelf, perform
from fedpriv.experiments.runs import run_folder
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.training.trained_run import TrainingError

TIMED = "timed"  # the folder of trainings of two rounds


class Cost(NamedTuple):
    """How long several pieces of an item's work take.

    Attributes:
      seconds: of those that are like what was trained here.
      unknown: how many are not.
    """

    seconds: float
    unknown: int

    def __str__(self) -> str:
        if self.unknown:
            return f"{span(self.seconds)} and more" if self.seconds else "?"
        return span(self.seconds)


def _kind(device: Mapping[str, Any]) -> list[Any]:
    """Of a machine; the number of devices into which a CPU is divided hardly matters."""
    return [device.get(name) for name in ("platform", "kind", "instructions")]


class Speeds:
    """Of the trainings in a paper's folder: seconds of a round of one seed, by training and by its algorithm."""

    def __init__(self, folder: Path):
        self._exact: dict[str, list[float]] = {}
        self._alike: dict[tuple[str, str], list[float]] = {}
        found = [*folder.glob("runs*/*/summary.json"), *folder.glob(f"{TIMED}/*/summary.json")]
        here = _kind(device()) if found else None
        for path in found:
            try:
                run = run_folder.read(path.parent)
            except ValueError:  # a computation, or damaged
                continue
            if run.summary and _kind(run.summary.device) == here:
                self._add(run)

    def _add(self, run: RunFolder) -> None:
        assert run.summary is not None
        for algorithm, speed in run.summary.rounds_per_second.items():
            if speed > 0:
                seconds = 1 / speed / run.settings["seeds"]
                self._exact.setdefault(run.path.name, []).append(seconds)
                self._alike.setdefault((run.config, algorithm), []).append(seconds)

    def of(self, training: Training) -> float | None:
        """Seconds of a round of one seed; None where nothing like it was trained."""
        alike = self._alike.get((training.config, training.algorithm))
        found = self._exact.get(training.key, alike)
        return statistics.mean(found) if found else None

    def cost(self, left: Sequence[Work], scale: Scale) -> Cost:
        """Of the work that is left; a computation's is unknown."""
        seconds, unknown = 0.0, 0
        for work in left:
            each = self.of(work) if isinstance(work, Training) else None
            if each is None or not isinstance(work, Training):
                unknown += 1
            else:
                seconds += each * scale.of(work.rounds) * scale.seeds(work.seeds)
        return Cost(seconds, unknown)


def left_of(item: Item, output: Path, speeds: Speeds) -> str:
    """What the rest of the item takes at full scale."""
    shelf = Shelf(output)
    left = [work for work in item.needs if not shelf.ended(item, work)]
    return str(speeds.cost(left, Scale())) if left else "-"


def time_rounds(
    left: Sequence[Work], speeds: Speeds, folder: Path, data_dir: Path | None
) -> Speeds:
    """Times an item: trains two rounds of one seed of each algorithm of which nothing was trained here."""
    seen = set()
    for work in left:
        if not isinstance(work, Training) or speeds.of(work):
            continue
        if (kind := (work.config, work.algorithm)) not in seen:
            seen.add(kind)
            say(f"timing two rounds: {work.title}", file=sys.stderr)
            with suppress(TrainingError):  # it diverged; its rounds were timed all the same
                perform(work, Scale(2 / work.rounds, 1), folder / TIMED / work.key, data_dir)
    return Speeds(folder) if seen else speeds
