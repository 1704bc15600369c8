"""Records as TensorBoard shows them: a folder per algorithm, so that they are drawn into the same charts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from experiments.sinks import scalars


class TensorBoard:
    """Event files of a run, written from its first record on: what an earlier start left there is removed.

    Args:
      folder: what `tensorboard --logdir` is given.
    """

    def __init__(self, folder: Path):
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._writers: dict[str, SummaryWriter] = {}

    def write(self, record: Mapping[str, Any]) -> None:
        name = record["algorithm"]
        if name not in self._writers:
            self._writers[name] = SummaryWriter(str(self._folder / name))
        writer = self._writers[name]
        for tag, value in scalars(record).items():
            writer.add_scalar(tag, value, record["round"])
        writer.flush()
