"""The lines of metrics.jsonl: an evaluation as JSON, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.files import write_text
from experiments.plain import plain, spread
from fedpriv.engine.history import Evaluation
from fedpriv.privacy import Certificate, Claim


def record(
    algorithm: str, e: Evaluation, claim: Claim | None, certificate: Certificate
) -> dict[str, Any]:
    """What is recorded of an evaluation, as JSON knows it."""
    line = {
        "algorithm": algorithm,
        "round": e.round,
        "accuracy": spread(e.accuracy),
        "loss": spread(e.loss),
        "uplink_mb_per_client": float(np.mean(e.uplink_mb)),
        "downlink_mb_per_client": float(np.mean(e.downlink_mb)),
        "traffic_mb_per_seed": {"uplink": e.uplink_mb.tolist(), "downlink": e.downlink_mb.tolist()},
        "privacy": {"claimed": plain(claim), "certified": plain(certificate)},
        "diagnostics_not_private": {
            k: spread(v) for k, v in [*e.diagnostics.items(), *e.measures.items()]
        },
        "seconds": e.seconds,
    }
    return plain(line)


def evaluation(record: Mapping[str, Any]) -> Evaluation:
    """What was recorded, with the numbers as `simulate` gave them; measures are among the diagnostics."""
    traffic = record["traffic_mb_per_seed"]
    return Evaluation(
        record["round"],
        _per_seed(record["accuracy"]),
        _per_seed(record["loss"]),
        np.array(traffic["uplink"], float),
        np.array(traffic["downlink"], float),
        {name: _per_seed(s) for name, s in record["diagnostics_not_private"].items()},
        record["seconds"],
    )


def _per_seed(spread: Mapping[str, Any]) -> np.ndarray:
    """In JAX's precision, which is what was computed in."""
    return np.array([float(x) for x in spread["per_seed"]], jax.dtypes.canonicalize_dtype(float))


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file, up to the first line that is torn."""
    found = []
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        try:
            found.append(json.loads(line.decode()))
        except ValueError:
            break
        if not line.endswith(b"\n"):
            found.pop()
    return found


class JsonLines:
    """A line per record. It is on the disk before training goes on."""

    def __init__(self, path: Path):
        self._path = path

    def write(self, *records: Mapping[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(_text(records))
            file.flush()
            os.fsync(file.fileno())

    def replace(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Puts these in the place of all that are there, at once."""
        write_text(self._path, _text(records))


def _text(records: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)
