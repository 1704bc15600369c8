"""Records as TensorBoard shows them: a folder per algorithm, so that they are drawn into the same charts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from fedpriv.experiments.runs.scalars import scalars


class TensorBoard:
    """Event files of a run, written from its first record on, in place of what an earlier start left of the algorithm.

    Written at once: tensorboardX's own writer leaves that to a thread, which dies where the disk is full, and then the
    training waits for it.

    Args:
      folder: what `tensorboard --logdir` is given.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._writers: dict[str, EventsWriter] = {}

    def write(self, record: Mapping[str, Any]) -> None:
        name = record["algorithm"]
        if name not in self._writers:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / name).mkdir(parents=True)
            self._writers[name] = EventsWriter(str(self._folder / name / "events"))
        writer = self._writers[name]
        for tag, value in scalars(record).items():
            event = Event(wall_time=time.time(), step=record["round"], summary=scalar(tag, value))
            writer.write_event(event)
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
