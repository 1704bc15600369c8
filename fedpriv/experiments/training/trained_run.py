"""What a training has come to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedpriv.core.cards import in_a_line
from fedpriv.engine.history import History
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.tables.run_card import card_of
from fedpriv.privacy import Certificate


@dataclass(frozen=True)
class TrainedRun:
    """What a training has come to.

    Attributes:
      folder: the run's folder.
      status: "complete", "interrupted", "diverged: ..." or "failed: ...".
      history: history of each algorithm that was trained, even if only for a part of its rounds.
      summary: summary.json; None before the first evaluation, and in a process that does not record.
      problems: one line for each further problem, such as a file that could not be written.
      unseen: for each algorithm that was stopped before its first evaluation, a line with its possible cost.
      error: the error that ended it, if any.
      ended_before: whether it had already ended, so that nothing was trained.
    """

    folder: Path
    status: str
    history: Mapping[str, History]
    summary: Summary | None = None
    problems: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    error: BaseException | None = None
    ended_before: bool = False

    def __repr__(self) -> str:
        trained = ", ".join(self.history)
        return in_a_line(f"TrainedRun({self.folder}: {self.status}; {trained})")

    def _repr_html_(self) -> str:
        """What a notebook shows: its table."""
        return card_of("Run", self.folder, self.status, self.summary).html()

    @property
    def certificates(self) -> dict[str, dict[str, Certificate]]:
        """Certificates of the rounds that were trained, by algorithm and view."""
        reports = self.summary.privacy if self.summary else {}
        return {name: dict(report.certified) for name, report in reports.items()}

    @property
    def goes_on(self) -> str:
        """The command that continues it."""
        return goes_on(self.folder)


def goes_on(folder: Path) -> str:
    """What to say of a training that was stopped."""
    return f"fedpriv run --resume {shlex.quote(str(folder))} goes on"


class TrainingError(RuntimeError):
    """A training failed; `run` is what there is of it."""

    def __init__(self, run: TrainedRun, text: str):
        super().__init__(text)
        self.run = run
