"""What TensorBoard, W&B and MLflow hold of a run folder, read back as they keep it."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def events(folder: Path) -> list[tuple[str, int, float]]:
    """[(tag, step, value)] of all event files in a folder, in the order in which they were written."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):  # length, its checksum, event, its checksum
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            at += 16 + length
    return found


def _wandb_records(file: Path) -> Iterator[Any]:
    """Of W&B's file of a run offline, in LevelDB's log format: blocks of 32 KiB, records in one part or several."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, part = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole, or the last part
            yield Record.FromString(part)
            part = b""


def _of_wandb(folder: Path) -> Iterator[tuple[str, str, int, float]]:
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        algorithm = file.stem.rpartition("-")[2]
        for record in _wandb_records(file):
            assert record.WhichOneof("record_type") != "output_raw"  # what the run prints
            items = record.history.item
            values = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}
            for name in values.keys() - {"_step", "_runtime", "_timestamp"}:
                yield algorithm, name, values["_step"], float(values[name])


def _of_mlflow(folder: Path) -> Iterator[tuple[str, str, int, float]]:
    from mlflow import MlflowClient

    client = MlflowClient()
    for run in client.search_runs([client.get_experiment_by_name("fedpriv").experiment_id]):
        assert run.data.tags["fedpriv.folder"] == folder.name
        for name in run.data.metrics:
            for m in client.get_metric_history(run.info.run_id, name):
                yield run.data.tags["fedpriv.algorithm"], name.replace(".", "/"), m.step, m.value


def held(name: str, folder: Path) -> list[tuple[str, str, int, float]]:
    """[(algorithm, tag, step, value)] that a sink holds of a run, each as often as it does, sorted."""
    if name == "tensorboard":
        each = ((of.name, *event) for of in (folder / name).iterdir() for event in events(of))
    else:
        each = {"wandb": _of_wandb, "mlflow": _of_mlflow}[name](folder)
    return sorted(each)
