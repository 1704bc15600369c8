"""Where a run's records go beside metrics.jsonl: anything with one method."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from fedpriv.core.json_values import MARK
from fedpriv.experiments.base.terminal import say

LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


class Sink(Protocol):
    """Takes the lines of metrics.jsonl, in their order; those of a run that goes on, from the first one.

    Keys that end in _not_private are of what no epsilon covers. They are there if `record_private` asks for them.
    """

    def write(self, record: Mapping[str, Any]) -> None: ...


def opened(
    names: Sequence[str], folder: Path, about: Mapping[str, Any], until_end: ExitStack
) -> list[Sink]:
    """The sinks of these names, after `check_installed`; imports their libraries.

    Args:
      folder: of the run.
      about: what config.json says.
      until_end: closes them.

    Raises:
      ValueError: a library does not start.
    """
    found: list[Sink] = []
    for name in names:
        try:
            sink = _opened(name, folder, about)
        except Exception as error:
            raise ValueError(
                f"record: {name} does not start ({type(error).__name__}: {error}); leave it out"
            ) from None
        until_end.callback(_closed, sink)
        found.append(sink)
    return found


def released(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what no epsilon covers."""
    return {
        key: released(value) if isinstance(value, Mapping) else value
        for key, value in record.items()
        if not key.endswith(MARK)
    }


def told(
    names: Sequence[str], sinks: Sequence[Sink], folder: Path, record_private: bool
) -> list[str]:
    """For a run with a secret seed: a line for each place that gets numbers which are not released."""
    where = [f"{folder}: config.json aside, its files"]
    if record_private:
        where += [f"--record {name}" for name in names]
        where += [f"the sink {type(sink).__name__}" for sink in sinks]
    return [
        f"note: {place} get{'s' * (i > 0)} numbers that no epsilon covers, under names that end in {MARK}; publish "
        "the model alone"
        for i, place in enumerate(where)
    ]


def _opened(name: str, folder: Path, about: Mapping[str, Any]) -> Any:
    if name == "tensorboard":
        from fedpriv.experiments.runs.tensorboard import TensorBoard

        return TensorBoard(folder / "tensorboard")
    if name == "mlflow":
        from fedpriv.experiments.runs.mlflow import MLflow

        return MLflow(folder, about)
    from fedpriv.experiments.runs.weights_and_biases import WeightsAndBiases

    return WeightsAndBiases(folder, about)


def _closed(sink: Any) -> None:
    with suppress(Exception):  # what was written is there; the rest would fail again
        sink.close()


def check_installed(names: Sequence[str]) -> None:
    """Raises ValueError: a sink's library is not installed."""
    for name in names:
        if importlib.util.find_spec(LIBRARIES[name]) is None:
            raise ValueError(
                f"record: {name} needs {LIBRARIES[name]}, which is not installed; pip install {LIBRARIES[name]}"
            )


def guarded(sink: Sink, private: bool = False) -> Sink:
    """`sink` until it fails: a full disk or a lost connection must not end a training.

    Args:
      private: whether it also gets what no epsilon covers.
    """
    return _Guarded(sink, private)


class _Guarded:
    def __init__(self, sink: Sink, private: bool):
        self._sink: Sink | None = sink
        self._private = private

    def write(self, record: Mapping[str, Any]) -> None:
        if self._sink is None:
            return
        try:
            self._sink.write(record if self._private else released(record))
        except Exception as error:
            name = type(self._sink).__name__
            self._sink = None
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            say(
                f"warning: record: {name} failed ({reason}); it gets no more of this run, but metrics.jsonl has "
                "everything",
                file=sys.stderr,
            )
