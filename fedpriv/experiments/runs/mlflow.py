"""Records in MLflow: a run per algorithm, grouped by run folder; its step is the round.

`MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME` or `MLFLOW_EXPERIMENT_ID`, and the others are MLflow's own. A run that
goes on keeps its identity, and gets what is not there yet. A sink is not told how a run ended: MLflow's status of one
that failed or was interrupted is FINISHED, too.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric

from fedpriv.core.json_values import flat
from fedpriv.experiments.runs.scalars import scalars

IDENTITY = "fedpriv.run"
"""The tag by which a run is found again."""
# With a slash MLflow's files of accuracy would be a folder, for that of accuracy/std.
_SPELLED = {"/": ".", "@": "_at_"}


class MLflow:
    """Sends each algorithm's records to an MLflow run of its own.

    Args:
      folder: of the run.
      about: what config.json says.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        self._client = MlflowClient()
        self._folder, self._about = folder, about
        self._algorithm: str | None = None
        self._run = ""
        self._there: dict[str, set[int]] = {}

    def write(self, record: Mapping[str, Any]) -> None:
        if record["algorithm"] != self._algorithm:
            self._begin(record["algorithm"])
        step, now = record["round"], int(1000 * time.time())
        named = {_named(name): value for name, value in scalars(record).items()}
        new = [
            Metric(name, value, now, step)
            for name, value in named.items()
            if step not in self._there.get(name, ())
        ]
        self._client.log_batch(self._run, metrics=new)

    def _begin(self, algorithm: str) -> None:
        self.close()
        identity = _named(f"{self._about['id']}-{algorithm}")
        experiment = self._experiment()
        found = self._client.search_runs([experiment], f"tags.`{IDENTITY}` = '{identity}'")
        group = self._folder.resolve().name
        tags = {IDENTITY: identity, "fedpriv.folder": group, "fedpriv.algorithm": algorithm}
        run = next(iter(found), None) or self._client.create_run(
            experiment, tags=tags, run_name=f"{group} {algorithm}"
        )
        self._algorithm, self._run = algorithm, run.info.run_id
        self._client.update_run(self._run, "RUNNING")
        settings = {_named(name): value for name, value in flat(self._about["settings"]).items()}
        told = {"config": self._about["config"], **settings}
        for name in told.keys() - run.data.params.keys():
            self._client.log_param(self._run, name, told[name])
        # One that was killed while it wrote has the last step of some metrics alone.
        self._there = {
            name: {metric.step for metric in self._client.get_metric_history(self._run, name)}
            for name in run.data.metrics
        }

    def _experiment(self) -> str:
        """The id of the experiment."""
        given = os.environ.get("MLFLOW_EXPERIMENT_ID")
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "" if given else "fedpriv")
        if not name:
            return self._client.get_experiment(given).experiment_id
        found = self._client.get_experiment_by_name(name)
        return found.experiment_id if found else self._client.create_experiment(name)

    def close(self) -> None:
        if self._run:
            self._client.set_terminated(self._run)
            self._run = ""


def _named(name: str) -> str:
    """A name that MLflow takes; of other characters it has the codes, so that two names stay two."""
    return re.sub(
        r"^[./]|[^\w\-. :]",
        lambda found: _SPELLED.get(found[0] * bool(found.start()), f"_{ord(found[0]):x}_"),
        name,
    )
