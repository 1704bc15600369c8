"""The scores of trainings in a folder, from which an audit that was interrupted goes on."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.base.json_values import flat
from fedpriv.core.files import replacing


class Scored(NamedTuple):
    """Of the first n trainings.

    Attributes:
      present: bool[n].
      scores: f32[3, n].
      seconds: that they took.
    """

    present: np.ndarray
    scores: np.ndarray
    seconds: float

    @property
    def runs(self) -> int:
        return len(self.present)

    def first(self, runs: int) -> Scored:
        """Of so many, if there are."""
        share = min(1.0, runs / max(self.runs, 1))
        return Scored(self.present[:runs], self.scores[:, :runs], self.seconds * share)


NOTHING = Scored(np.zeros(0, bool), np.zeros((3, 0), np.float32), 0.0)


@dataclass(frozen=True)
class KeptScores:
    """Those of one algorithm.

    Attributes:
      path: of the file; None keeps nothing.
      settings: on which scores depend, as JSON.
    """

    path: Path | None
    settings: dict[str, Any]

    def load(self) -> Scored:
        """What is kept so far.

        Raises:
          ValueError: it is of other settings, or the file is damaged.
        """
        if self.path is None or not self.path.exists():
            return NOTHING
        try:
            with self.path.open("rb") as file, np.load(file) as kept:
                settings = json.loads(str(kept["settings"]))
                found = Scored(kept["present"], kept["scores"], float(kept["seconds"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"output: {self.path} is damaged ({error}); delete it") from None
        if settings != self.settings:
            raise ValueError(
                f"output: {self.path} holds scores of other settings ({self._differing(settings)}); choose another "
                "folder"
            )
        return found

    def save(self, scored: Scored) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(exist_ok=True)
        settings = np.array(json.dumps(self.settings))
        with replacing(self.path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, settings=settings, **scored._asdict())

    def _differing(self, settings: dict[str, Any]) -> str:
        then, now = flat(settings), flat(self.settings)
        names = [n for n in dict.fromkeys([*then, *now]) if then.get(n) != now.get(n)]
        return ", ".join(f"{n}: {then.get(n)} then, {now.get(n)} now" for n in names[:3])
