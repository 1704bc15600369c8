"""Records in Weights & Biases: a run per algorithm, grouped by run folder; its step is the round.

`WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY` and the others are W&B's own. A run that goes on keeps its identity and
sends what is not there yet; offline it is written again from its first record, in place of the folder of before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any

import wandb

from fedpriv.experiments.runs.scalars import scalars


class WeightsAndBiases:
    """Sends each algorithm's records to a W&B run of its own.

    Args:
      folder: of the run; W&B's own files go there, too.
      about: what config.json says.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        self._folder, self._about = folder, about
        self._algorithm: str | None = None
        self._run: Any = None

    def write(self, record: Mapping[str, Any]) -> None:
        if record["algorithm"] != self._algorithm:
            self._begin(record["algorithm"])
        if record["round"] >= self._run.step:  # earlier ones are there
            self._run.log(scalars(record), step=record["round"], commit=True)

    def _begin(self, algorithm: str) -> None:
        self.close()
        self._algorithm = algorithm
        identity = f"{self._about['id']}-{algorithm}"
        for earlier in self._folder.glob(f"wandb/offline-run-*-{escape(identity)}"):
            shutil.rmtree(earlier)  # or `wandb sync` would send its steps, too
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedpriv"),
            group=self._folder.resolve().name,
            name=algorithm,
            id=identity,
            resume="allow",
            dir=str(self._folder),
            config={"config": self._about["config"], **self._about["settings"]},
            settings={
                "console": os.environ.get("WANDB_CONSOLE", "off")
            },  # it shows private metrics
        )

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
